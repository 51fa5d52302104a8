"""A late summary that is folded into a copy of its window, a few events at a time."""

from __future__ import annotations

from projections.fold.apply import Status, apply
from projections.fold.known_events import KnownEvents, NotRead
from projections.fold.outcomes import History
from projections.fold.replay import Logged, apply_with_log
from projections.fold.summary_effects import LateSummary
from projections.window.window import Window
from tests.support.histories import KEY, PARTITION, RULES, random_log


def read_one_by_one(late: LateSummary, log: list[Logged]) -> tuple[Window, int]:
    """The window with the summary; before each event is read the one before it is forgotten. And
    how many were read.
    """
    known, events, reads = KnownEvents(whole=False), dict(log), 0
    while True:
        try:
            return late.go_on(known), reads
        except NotRead as needed:
            at = needed.offsets[0]
            known.forget(0)
            known.have_read([at], [(at, events[at])] if at in events else [], 1)
            reads += 1


def test_it_comes_out_as_one_whose_events_are_all_known_and_the_window_waits_unchanged() -> None:
    summaries = reads = 0
    for seed in range(40):
        log = random_log(seed, 120).log
        window = Window(KEY, PARTITION, RULES)
        for i, (offset, event) in enumerate(log):
            needs = apply(window, offset, event)
            if needs.late is not None:
                before, at_once = window.image(), window.copy()
                apply(at_once, offset, event, History(texts=KnownEvents(log[:i])))
                after, read = read_one_by_one(needs.late, log[:i])
                assert window.image() == before
                outcome = apply(window, offset, event, History(after))
                assert outcome.status is Status.APPLIED
                assert window.image() == at_once.image(), f"seed {seed}, offset {offset}"
                assert window.rendered_digest(lambda _: []) == at_once.rendered_digest(lambda _: [])
                summaries, reads = summaries + 1, reads + read
            elif needs.status is Status.NEEDS_HISTORY:
                apply_with_log(window, offset, event, log[:i])
    assert summaries > 20
    assert reads > 2 * summaries
