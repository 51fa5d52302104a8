"""The fold's promises over random histories: live = replay = from a snapshot = from what is stored,
at every split point.
"""

from __future__ import annotations

import random
from collections import Counter

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from projections.events import types as events
from projections.fold.apply import Status
from projections.fold.replay import apply_with_log, replay
from projections.reducers.reduction import unread
from projections.storage.snapshots import take_snapshot
from projections.window.groups import group_tail
from projections.window.window import Window
from tests.support.histories import (
    KEY,
    PARTITION,
    RULES,
    Writer,
    random_log,
    request_of,
    summary_for,
)
from tests.support.profiles import examples
from tests.support.restored_windows import restore, snapshot_offsets

seeds = st.integers(min_value=0, max_value=2**32)


def stored_and_loaded(window: Window) -> Window:
    return Window.from_image(KEY, PARTITION, RULES, window.image())


@given(seeds, st.integers(5, 120))
@settings(max_examples=examples(300), deadline=None)
def test_live_equals_replay(seed: int, length: int) -> None:
    writer = random_log(seed, length)
    assert replay(KEY, PARTITION, RULES, writer.log).image() == writer.window.image()


@given(seeds, st.integers(5, 60))
@settings(max_examples=examples(60), deadline=None)
def test_a_window_loaded_from_the_store_at_any_point_folds_on_as_if_it_never_left_memory(
    seed: int, length: int
) -> None:
    writer = random_log(seed, length)
    window = Window(KEY, PARTITION, RULES)
    for i, (offset, event) in enumerate(writer.log):
        window = stored_and_loaded(window)
        apply_with_log(window, offset, event, writer.log[:i])
    assert window.image() == writer.window.image()


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant"])
def test_a_snapshot_gives_back_the_reasoning_of_every_role(role: str) -> None:
    parts: list[events.Part] = [events.TextPart("so be it"), events.ReasoningPart("why")]
    writer = Writer(random.Random(0))
    writer.append(events.Message(role, parts), tokens=9)
    snapshot = take_snapshot(writer.window)
    window = restore(KEY, PARTITION, RULES, snapshot, dict(writer.log))
    assert window.image() == writer.window.image() and b"why" in window.tail[0].reasoning


@given(seeds, st.integers(5, 50))
@settings(max_examples=examples(60), deadline=None)
def test_a_snapshot_at_every_split_point_and_the_rest_of_the_log_give_the_same_window(
    seed: int, length: int
) -> None:
    writer = random_log(seed, length)
    by_offset = dict(writer.log)
    live = Window(KEY, PARTITION, RULES)
    for split, (offset, event) in enumerate(writer.log):
        apply_with_log(live, offset, event, writer.log[:split])
        snapshot = take_snapshot(live)
        window = restore(
            KEY,
            PARTITION,
            RULES,
            snapshot,
            {at: by_offset[at] for at in snapshot_offsets(snapshot)},
        )
        assert window.image() == live.image()
        for later in range(split + 1, len(writer.log)):
            apply_with_log(window, *writer.log[later], writer.log[:later])
        assert window.image() == writer.window.image()


@given(seeds, st.integers(5, 80))
@settings(max_examples=examples(100), deadline=None)
def test_derived_state_is_what_the_stored_parts_say(seed: int, length: int) -> None:
    window = random_log(seed, length).window
    again = stored_and_loaded(window)
    assert again.state == window.state
    assert (again.tail_tokens, again.held_tokens, again.tail_messages) == (
        window.tail_tokens,
        window.held_tokens,
        window.tail_messages,
    )


