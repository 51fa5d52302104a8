"""What every store of projections' results promises, run against the one in memory and the one in
Redis; and eventsourcing's own suite.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import AsyncIterator

import pytest
import redis.asyncio as aredis

from projections.errors import CorruptWindow, RedisUnavailable
from projections.storage.records import Checkpoint, Verdict
from streams.custom.ids import BLOCK, LIMIT, Ids
from streams.custom.persistence import (
    NO_WRITE,
    Hash,
    ProjectionStore,
    ProjectionWrite,
    place_of,
    write_of,
)
from streams.custom.result import Cell
from streams.custom.store import RedisProjectionStore
from streams.settings.settings import Settings
from tests.support.ports import closed_port
from threadfold.testing import MemoryProjectionStore

_numbers = itertools.count(1)


@pytest.fixture(params=["memory", "real"])
async def store(
    request: pytest.FixtureRequest, settings: Settings
) -> AsyncIterator[ProjectionStore]:
    if request.param == "memory":
        yield MemoryProjectionStore()
        return
    real = RedisProjectionStore(settings.redis, settings.topic_prefix)
    yield real
    await real.close()


@pytest.fixture
def place() -> str:
    """A place no other test uses."""
    return place_of("counts", next(_numbers), 0)


def at(revision: str, offset: int) -> Checkpoint:
    return Checkpoint(revision, offset, 1_000 + offset, f"digest{offset}", -1)


def values(**fields: bytes | None) -> ProjectionWrite:
    return write_of({Cell("acme", key): raw for key, raw in fields.items()}, {})


async def test_an_unknown_place_holds_nothing(store: ProjectionStore, place: str) -> None:
    assert await store.checkpoint(place) is None
    assert await store.read(place, [Cell("acme", "a")]) == (None, [None])
    assert await store.all(place, "acme") == (None, {})
    assert await store.ids(place, ["acme/c"]) == [{}]
    assert [cell async for cell in store.cells(place)] == []
    await store.drop(place)


async def test_values_and_checkpoint_come_together_and_by_tenant(
    store: ProjectionStore, place: str
) -> None:
    write = write_of(
        {Cell("acme", "a"): b"1", Cell("acme", "b"): b"2", Cell("other", "a"): b"3"},
        {"acme/c": Hash({b"n": b"1"}, [])},
    )
    first = await store.apply(place, at("", 7), write)
    assert first.verdict is Verdict.APPLIED
    checkpoint, found = await store.read(
        place, [Cell("other", "a"), Cell("acme", "b"), Cell("acme", "none"), Cell("acme", "a")]
    )
    assert checkpoint == Checkpoint(first.revision, 7, 1_007, "digest7", -1)
    assert found == [b"3", b"2", None, b"1"]
    assert await store.all(place, "acme") == (checkpoint, {"a": b"1", "b": b"2"})
    assert await store.ids(place, ["acme/none", "acme/c"]) == [{}, {b"n": b"1"}]
    assert {cell async for cell in store.cells(place)} == {
        Cell("acme", "a"),
        Cell("acme", "b"),
        Cell("other", "a"),
    }
    await store.apply(place, at(first.revision, 8), values(a=None, b=b"5"))
    assert (await store.all(place, "acme"))[1] == {"b": b"5"}


async def test_only_the_revision_in_force_may_write(store: ProjectionStore, place: str) -> None:
    first = await store.apply(place, at("", 1), values(a=b"1"))
    assert (await store.apply(place, at("", 2), values(a=b"2"))).verdict is Verdict.FENCED
    assert (await store.apply(place, at("", 1), values(a=b"2"))).verdict is Verdict.DUPLICATE
    second = await store.apply(place, at(first.revision, 2), values(a=b"2"))
    assert (
        await store.apply(place, at(first.revision, 3), values(a=b"9"))
    ).verdict is Verdict.FENCED
    assert await store.read(place, [Cell("acme", "a")]) == (at(second.revision, 2), [b"2"])


async def test_a_dropped_place_is_empty_and_no_revision_of_before_holds_again(
    store: ProjectionStore, place: str
) -> None:
    other = place + "0"
    first = await store.apply(place, at("", 1), values(a=b"1"))
    await store.apply(other, at("", 1), values(a=b"1"))
    await store.drop(place)
    assert await store.all(place, "acme") == (None, {})
    assert (await store.all(other, "acme"))[1] == {"a": b"1"}, (
        "its neighbour, whose name begins the same, was dropped with it"
    )
    again = await store.apply(place, at("", 0), NO_WRITE)
    assert again.revision != first.revision
    assert (
        await store.apply(place, at(first.revision, 2), values(a=b"9"))
    ).verdict is Verdict.FENCED


async def test_a_large_batch_is_written_whole(store: ProjectionStore, place: str) -> None:
    many = {Cell("acme", f"k{number}"): b"%d" % number for number in range(5_000)}
    first = await store.apply(place, at("", 1), write_of(many, {}))
    assert len((await store.all(place, "acme"))[1]) == 5_000
    await store.apply(place, at(first.revision, 2), write_of(dict.fromkeys(many), {}))
    assert (await store.all(place, "acme"))[1] == {}


async def test_recent_ids_are_the_same_however_often_they_are_stored(
    store: ProjectionStore, place: str
) -> None:
    whole, revision, name = Ids(), "", "acme/c"
    for batch in range(12):
        (fields,) = await store.ids(place, [name])
        assert len(fields) <= LIMIT // BLOCK + 3
        stored = Ids(fields)
        for number in range(
            batch * 150, batch * 150 + 200
        ):  # the first 50 of a batch were the last of the one before
            assert stored.take(f"e{number}") == whole.take(f"e{number}")
        answer = await store.apply(
            place, at(revision, batch), ProjectionWrite({}, {name: Hash(*stored.changes())})
        )
        revision = answer.revision
    assert whole.added == 1_850
    (fields,) = await store.ids(place, [name])
    held = Ids(fields)
    assert [held.take(f"e{number}") for number in (1_849, 1_849 - LIMIT + 1)] == [False, False]
    assert held.take(f"e{1_849 - LIMIT}"), "an id that left the last 1,024 is new again"


async def test_what_is_no_recent_ids_is_found_out() -> None:
    with pytest.raises(ValueError, match="ids from number"):
        Ids({b"n": b"5"})


async def test_redis_away_and_other_things_under_its_keys_are_named(settings: Settings) -> None:
    away = RedisProjectionStore(f"redis://127.0.0.1:{closed_port()}/0")
    with pytest.raises(RedisUnavailable, match="does not answer"):
        await away.checkpoint("counts:1:0")
    await away.close()
    store, client = (
        RedisProjectionStore(settings.redis, "odd"),
        aredis.Redis.from_url(settings.redis),
    )
    await client.set("odd:view:{counts:1:0}:state", "x")
    with pytest.raises(CorruptWindow, match="folded anew"):
        await store.checkpoint("counts:1:0")
    await client.aclose()
    await store.close()


pytest.importorskip(
    "eventsourcing", reason="eventsourcing is not installed (the extra eventsourcing)"
)
pytest.importorskip("Crypto", reason="eventsourcing's tests need its extra crypto")
from eventsourcing.persistence import IntegrityError, OperationalError, Tracking  # noqa: E402
from eventsourcing.tests import persistence as upstream  # noqa: E402

from threadfold.custom.eventsourcing import ThreadfoldTrackingRecorder  # noqa: E402


@pytest.fixture(scope="class")
def recorders(request: pytest.FixtureRequest, settings: Settings) -> None:
    request.cls.redis = settings.redis


@pytest.mark.usefixtures("recorders")
class TestEventsourcingsTrackingRecorder(upstream.TrackingRecorderTestCase):
    """The library's own test case, as it is, on the real Redis."""

    redis = ""

    def create_recorder(self) -> ThreadfoldTrackingRecorder:
        recorder = ThreadfoldTrackingRecorder(self.redis, name=f"upstream{next(_numbers)}")
        self.addCleanup(recorder.close)
        return recorder


