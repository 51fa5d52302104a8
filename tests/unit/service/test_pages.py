"""Pages of history over an in-memory log: ranges without positions, spans of summaries, fields that
collide.
"""

from __future__ import annotations

import json

import msgspec
import pytest

from projections.errors import InvalidEvent, InvalidPolicy, InvalidPosition, InvalidRequest
from projections.events.codec import decode_event
from projections.events.validation import Record
from projections.fold.apply import apply
from projections.fold.replay import replay
from projections.names import Key, Position, partition_of
from projections.policy.policy import Rules
from projections.window.entry import Kind
from projections.window.window import Window
from streams.encryption.payload_cipher import Unsealed
from streams.log.log import Raw
from threadfold.service import cursors, pages
from threadfold.service.drafts import Drafter, derived_id, new_id
from threadfold.service.pages import (
    PAGE_BYTES,
    Place,
    flat_event,
    known_types,
    page,
    read_cursor,
    write_cursor,
)
from threadfold.testing.memory_log import MemoryLog

POLICY = {
    "model_window": 4000,
    "reserve_tokens": 500,
    "working_budget": 400,
    "keep_recent_tokens": 150,
    "summary_max_tokens": 120,
}
KEY = Key("acme", "pages")


class CountingLog(MemoryLog):
    """A log that counts the offsets scanned."""

    scanned = 0
    most_read = most_bytes = 0

    async def read_within(self, positions, most_bytes):  # type: ignore[no-untyped-def]
        found, count = await super().read_within(positions, most_bytes)
        self.most_read = max(self.most_read, count)
        self.most_bytes = max(self.most_bytes, sum(len(raw.value) for raw in found.values()))
        return found, count

    async def scan(self, partition, first, last):  # type: ignore[no-untyped-def]
        async for raw in super().scan(partition, first, last):
            self.scanned += 1
            yield raw


async def filled(count: int, more: str = "", short: int = 0) -> tuple[CountingLog, Window]:
    """Messages of one conversation among another's, and the window that nobody compacted; ``more``
    stands behind each text but the last ``short`` ones.
    """
    log = CountingLog(1)
    records: list[Record] = []
    drafter = Drafter(KEY.tenant, Rules(POLICY), 1, 1 << 20)
    items = [
        (
            KEY.conversation if i % 2 else "other",
            {
                "type": "message",
                "role": "user",
                "content": f"message {i}{more if i < 2 * (count - short) else ''}",
            },
        )
        for i in range(count * 2)
    ]
    records = drafter.records(items, "event", False, None)
    positions = await log.append(records)
    logged = [
        (p.offset, decode_event(r.value))
        for p, r in zip(positions, records, strict=True)
        if r.key == KEY
    ]
    return log, replay(KEY, partition_of(KEY, 1), Rules(POLICY), logged)


async def test_a_held_range_without_positions_is_paged_in_parts() -> None:
    log, window = await filled(6000)
    assert window.tail[0].kind == Kind.HELD
    assert window.tail[0].positions is None
    found, cursor = [], None
    for number in range(100_000):
        log.scanned = 0
        answer = await page(log, window, cursor, 100)
        assert log.scanned <= 2_000 * 2, f"page {number} scanned {log.scanned}"
        found += [event["content"] for event in answer["events"]]
        cursor = answer["next_before"]
        if cursor is None:
            break
    assert found == [f"message {i}" for i in range(6000 * 2) if i % 2][::-1]


async def test_a_page_of_large_events_ends_early_and_names_the_next() -> None:
    log, window = await filled(40, " " + "word " * 100_000)
    found, sizes, cursor = [], [], None
    while True:
        answer = await page(log, window, cursor, 100)
        found += [event["content"].split(" word")[0] for event in answer["events"]]
        sizes.append(len(answer["events"]))
        cursor = answer["next_before"]
        if cursor is None:
            break
    assert found == [f"message {i}" for i in range(40 * 2) if i % 2][::-1]
    assert max(sizes) == 9, sizes  # of half a megabyte each
    assert log.most_read <= 20
    assert len((await page(log, window, None, 3))["events"]) == 3


async def test_large_events_after_many_short_ones_are_not_read_together() -> None:
    log, window = await filled(80, " " + "word " * 100_000, short=40)
    answer = await page(log, window, None, 100)
    assert 40 < len(answer["events"]) < 80
    assert log.most_bytes < PAGE_BYTES + 1_000_000


async def test_a_page_that_ends_with_the_oldest_event_has_no_next() -> None:
    log, window = await filled(3)
    assert (await page(log, window, None, 3))["next_before"] is None
    assert (await page(log, window, None, 2))["next_before"] is not None


@pytest.mark.parametrize("chunk", ["0-" + "9" * 5_000, "x", "", "0-", "-1-0"])
async def test_a_spilled_result_that_names_no_positions_does_not_stop_the_history(
    chunk: str,
) -> None:
    log, window = await filled(1)
    spill = {"chars": 1, "bytes": 1, "sha256": "", "size": 1, "chunks": [chunk]}
    data = {"tool_call_id": "a", "content": "preview", "spill": spill}
    event = {
        "specversion": "1.0",
        "id": "s",
        "type": "threadfold.tool.result.v1",
        "source": KEY.source,
        "data": data,
    }
    (position,) = await log.append([Record(KEY, "s", event["type"], json.dumps(event).encode())])  # type: ignore[arg-type]
    apply(window, position.offset, decode_event(json.dumps(event).encode()))
    events = (await page(log, window, None, 5))["events"]
    assert [flat["type"] for flat in events] == ["tool.result", "message"]


