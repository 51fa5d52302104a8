"""The fold of a conversation as it stood at any event: the same as folding it from its first event
each time, and not quadratic.
"""

from __future__ import annotations

import time

import pytest

from projections.events import types as events
from projections.fold.apply import Status, apply
from projections.fold.known_events import KnownEvents
from projections.fold.outcomes import History
from projections.fold.replay import (
    GROWTH,
    LATEST,
    Logged,
    ReplayCheckpoints,
    history_from,
    replay,
    summary_chain,
)
from projections.fold.rollback import LaterSummaries, take_out
from projections.window.window import Window
from tests.support.histories import KEY, PARTITION, RULES, make_event, random_log


def summed(history: History) -> object:
    """What of a history can be compared."""
    return None if history.window is None else history.window.image()


@pytest.mark.parametrize("copies", [1, 30_000, 1 << 24])
def test_histories_are_those_of_a_fold_from_the_first_event_however_few_copies_are_kept(
    copies: int,
) -> None:
    looked = 0
    for seed in range(6):
        log = random_log(seed, 120).log
        window, points = (
            Window(KEY, PARTITION, RULES),
            ReplayCheckpoints(KEY, PARTITION, RULES, copies),
        )
        after: dict[int, Window | None] = {}
        for i, (offset, event) in enumerate(log):
            outcome = apply(window, offset, event)
            if outcome.status is Status.NEEDS_HISTORY and outcome.target is None:
                outcome = apply(window, offset, event, History(texts=KnownEvents(log[:i])))
            elif outcome.status is Status.NEEDS_HISTORY:
                assert outcome.target is not None
                expected = history_from(window, outcome.target, log[:i])
                restored = after.get(outcome.target)
                for _, later in log[:i]:
                    if restored is not None and isinstance(later, events.EventDroppedEvent):
                        take_out(restored, later.data.position)
                if restored is not None:
                    known = KnownEvents(log[:i])
                    chain = summary_chain(window, known, outcome.target)
                    LaterSummaries(restored, chain, outcome.target).go_on(known)
                assert (None if restored is None else restored.image()) == summed(expected)
                assert summed(points.history(window, outcome.target)) == summed(expected), (
                    f"seed {seed}, offset {offset}"
                )
                enough = ReplayCheckpoints(KEY, PARTITION, RULES, copies, every=7)
                enough.extend(log[:i], upto=outcome.target)
                assert summed(enough.history(window, outcome.target)) == summed(expected), (
                    f"seed {seed}, offset {offset}"
                )
                outcome = apply(window, offset, event, expected)
                looked += 1
            points.extend([(offset, event)])
            repeat = outcome.status is Status.DUPLICATE
            after[offset] = None if repeat else window.copy()
        assert points.size <= GROWTH * copies or points.copies <= LATEST
    assert looked > 5, "hardly a rollback reached beyond its window"


def test_many_deep_rollbacks_of_a_long_conversation_take_no_time_that_grows_with_their_square() -> (
    None
):
    log: list[Logged] = []
    for k in range(300):
        for i in range(9):
            log.append(
                (
                    len(log),
                    make_event(events.Message("user", f"turn {k}, number {i}"), f"e{len(log)}", 40),
                )
            )
        log.append(
            (
                len(log),
                make_event(
                    events.Rollback(f"{PARTITION}-{max(2, len(log) - 400)}"), f"e{len(log)}"
                ),
            )
        )
    window, points, histories = (
        Window(KEY, PARTITION, RULES),
        ReplayCheckpoints(KEY, PARTITION, RULES),
        0,
    )
    begun = time.process_time()
    for offset, event in log:
        outcome = apply(window, offset, event)
        if outcome.status is Status.NEEDS_HISTORY:
            assert outcome.target is not None
            outcome = apply(window, offset, event, points.history(window, outcome.target))
            histories += 1
        points.extend([(offset, event)])
    spent = time.process_time() - begun
    begun = time.process_time()
    once = replay(KEY, PARTITION, RULES, log)
    assert window.image() == once.image()
    assert histories > 200
    assert spent < 10 * (time.process_time() - begun) + 2, (
        "each rollback folded the whole conversation again"
    )
