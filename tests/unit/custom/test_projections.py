"""A team's own projections over the log and store in memory: what they see, what they may write,
and what goes wrong with them.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from projections.errors import Healing, InvalidProjection, ProjectionFailed, RedisUnavailable
from projections.events.validation import make_record
from projections.names import Key, Position
from projections.storage.records import Applied, Checkpoint
from streams.control.custom_projections import ProjectionGeneration, ProjectionRecord, take_record
from streams.custom.fold import ProjectionPartition
from streams.custom.persistence import Hash, ProjectionWrite, place_of
from streams.custom.result import Cell
from streams.custom.verify import verify_view
from streams.encryption.payload_cipher import seal_event
from streams.log.log import Raw
from streams.partition.log_identity import identity
from streams.partition.owned import Fenced
from threadfold.custom import Event, Projection, Result
from threadfold.testing import MemoryLog, MemoryProjection, MemoryProjectionStore

ROOT = Path(__file__).resolve().parents[3]
HELLO = {"type": "message", "role": "user", "content": "hello there"}


class Last(Projection):
    """Each conversation's last message, and how many there were; deleted by a close."""

    name = "last"

    async def apply(self, batch: Sequence[Event], result: Result) -> None:
        for event in batch:
            if event.type == "session.closed":
                result.delete(event.tenant, event.conversation)
            elif event.type == "message":
                before = await result.get(event.tenant, event.conversation)
                count = before["count"] + 1 if before else 1
                result.put(
                    event.tenant,
                    event.conversation,
                    {"text": event.data["content"], "count": count},
                )


class Each(Projection):
    """Everything it is given, one counter a type."""

    name = "each"

    def __init__(self, once: bool = True) -> None:
        self.once = once
        self.seen: list[Event] = []

    async def apply(self, batch: Sequence[Event], result: Result) -> None:
        self.seen += batch
        for event in batch:
            result.add(event.tenant, "all", **{event.type.replace(".", "_"): 1})


def blocks(page: str) -> list[str]:
    return re.findall(r"```python\n(.*?)```", (ROOT / "docs" / page).read_text(), re.DOTALL)


async def test_the_page_does_what_it_says() -> None:
    projection, _, test = blocks("projections.md")
    assert projection.count("\n") < 22
    space: dict[str, Any] = {}
    lines = "\n".join("    " + line for line in test.splitlines())
    exec(
        compile(
            f"{projection}\nasync def go():\n{lines}\n    return memory", "projections.md", "exec"
        ),
        space,
    )
    memory = await space["go"]()
    ((_, used),) = (await memory.all("acme")).items()
    assert used["tokens"] > 0


def test_the_pages_projection_is_that_of_the_example() -> None:
    def usage(code: str) -> str:
        (found,) = [node for node in ast.parse(code).body if isinstance(node, ast.ClassDef)]
        return ast.dump(found)

    assert usage(blocks("projections.md")[0]) == usage((ROOT / "examples" / "usage.py").read_text())


async def test_documents_are_read_changed_and_deleted_within_and_across_batches() -> None:
    view = MemoryProjection(Last())
    await view.append("acme", "c", HELLO, {**HELLO, "content": "second"})
    await view.append("acme", "c", {**HELLO, "content": "third"})
    await view.append("acme", "d", HELLO)
    assert await view.get("acme", "c") == {"text": "third", "count": 3}
    await view.append("acme", "d", {"type": "session.closed", "reason": "explicit"})
    assert await view.all("acme") == {"c": {"text": "third", "count": 3}}
    assert await view.get("other", "c") is None
    report = await view.verify()
    assert (report.verified, report.differing, report.events) == (1, [], 5)


async def test_an_event_has_what_the_envelope_says_and_its_data_as_a_dictionary() -> None:
    projection = Each()
    view = MemoryProjection(projection)
    await view.append(
        "acme",
        "c",
        {**HELLO, "id": "m1", "time": "2026-01-31T12:00:00Z"},
        {"type": "acme.note.v1", "n": [1, {"a": None}]},
    )
    message, note = projection.seen
    assert (message.tenant, message.conversation, message.type, message.id) == (
        "acme",
        "c",
        "message",
        "m1",
    )
    assert (message.time, message.readable) == ("2026-01-31T12:00:00Z", True)
    assert message.data == {"role": "user", "content": "hello there"}
    assert 1 <= message.tokens <= 10
    assert re.fullmatch(r"20\d\d-\d\d-\d\d", message.day)
    assert (note.type, note.data, note.tokens) == ("acme.note.v1", {"n": [1, {"a": None}]}, 0)


async def test_repeats_are_passed_over_unless_every_record_is_wanted() -> None:
    for once, expected in ((True, 2), (False, 4)):
        view = MemoryProjection(Each(once))
        first, second = {**HELLO, "id": "a"}, {**HELLO, "id": "b"}
        await view.append("acme", "c", first, first, second)
        await view.append("acme", "c", first)
        assert (await view.get("acme", "all"))["message"] == expected
        assert (await view.verify()).differing == []


