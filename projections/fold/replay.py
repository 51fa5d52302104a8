"""Folding a whole conversation from its events: the same fold as live, driven from a list.

Used wherever the events are at hand: verify, rollbacks into summarised history, readers that fold
without writing, and the tests.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from projections.events import types as events
from projections.events.types import AnyEvent
from projections.fold.apply import History, Outcome, Status, apply
from projections.fold.rollback import take_out
from projections.names import Key, parse_position
from projections.policy.policy import Rules
from projections.window.window import Window

Logged = tuple[int, AnyEvent]
"""An event with its offset."""


def replay(key: Key, partition: int, rules: Rules, log: Sequence[Logged]) -> Window:
    """Fold a conversation's events, in order and from the first, into a new window."""
    return _replay(key, partition, rules, log, frozenset())[0]


def _replay(
    key: Key, partition: int, rules: Rules, log: Sequence[Logged], wanted: frozenset[int]
) -> tuple[Window, dict[int, tuple[Window, Outcome]]]:
    """Fold ``log`` once; returns the window and copies of it as it stood after each ``wanted``
    offset, with that event's outcome.

    Rollbacks within the log find the fold at their targets among such copies: replaying for each of
    them anew, and within that for those before it, would take time exponential in their number.
    """
    targets = _possible_targets(partition, log) | wanted
    window = Window(key, partition, rules)
    copies: dict[int, tuple[Window, Outcome]] = {}
    by_offset: dict[int, AnyEvent] = {}
    for i, (offset, event) in enumerate(log):
        outcome = apply(window, offset, event)
        if outcome.status is Status.NEEDS_HISTORY:
            history = History(texts=by_offset)
            if outcome.target is not None:
                history = _history(window, outcome.target, log[:i], copies.get(outcome.target))
            outcome = apply(window, offset, event, history)
        by_offset[offset] = event
        if offset in targets:
            copies[offset] = (window.copy(), outcome)
    return window, copies


def _possible_targets(partition: int, log: Sequence[Logged]) -> frozenset[int]:
    """The offsets that a rollback of the log may name, by position or by id."""
    named = {event.data.to for _, event in log if isinstance(event, events.RollbackEvent)}
    by_id = {offset for offset, event in log if event.id in named} if named else set()
    prefix = f"{partition}-"
    return frozenset(
        by_id
        | {
            int(to[len(prefix) :])
            for to in named
            if to.startswith(prefix) and to[len(prefix) :].isdecimal()
        }
    )


def apply_with_log(
    window: Window, offset: int, event: AnyEvent, earlier: Sequence[Logged]
) -> Outcome:
    """Fold one event; ``earlier`` are all the conversation's events before it, should a rollback
    need them.
    """
    outcome = apply(window, offset, event)
    if outcome.status is Status.NEEDS_HISTORY:
        history = (
            History(texts=dict(earlier))
            if outcome.target is None
            else history_from(window, outcome.target, earlier)
        )
        outcome = apply(window, offset, event, history)
    return outcome


def history_from(window: Window, target: int, earlier: Sequence[Logged]) -> History:
    """The history a rollback to ``target`` needs, from all the conversation's events before the
    rollback.
    """
    until = [item for item in earlier if item[0] <= target]
    if not until or until[-1][0] != target:
        return History()
    _, copies = _replay(window.key, window.partition, window.rules, until, frozenset({target}))
    return _history(window, target, earlier, copies[target])


def _history(
    window: Window, target: int, earlier: Sequence[Logged], found: tuple[Window, Outcome] | None
) -> History:
    """The history from the fold as it stood after the target (None: the target is no event of the
    conversation).
    """
    if found is None:
        return History()
    restored, outcome = found[0].copy(), found[1]
    by_offset = dict(earlier)
    if outcome.status is Status.DUPLICATE:
        # A repeat is no event of its own; a reader that goes by the tail's and spans' positions
        # does not even find it.
        return History()
    for offset, event in earlier:
        # What an operator took out since then stays out.
        if offset > target and isinstance(event, events.EventDroppedEvent):
            take_out(restored, event.data.position)
    return History(restored, summary_chain(window, by_offset, target), by_offset)


def summary_chain(
    window: Window, by_offset: Mapping[int, AnyEvent], target: int
) -> list[tuple[int, events.SummaryEvent]]:
    """The accepted summaries from the one in force backwards, down to the first that was accepted
    by ``target``.

    Not only to the first whose span ends by then: its predecessor may have come after the target,
    too, and it holds only together with it.
    """
    chain: list[tuple[int, events.SummaryEvent]] = []
    in_force = window.meta.summary
    offset = None if in_force is None else in_force.offset
    while offset is not None:
        event = by_offset.get(offset)
        if not isinstance(event, events.SummaryEvent):
            break
        chain.append((offset, event))
        if offset <= target:
            break
        previous = event.data.previous_position
        offset = None if previous is None else parse_position(previous).offset
    return chain