def test_a_recorder_saves_values_with_the_notification_or_neither(settings: Settings) -> None:
    with ThreadfoldTrackingRecorder(settings.redis, settings.topic_prefix) as recorder:
        recorder.save(Tracking("orders", 5), {("acme", "open"): {"n": 4}})
        with pytest.raises(IntegrityError):
            recorder.save(Tracking("orders", 5), {("acme", "open"): {"n": 9}})
        assert recorder.value("orders", "acme", "open") == {"n": 4}
        assert recorder.value("orders}{", "acme", "open") is None
        recorder.save(Tracking("orders", 6), {("acme", "open"): None})
        assert recorder.value("orders", "acme", "open") is None
        assert recorder.max_tracking_id("orders") == 6
    recorder.close()


def test_of_writers_of_one_notification_just_one_succeeds(settings: Settings) -> None:
    outcomes: list[str] = []

    def write(recorder: ThreadfoldTrackingRecorder) -> None:
        for number in range(1, 31):
            try:
                recorder.insert_tracking(Tracking("orders", number))
                outcomes.append(f"taken {number}")
            except IntegrityError:
                outcomes.append("late")

    recorders = [
        ThreadfoldTrackingRecorder(settings.redis, settings.topic_prefix, name="rivals")
        for _ in range(3)
    ]
    threads = [threading.Thread(target=write, args=(recorder,)) for recorder in recorders]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    taken = [outcome for outcome in outcomes if outcome != "late"]
    assert len(taken) == len(set(taken))
    assert recorders[0].max_tracking_id("orders") == 30
    assert len(outcomes) == 90
    for recorder in recorders:
        recorder.close()


def test_a_recorder_without_redis_says_so_in_the_librarys_own_words() -> None:
    with (
        ThreadfoldTrackingRecorder(f"redis://127.0.0.1:{closed_port()}/0") as recorder,
        pytest.raises(OperationalError, match="answer"),
    ):
        recorder.max_tracking_id("orders")