async def test_records_that_are_no_events_are_passed_over_and_counted() -> None:
    view = MemoryProjection(Each())
    await view.append("acme", "c", HELLO)
    number = next(n for n, end in (await view.log.end_offsets()).items() if end)
    first = Position(number, 0)
    good = (await view.log.read([first]))[first].value
    for key, value in (
        (None, good),
        (b"no-slash", good),
        (b"acme/c", None),
        (b"acme/c", b"{"),
        (b"acme/other", good),
    ):
        view.log.put(number, key, value)
    assert await view.get("acme", "all") == {"message": 1}
    assert view.partitions[number].counts.dead == 5


class Broken(Projection):
    name = "broken"

    async def apply(self, batch: Sequence[Event], result: Result) -> None:
        for event in batch:
            result.add(event.tenant, "n", n=1)
            if "bad" in event.data["content"]:
                raise ZeroDivisionError("ouch")


async def test_an_error_names_its_event_and_nothing_of_its_batch_is_written() -> None:
    view = MemoryProjection(Broken())
    await view.append("acme", "c", HELLO)
    with pytest.raises(
        ProjectionFailed,
        match=r"broken failed at position \d-2 \(message of acme/c\): ZeroDivisionError: ouch",
    ):
        await view.append("acme", "c", HELLO, {**HELLO, "content": "bad"}, HELLO)
    assert await view.reader.get("acme", "n") == {"n": 1}


class Odd(Projection):
    name = "odd"

    def __init__(self, what: str) -> None:
        self.what = what

    async def apply(self, batch: Sequence[Event], result: Result) -> None:
        if self.what == "fraction":
            result.add("acme", "k", n=0.5)  # type: ignore[arg-type]
        elif self.what == "no counter":
            result.put("acme", "k", "text")
            result.add("acme", "k", n=1)
        elif self.what == "no JSON":
            result.put("acme", "k", object())
        elif self.what == "large":
            result.put("acme", "k", "x" * (1 << 20))
        elif self.what == "tenant":
            result.put("no/tenant", "k", 1)
        else:
            result.put("acme", "", 1)


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("fraction", "only whole numbers"),
        ("no counter", "is no counter"),
        ("no JSON", "is not JSON"),
        ("large", "bytes, over"),
        ("tenant", "is not a name"),
        ("key", "1 to 512 printable"),
    ],
)
async def test_what_is_no_value_is_refused_by_name(what: str, said: str) -> None:
    with pytest.raises(InvalidProjection, match=f"projection odd.*{said}"):
        await MemoryProjection(Odd(what)).append("acme", "c", HELLO)


@pytest.mark.parametrize(
    ("name", "version"),
    [("", 1), ("Up", 1), ("a:b", 1), (None, 1), ("fine", 0), ("fine", "2"), ("fine", True)],
)
def test_a_name_or_version_that_cannot_be_is_refused(name: Any, version: Any) -> None:
    projection = Each()
    projection.name, projection.version = name, version
    with pytest.raises(InvalidProjection, match=r"its (name|version) is"):
        MemoryProjection(projection)


def test_a_projection_without_an_apply_of_its_own_is_refused() -> None:
    class Idle(Projection):
        name = "idle"

    with pytest.raises(
        InvalidProjection, match="projection idle: Idle does not define a method apply"
    ):
        MemoryProjection(Idle())


class ByBatch(Projection):
    name = "by-batch"

    async def apply(self, batch: Sequence[Event], result: Result) -> None:
        result.add("acme", "batches", n=1)


async def test_verify_finds_what_depends_on_how_batches_are_cut() -> None:
    view = MemoryProjection(ByBatch(), partitions=1)
    for _ in range(3):
        await view.append("acme", "c", HELLO)
    report = await view.verify()
    assert (report.verified, report.differing) == (1, ["acme/batches"])


async def test_verify_finds_values_that_are_wrong_missing_or_too_many() -> None:
    view = MemoryProjection(Last(), partitions=1)
    for name in "abc":
        await view.append("acme", name, HELLO)
    place = place_of("last", 1, 0)
    (value,) = await view.store.load(place, [Cell("acme", "a")])
    checkpoint = await view.store.checkpoint(place)
    assert value is not None and checkpoint is not None
    wrong = Hash({b"a": value.replace(b"hello", b"HELLO"), b"z": b"1"}, [b"b"])
    await view.store.apply(place, checkpoint, ProjectionWrite({"acme": wrong}, {}))
    report = await view.verify()
    assert (report.verified, report.differing) == (4, ["acme/a", "acme/b", "acme/z"])


