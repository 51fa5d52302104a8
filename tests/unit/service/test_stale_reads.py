"""A reader refuses windows that are older than what it served, and only those."""

from __future__ import annotations

import time
from dataclasses import replace

import pytest

from projections.errors import Healing
from projections.names import Key
from projections.storage.records import Checkpoint
from streams.control.control_topic import Control
from streams.control.generations import HEARD
from streams.settings.settings import Settings
from tests.support.clock import Clock
from threadfold.service.former_generation import FormerGeneration
from threadfold.service.stored_windows import StoredWindows
from threadfold.testing import MemoryLog, MemoryStore


class Ends:
    """As much of a log as is asked here: where its partition ends."""

    def __init__(self, end: int) -> None:
        self.end = end

    async def last_records(self) -> dict[int, int]:
        return {0: self.end}


KEY = Key("acme", "c")


def at(offset: int) -> Checkpoint:
    return Checkpoint("r", offset, 0, "", -1)


@pytest.fixture
def ends() -> Ends:
    return Ends(200)


@pytest.fixture
def windows(ends: Ends) -> StoredWindows:
    settings = Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    return StoredWindows(MemoryStore(), Control(settings), lambda: ends, 0)  # type: ignore[arg-type, return-value]


async def test_of_reads_side_by_side_the_older_one_may_be_answered_last(
    windows: StoredWindows,
) -> None:
    first, second = windows.served(0), windows.served(0)
    await windows.check_served(KEY, 0, at(105), second)
    assert (await windows.check_served(KEY, 0, at(100), first)).offset == 100
    assert windows.served(0) == 105


async def test_a_read_that_began_after_another_was_served_must_not_be_older(
    windows: StoredWindows,
) -> None:
    await windows.check_served(KEY, 0, at(105), windows.served(0))
    with pytest.raises(Healing):
        await windows.check_served(KEY, 0, at(104), windows.served(0))
    assert (await windows.check_served(KEY, 0, at(105), windows.served(0))).offset == 105


async def test_an_older_copy_is_refused_also_while_a_conversation_is_restored(
    windows: StoredWindows,
) -> None:
    restoring = replace(at(100), ahead=150, rollbacks=(("acme/c", 101),))
    await windows.check_served(KEY, 0, restoring, windows.served(0))
    with pytest.raises(Healing):
        await windows.check_served(KEY, 0, replace(restoring, ahead=140), windows.served(0))
    await windows.check_served(KEY, 0, at(150), windows.served(0))


async def test_only_conversations_that_are_restored_wait_where_the_others_are_as_readers_saw_them(
    windows: StoredWindows,
) -> None:
    stored = replace(at(100), ahead=150, target=150, rollbacks=(("acme/c", 101), ("acme/d", 151)))
    for whose in (Key("acme", "other"), Key("acme", "d"), Key("acm", "c"), "other", "acm"):
        assert await windows.check_served(whose, 0, stored, -1) == stored
    for whose in (KEY, "acme"):
        with pytest.raises(Healing):
            await windows.check_served(whose, 0, stored, -1)
    early, unknown = replace(stored, ahead=149), replace(stored, unverified=True)
    for checkpoint in (early, unknown):
        with pytest.raises(Healing):
            await windows.check_served(Key("acme", "other"), 0, checkpoint, -1)


async def test_a_partition_that_is_folded_on_in_another_generation_is_not_served_for_a_while(
    windows: StoredWindows,
) -> None:
    now = int(time.time() * 1000)
    with pytest.raises(Healing):
        await windows.check_served(KEY, 0, replace(at(100), withheld_until=now + 60_000), -1)
    passed = replace(at(100), withheld_until=now)
    assert await windows.check_served(KEY, 0, passed, -1) == passed


async def test_a_conversation_that_is_restored_is_as_old_as_its_rollback_and_others_are_not() -> (
    None
):
    settings = Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    log = MemoryLog(1)
    windows = StoredWindows(MemoryStore(), Control(settings), lambda: log, 0)
    assert windows.served_of(KEY) == -1
    restoring = replace(at(100), ahead=150, rollbacks=(("acme/c", 120), ("acme/d", 170)))
    await windows.check_served(KEY, 0, restoring, windows.served(0))
    others = (Key("acme", "other"), Key("acme", "d"))
    assert [windows.served_of(key) for key in (KEY, *others)] == [119, 150, 150]
    await windows.check_served(KEY, 0, at(150), windows.served(0))
    assert windows.served_of(KEY) == 150


async def test_of_a_topic_that_was_made_anew_what_it_holds_is_served(
    windows: StoredWindows, ends: Ends
) -> None:
    await windows.check_served(KEY, 0, at(105), windows.served(0))
    ends.end = 50
    assert (await windows.check_served(KEY, 0, at(49), windows.served(0))).offset == 49
    assert windows.served(0) == 49


async def test_after_a_switch_nothing_is_served_that_is_older_than_what_the_former_generation_holds(
    ends: Ends,
) -> None:
    """A worker that has not heard of the switch folded that on, and another gateway served it."""
    settings = Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    store, control, clock = MemoryStore(), Control(settings), Clock(0.0)
    former, other = FormerGeneration(store, control, lambda: ends, clock), Key("acme", "d")  # type: ignore[arg-type, return-value]
    ends.end = 500
    control.state.put(b"generation/live", b"1")
    restoring = Checkpoint("", 350, ahead=381, rollbacks=(("acme/d", 360),))
    await store.apply(1, 0, restoring, [])
    assert not await former.is_ahead(KEY, 0, at(358)), "there is none before it"
    control.state.put(b"generation/live", b"2")
    for whose in (KEY, "acme"):
        assert await former.is_ahead(whose, 0, at(380))
        assert not await former.is_ahead(whose, 0, at(381))
    assert not await former.is_ahead(KEY, 1, at(0)), "it holds nothing there"
    assert await former.is_ahead(other, 0, at(358))
    assert not await former.is_ahead(other, 0, at(359)), "it goes back to an old event there"
    ends.end = 359
    assert not await former.is_ahead(KEY, 0, at(358)), "the log lost what came after"
    ends.end = 500
    clock.now += HEARD + 1
    assert not await former.is_ahead(KEY, 0, at(358)), "everybody has heard of it"


async def test_reads_of_the_new_generation_wait_for_where_the_former_one_was(ends: Ends) -> None:
    settings = Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    store, control = MemoryStore(), Control(settings)
    windows = StoredWindows(store, control, lambda: ends, 0)  # type: ignore[arg-type, return-value]
    for number in (b"1", b"2"):
        control.state.put(b"generation/live", number)
    await store.apply(1, 0, Checkpoint("", 105), [])
    with pytest.raises(Healing):
        await windows.check_served(KEY, 0, at(104), windows.served(0))
    assert windows.served(0) == -1
    assert (await windows.check_served(KEY, 0, at(105), windows.served(0))).offset == 105
