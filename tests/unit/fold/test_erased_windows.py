"""After its erasure a window is the same, byte for byte, whatever of its events could be read."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from projections.events import types as events
from projections.events.types import AnyEvent, OtherEvent
from projections.fold.apply import Status, apply
from projections.fold.replay import Logged, apply_with_log, replay
from projections.names import Key
from projections.storage.layout import changes_of
from projections.storage.records import NOTHING, Checkpoint, write_of
from projections.storage.snapshots import take_snapshot
from projections.window.window import Window
from tests.support.histories import KEY, PARTITION, RULES, Writer, random_log
from tests.support.profiles import examples
from tests.support.restored_windows import restore, snapshot_offsets
from threadfold.testing import MemoryStore

seeds = st.integers(min_value=0, max_value=2**32)


def opaque(event: AnyEvent) -> AnyEvent:
    """The event as it is read without its key; an erasure is never sealed."""
    if isinstance(event, events.ErasedEvent | OtherEvent):
        return event
    return OtherEvent(
        specversion="1.0",
        id=event.id,
        type=type(event).__struct_config__.tag,
        source=event.source,
        tokens=event.tokens,
    )


def erased_log(seed: int, length: int, later: int) -> list[Logged]:
    """A random conversation, its erasure, and what comes after it all the same."""
    writer = random_log(seed, length)
    after = random_log(seed + 1, later).log
    at = writer.next_offset
    log = [*writer.log, (at, _erased("the-erasure"))]
    log += [(at + 1 + i, event) for i, (_, event) in enumerate(after)]
    return [*log, (at + 1 + len(after), _erased("another"))]


def _erased(id_: str) -> events.ErasedEvent:
    return events.ErasedEvent(specversion="1.0", id=id_, source=KEY.source, data=events.Erased())


@given(seeds, st.integers(0, 80), st.integers(0, 8), st.floats(0, 1))
@settings(max_examples=examples(200), deadline=None)
def test_all_readable_any_part_opaque_and_nothing_at_all_fold_to_the_same_window(
    seed: int, length: int, later: int, share: float
) -> None:
    rng = random.Random(seed)
    log = erased_log(seed, length, later)
    whole = replay(KEY, PARTITION, RULES, log).image()
    assert (
        replay(
            KEY,
            PARTITION,
            RULES,
            [(at, opaque(event) if rng.random() < share else event) for at, event in log],
        ).image()
        == whole
    )
    # Dead letters of the one fold are events of the other: any may be missing, too.
    kept = [
        item for item in log[:-1] if rng.random() < share or isinstance(item[1], events.ErasedEvent)
    ]
    assert replay(KEY, PARTITION, RULES, [*kept, log[-1]]).image() == whole
    assert replay(KEY, PARTITION, RULES, log[-1:]).image() == whole


@given(seeds, st.integers(0, 60))
@settings(max_examples=examples(60), deadline=None)
def test_an_id_that_was_used_before_does_not_prevent_an_erasure(seed: int, length: int) -> None:
    writer = random_log(seed, length)
    writer.append(events.Message("user", "mine"), id_="the-erasure")
    assert apply(writer.window, writer.next_offset, _erased("the-erasure")).status is Status.APPLIED
    assert writer.window.meta.erased


async def test_what_is_stored_of_an_erased_window_is_what_a_new_fold_would_store() -> None:
    for length in (0, 1, 40, 3000):
        writer = Writer(random.Random(length))
        for i in range(length):
            writer.append(events.Message("user", f"secret {i}"), tokens=3)
        store, at = MemoryStore(), writer.next_offset
        write = write_of(writer.window)
        await store.apply(1, PARTITION, Checkpoint(), [write])
        apply(writer.window, at, _erased("e"))
        erasing = write_of(writer.window, write.after)
        await store.apply(1, PARTITION, Checkpoint(revision="1"), [erasing])
        _, (stored,) = await store.read(1, PARTITION, [KEY])
        assert stored is not None
        assert stored.id_blocks == {}
        assert stored.fields == dict(
            changes_of(replay(KEY, PARTITION, RULES, [(at, _erased("e"))]), NOTHING.layout).put
        )
        assert b"secret" not in b"".join(stored.fields.values())
        loaded, mark = stored.open(KEY, PARTITION, RULES)
        assert loaded.image() == writer.window.image()
        # And what comes after it is written and read as well.
        apply(loaded, at + 1, _erased("f"))
        await store.apply(1, PARTITION, Checkpoint(revision="2"), [write_of(loaded, mark)])
        _, (again,) = await store.read(1, PARTITION, [KEY])
        assert again is not None
        assert again.load(KEY, PARTITION, RULES).meta.position == at + 1


def test_a_snapshot_of_an_erased_window_needs_nothing_of_the_log() -> None:
    window = random_log(7, 60).window
    apply(window, 1_000, _erased("e"))
    snapshot = take_snapshot(window)
    assert snapshot_offsets(snapshot) == []
    assert restore(KEY, PARTITION, RULES, snapshot, {}).image() == window.image()


@given(seeds, st.integers(5, 60))
@settings(max_examples=examples(60), deadline=None)
def test_events_without_keys_are_counted_by_id_and_never_poison(seed: int, length: int) -> None:
    log = random_log(seed, length).log
    window = Window(Key("acme", "c1"), PARTITION, RULES)
    ids = set()
    for i, (offset, event) in enumerate(log):
        status = apply_with_log(window, offset, opaque(event), log[:i]).status
        assert status is (Status.DUPLICATE if event.id in ids else Status.APPLIED)
        ids.add(event.id)
    assert window.meta.count == len(ids)
    assert window.meta.unknown == len(ids)