async def test_values_of_several_partitions_are_added_or_merged_or_refused() -> None:
    class Texts(Last):
        async def apply(self, batch: Sequence[Event], result: Result) -> None:
            for event in batch:
                result.put(event.tenant, "any", event.conversation)

    class Merged(Texts):
        def merge(self, values: list[Any]) -> Any:
            return sorted(values)

    counted, refused, merged = (
        MemoryProjection(Each()),
        MemoryProjection(Texts()),
        MemoryProjection(Merged()),
    )
    for view in (counted, refused, merged):
        for number in range(12):
            await view.append("acme", f"c{number}", HELLO)
    assert await counted.get("acme", "all") == {"message": 12}
    with pytest.raises(InvalidProjection, match="give it a method merge"):
        await refused.get("acme", "any")
    assert len(await merged.get("acme", "any")) == 4


async def rows(log: MemoryLog, number: int = 0) -> list[Raw]:
    return [raw async for raw in log.scan(number, 0, 10**9)]


async def test_a_former_owner_is_fenced_and_a_batch_counts_once_whoever_writes_it() -> None:
    view = MemoryProjection(Each(), partitions=1)
    await view.append("acme", "c", HELLO, HELLO, HELLO)
    old, new = (ProjectionPartition(view.projection, 2, 0, view.store, view.log) for _ in range(2))
    records = await rows(view.log)
    await old.process(records[:1])
    await new.begin(old.checkpoint, -1)
    await new.process(records)
    with pytest.raises(Fenced):
        await old.process(records[1:2])
    await old.process(
        records[1:]
    )  # the new owner wrote this very batch: it is in, and not written again
    assert (await view.store.all("each:2:0", "acme"))[1] == {"all": b'{"message":3}'}
    assert new.checkpoint.digest == identity(records[2])
    view.store.lose_everything()
    with pytest.raises(Fenced):
        await new.check()


class Failing(MemoryProjectionStore):
    """A store whose answers get lost, after it wrote or before."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.rng = random.Random(seed)

    async def apply(self, place: str, checkpoint: Checkpoint, write: ProjectionWrite) -> Applied:
        if self.rng.random() < 0.3:
            raise RedisUnavailable("no answer")
        answer = await super().apply(place, checkpoint, write)
        if self.rng.random() < 0.3:
            raise RedisUnavailable("it wrote, and its answer was lost")
        return answer


@pytest.mark.parametrize("seed", range(5))
async def test_whatever_answers_get_lost_each_event_counts_once(seed: int) -> None:
    view, store = MemoryProjection(Each(once=False), partitions=1), Failing(seed)
    for number in range(40):
        await view.append("acme", f"c{number % 3}", HELLO)
    records, lost = await rows(view.log), 0
    while (await store.checkpoint("each:9:0") or Checkpoint()).offset < 39:
        part = ProjectionPartition(view.projection, 9, 0, store, view.log)
        try:
            stored = await store.checkpoint(part.place)
            await part.begin(stored or Checkpoint(), -1)
            while part.checkpoint.offset < 39:
                await part.process(records[part.checkpoint.offset + 1 :][: store.rng.randint(1, 5)])
        except (RedisUnavailable, Fenced):
            lost += 1
    assert lost
    assert (await store.all("each:9:0", "acme"))[1] == {"all": b'{"message":40}'}


async def test_of_a_payload_whose_key_is_gone_the_envelope_stays() -> None:
    projection = Each()
    view = MemoryProjection(projection, partitions=1)
    record = make_record(
        Key("acme", "c"), {**HELLO, "id": "x"}, where="it", now="2026-01-31T12:00:00Z", new_id="x"
    )
    view.log.put(0, b"acme/c", seal_event(record.value, b"k" * 12, AESGCM(b"s" * 32)))
    assert await view.get("acme", "all") == {"message": 1}
    (event,) = projection.seen
    assert (event.readable, event.data, event.id, event.type) == (False, {}, "x", "message")
    assert event.tokens > 0


async def test_a_lost_partition_is_not_read_as_an_empty_one() -> None:
    view = MemoryProjection(Each(), partitions=2)
    await view.append("acme", "c", HELLO)
    view.store.lose_everything()
    with pytest.raises(Healing, match="folded again"):
        await view.reader.get("acme", "all")
    with pytest.raises(Healing, match="verify it afterwards"):
        await verify_view(view.log, view.store, MemoryProjectionStore(), view.projection, 1)


def test_of_two_records_written_on_top_of_the_same_one_the_first_counts() -> None:
    first = ProjectionRecord(1, 1, {1: ProjectionGeneration(1, (0,))})
    begun = first.begun(2, {0: 5})
    assert (begun.live, begun.generations[2]) == (1, ProjectionGeneration(2, (5,)))
    views: dict[str, ProjectionRecord] = {}
    for record in (first, begun, first.switched(1), begun.switched(2)):
        take_record(views, "v", msgspec.json.encode(record))
    assert views["v"] == begun.switched(2)
    assert (
        begun.newest(1),
        begun.newest(2),
        begun.candidate(2),
        begun.switched(2).candidate(2),
    ) == (1, 2, 2, None)
    take_record(views, "v", None)
    assert views == {}