def test_cursors_are_read_back_and_bound_to_their_conversation() -> None:
    for place in (Place(0, None), Place(7, 9), Place(1 << 40, (1 << 40) + 5)):
        cursor = write_cursor(KEY, place)
        assert read_cursor(KEY, cursor) == place
        for other in (Key("acme", "other"), Key("rival", "pages")):
            with pytest.raises(InvalidPosition, match="cursor"):
                read_cursor(other, cursor)
    for wrong in ("", "x", "é", cursor[:-4], cursor + "AAAA", "A" * len(cursor)):
        with pytest.raises(InvalidPosition, match="cursor"):
            read_cursor(KEY, wrong)
    for packed in (b"x", b"1" * 15, b"1" * 17):
        with pytest.raises(InvalidPosition, match="cursor"):
            read_cursor(KEY, cursors.write_cursor(f"history\n{KEY}", packed))


def test_fields_that_would_hide_the_envelope_stand_apart() -> None:
    value = {
        "specversion": "1.0",
        "id": "e",
        "source": KEY.source,
        "time": "t",
        "type": "acme.odd.v1",
        "data": {"id": 1, "x": 2, "data": 3},
    }
    raw = Raw(Position(0, 5), str(KEY).encode(), json.dumps(value).encode(), 0)
    assert flat_event(raw, KEY, Unsealed()) == {
        "id": "e", "type": "acme.odd.v1", "time": "t", "position": "0-5", "x": 2, "data": {"id": 1, "data": 3},
    }  # fmt: skip
    assert flat_event(raw, Key("acme", "other"), Unsealed()) is None
    assert flat_event(raw._replace(value=b"{"), KEY, Unsealed()) is None


def test_ids_are_ordered_by_time_or_derived() -> None:
    ids = [new_id() for _ in range(100)]
    assert len(set(ids)) == 100
    assert [id_[:13] for id_ in ids] == sorted(id_[:13] for id_ in ids)
    assert all(id_[14] == "7" and id_[19] in "89ab" and len(id_) == 36 for id_ in ids)
    assert derived_id("a", "k", 0) == derived_id("a", "k", 0)
    assert len({derived_id(t, k, i) for t in "ab" for k in "kl" for i in (0, 1)}) == 8


def test_a_draft_checks_what_form_alone_does_not_tell() -> None:
    drafter = Drafter(
        "acme",
        Rules(
            {"model_window": 4000, "reserve_tokens": 500, "summary_max_tokens": 100},
            {"acme": {"reserve_tokens": 3000}},
        ),
        4,
        1 << 20,
    )

    def records(flat: object) -> list[Record]:
        return drafter.records([("c", flat)], "line", False, None)

    with pytest.raises(InvalidPolicy, match=r"line 1: field policy: .*reserve_tokens"):
        records({"type": "conversation.opened", "policy": {"model_window": 2000}})
    assert records(
        {
            "type": "conversation.opened",
            "policy": {"working_budget": 500, "summary_max_tokens": 100},
        }
    )
    own = partition_of(Key("acme", "c"), 4)
    assert records({"type": "rollback", "to": f"{own}-3"})
    assert records({"type": "rollback", "to": "an-id"})
    with pytest.raises(InvalidEvent, match="line 1: field to"):
        records({"type": "rollback", "to": f"{(own + 1) % 4}-3"})


async def test_a_page_of_some_types_has_them_alone_and_goes_on_where_it_stopped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    log = CountingLog(1)
    said: list[dict[str, object]] = [
        {"type": "message", "role": "user", "content": f"message {i}"}
        if i % 10
        else {"type": "session.closed", "reason": "explicit", "id": f"closed-{i}"}
        for i in range(60)
    ]
    records = Drafter(KEY.tenant, Rules(POLICY), 1, 1 << 20).records(
        [(KEY.conversation, flat) for flat in said], "event", False, None
    )
    events = [
        (at.offset, decode_event(r.value))
        for at, r in zip(await log.append(records), records, strict=True)
    ]
    window = replay(KEY, 0, Rules({}), events)
    wanted = [f"closed-{i}" for i in range(50, -1, -10)]
    for looked in (2_000, 7):
        monkeypatch.setattr(pages, "MAX_LOOKED", looked)
        monkeypatch.setattr(pages, "MAX_PAGE", 5)
        found, cursor = [], None
        for _ in range(100):
            answer = await page(log, window, cursor, 2, {"session.closed"})
            assert len(answer["events"]) <= 2
            found += [flat["id"] for flat in answer["events"]]
            cursor = answer["next_before"]
            if cursor is None:
                break
        assert found == wanted
    assert (await page(log, window, None, 9, {"suspension"}))["events"] == []


async def test_a_type_that_is_written_with_escapes_is_found() -> None:
    log = CountingLog(1)
    flats: list[dict[str, object]] = [
        {"type": "message", "role": "user", "content": f"said {i}"} for i in range(2)
    ]
    plain, other = Drafter(KEY.tenant, Rules(POLICY), 1, 1 << 20).records(
        [(KEY.conversation, flat) for flat in flats], "event", False, None
    )
    escaped = other.value.replace(b"message", b"mess\\u0061ge")
    records = [plain, msgspec.structs.replace(other, value=escaped)]
    events = [
        (at.offset, decode_event(r.value))
        for at, r in zip(await log.append(records), records, strict=True)
    ]
    window = replay(KEY, 0, Rules({}), events)
    assert len((await page(log, window, None, 9, {"message"}))["events"]) == 2


@pytest.mark.parametrize("types", [["messages"], [""], [], ["message", "tool.result.chunk"]])
def test_a_type_that_there_is_not_is_refused_by_name(types: list[str]) -> None:
    with pytest.raises(InvalidRequest, match=r"is not one of .*message"):
        known_types(types)
    assert known_types(["message", "summary"] * 4_000) == {"message", "summary"}
