"""Conversations that are due for a summary, and timers, in their order."""

from __future__ import annotations

from projections.names import Key
from projections.storage.protocol import WindowStore
from projections.storage.records import (
    DueChange,
)
from tests.support.store import A, B, at, begin, write


async def test_due_is_set_kept_and_cleared(store: WindowStore, generation: int) -> None:
    revision = await begin(store, generation, write(A, due=DueChange.SET), write(B))
    assert await store.due(generation, 0, 0, 10) == [A]
    revision = (
        await store.apply(generation, 0, at(revision, 1), [write(A), write(B, due=DueChange.CLEAR)])
    ).revision
    assert await store.due(generation, 0, 0, 10) == [A]
    await store.apply(generation, 0, at(revision, 2), [write(A, due=DueChange.CLEAR)])
    assert await store.due(generation, 0, 10**15, 10) == []


async def test_a_request_that_was_sent_comes_up_again_at_its_time(
    store: WindowStore, generation: int
) -> None:
    await begin(store, generation, write(A, due=DueChange.SET))
    await store.requested(generation, 0, [A], 5_000)
    assert await store.due(generation, 0, 4_999, 10) == []
    assert await store.due(generation, 0, 5_000, 10) == [A]
    await store.requested(generation, 0, [], 9_000)
    assert await store.due(generation, 0, 5_000, 10) == [A]


async def test_noting_a_request_does_not_make_a_conversation_due_whose_summary_came_meanwhile(
    store: WindowStore, generation: int
) -> None:
    revision = await begin(store, generation, write(A, due=DueChange.SET))
    await store.apply(generation, 0, at(revision, 1), [write(A, due=DueChange.CLEAR)])
    await store.requested(generation, 0, [A, B], 5_000)
    assert await store.due(generation, 0, 10**15, 10) == []


async def test_another_span_that_became_due_does_not_wait_for_the_time_of_the_one_before(
    store: WindowStore, generation: int
) -> None:
    revision = await begin(store, generation, write(A, due=DueChange.SET))
    await store.requested(generation, 0, [A], 5_000)
    await store.apply(generation, 0, at(revision, 1), [write(A, due=DueChange.SET)])
    assert await store.due(generation, 0, 0, 10) == [A]


async def test_due_conversations_come_longest_due_first_then_by_name_and_no_more_than_asked(
    store: WindowStore, generation: int
) -> None:
    keys = [Key("acme", name) for name in ("d", "B", "a", "c", "b")]
    await begin(store, generation, *(write(key, due=DueChange.SET) for key in keys))
    await store.requested(generation, 0, [keys[2]], 20)
    await store.requested(generation, 0, [keys[3]], 10)
    order = [key.conversation for key in await store.due(generation, 0, 100, 10)]
    assert order == ["B", "b", "d", "c", "a"]
    assert [key.conversation for key in await store.due(generation, 0, 100, 2)] == ["B", "b"]


async def test_a_timer_is_set_kept_moved_and_cleared(store: WindowStore, generation: int) -> None:
    revision = await begin(store, generation, write(A, timer=1_700_000_000_123), write(B))
    assert await store.timers(generation, 0, 1_700_000_000_122, 10) == []
    assert await store.timers(generation, 0, 1_700_000_000_123, 10) == [A]
    revision = (
        await store.apply(generation, 0, at(revision, 1), [write(A), write(B, timer=None)])
    ).revision
    assert await store.timers(generation, 0, 1_700_000_000_123, 10) == [A]
    revision = (
        await store.apply(generation, 0, at(revision, 2), [write(A, timer=5), write(B, timer=0)])
    ).revision
    assert await store.timers(generation, 0, 4, 10) == [B]
    await store.apply(generation, 0, at(revision, 3), [write(A, timer=None)])
    assert await store.timers(generation, 0, 10**15, 10) == [B]


async def test_a_timer_that_rang_is_put_off_and_does_not_come_back_where_it_was_cleared(
    store: WindowStore, generation: int
) -> None:
    revision = await begin(store, generation, write(A, timer=10), write(B, timer=20))
    await store.put_off(generation, 0, {A: 500, B: 400, Key("acme", "c"): 1})
    assert await store.timers(generation, 0, 399, 10) == []
    assert await store.timers(generation, 0, 500, 10) == [B, A]
    await store.apply(generation, 0, at(revision, 1), [write(A, timer=None), write(B, timer=30)])
    await store.put_off(generation, 0, {A: 1})
    await store.put_off(generation, 0, {})
    assert await store.timers(generation, 0, 500, 10) == [B]
    assert await store.timers(generation, 0, 30, 10) == [B], (
        "what is set by a write counts, not what it was put off to"
    )


async def test_timers_come_earliest_first_then_by_name_and_no_more_than_asked(
    store: WindowStore, generation: int
) -> None:
    times = {"d": 7, "B": 7, "a": 9, "c": 8, "b": 7}
    await begin(
        store, generation, *(write(Key("acme", name), timer=time) for name, time in times.items())
    )
    order = [key.conversation for key in await store.timers(generation, 0, 100, 10)]
    assert order == ["B", "b", "d", "c", "a"]
    assert [key.conversation for key in await store.timers(generation, 0, 100, 2)] == ["B", "b"]
    latest = await store.timers(generation, 0, 8, 3, latest=True)
    assert [key.conversation for key in latest] == ["c", "d", "b"]
    assert await store.timers(generation, 1, 100, 10) == []