@given(seeds, st.integers(5, 80))
@settings(max_examples=examples(100), deadline=None)
def test_repeats_of_any_recent_event_change_nothing_but_their_count(seed: int, length: int) -> None:
    writer = random_log(seed, length)
    before = stored_and_loaded(writer.window)
    offset = writer.next_offset
    for _, event in writer.log[-40:]:
        offset += 1
        assert apply_with_log(writer.window, offset, event, writer.log).status is Status.DUPLICATE
    after = writer.window
    assert (after.meta.count, after.meta.digest) == (before.meta.count, before.meta.digest)
    assert after.tail == before.tail
    assert after.recent_ids.packed() == before.recent_ids.packed()


@given(seeds, st.integers(20, 90), st.integers(0, 15))
@settings(max_examples=examples(100), deadline=None)
def test_it_makes_no_difference_how_late_a_summary_comes(
    seed: int, length: int, delay: int
) -> None:
    writer = Writer(__import__("random").Random(seed))
    while writer.window.meta.due is None and len(writer.log) < length:
        writer.append(events.Message("user", "word " * 10), tokens=40)
        writer.append(events.Message("assistant", "reply " * 10), tokens=30)
    if writer.window.meta.due is None:
        return
    summary = summary_for(request_of(writer.window))
    later = [(events.Message("user", f"later {i}"), f"later{i}") for i in range(min(delay, 6))]
    early_first, late_first = (
        replay(KEY, PARTITION, RULES, writer.log),
        replay(KEY, PARTITION, RULES, writer.log),
    )
    from tests.support.histories import make_event

    event = make_event(summary, "the-summary", 12)
    messages = [make_event(data, id_, 20) for data, id_ in later]
    base = writer.next_offset
    for i, (mine, order) in enumerate(
        ((early_first, [event, *messages]), (late_first, [*messages, event]))
    ):
        assert i < 2
        for item in order:
            # the same offset for the same event in both orders, so that only the time of the
            # summary differs
            at = base + 1 + ([event, *messages].index(item))
            apply_with_log(mine, at, item, writer.log)
    assert early_first.meta.summary == late_first.meta.summary
    bodies = [[e for e in w.tail if e.body] for w in (early_first, late_first)]
    assert bodies[0] == bodies[1]
    assert early_first.meta.due == late_first.meta.due
    assert early_first.state == late_first.state


@given(seeds, st.integers(5, 100))
@example(658, 24)
@example(3106989, 99)
@settings(max_examples=examples(150), deadline=None)
def test_what_a_window_keeps_is_bounded_whatever_the_log_holds(seed: int, length: int) -> None:
    window = random_log(seed, length).window
    limit = 2 * window.policy.budget(window.state.pinned_tokens)
    biggest = max((e.tokens for e in window.tail), default=0)
    # A message and the results of its calls stay together, and what the model has not read stays.
    groups = group_tail(window.tail)
    largest = max((group.tokens for group in groups), default=0)
    new = sum(group.tokens for group in unread(groups))
    assert window.tail_tokens <= limit + max(biggest, largest, new)
    assert biggest <= max(window.policy.ceiling, window.held_tokens)
    assert len(window.state.suspensions) <= 32
    assert len(window.state.calls) <= 64


@pytest.mark.long
def test_the_random_histories_reach_what_they_are_for() -> None:
    """Without this, the properties above could hold over logs in which nothing happens."""
    seen: Counter[str] = Counter()
    for seed in range(150):
        writer = random_log(seed, 90)
        for (_, event), status in zip(writer.log, writer.outcomes, strict=True):
            seen[f"{type(event).__name__}:{status.value}"] += 1
        seen["in_force"] += writer.window.meta.summary is not None
        seen["chained"] += (
            writer.window.meta.summary is not None
            and writer.window.meta.summary.previous is not None
        )
        seen["held"] += writer.window.held_tokens > 0
    for what in (
        "SummaryEvent:applied",
        "SummaryEvent:rejected",
        "RollbackEvent:applied",
        "RollbackEvent:rejected",
        "MessageEvent:duplicate",
    ):
        assert seen[what] > 50, (what, seen)
    assert min(seen["in_force"], seen["chained"], seen["held"]) > 10, seen
