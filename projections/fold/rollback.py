"""Rollbacks: going back to where an event stood, within the window or, with the log's help, before
it; and taking a single event out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from projections.errors import InvalidPosition
from projections.events import types as events
from projections.events.token_cost import trusted_tokens
from projections.fold.known_events import KnownEvents
from projections.fold.outcomes import History, Outcome, Status, Taught, id_hash_of
from projections.fold.summary_acceptance import results_apart, why_not
from projections.fold.summary_effects import Acceptance, active_summary
from projections.fold.undone_cuts import made_since, replace_entries, undone
from projections.names import parse_position
from projections.reducers.enforce_limits import narrow_due
from projections.window.entry import RANGES, RENDERED, Entry, Kind
from projections.window.groups import group_tail
from projections.window.log_ranges import abandoned_range, abandoned_since
from projections.window.meta import ActiveSummary
from projections.window.window import Window


def roll_back(
    window: Window, offset: int, event: events.RollbackEvent, history: History | None
) -> Outcome | str | None:
    """Fold a rollback: go back within the window, or with the history where that is not enough."""
    target = _resolve(window, event.data.to)
    if target is None or target >= offset:
        return "it names no event of this conversation"
    at = _index_at(window, target)
    if at is not None:
        late = made_since(window, target, -1)
        late = tuple(o for o in late if o <= target)
        if late and history is None:
            return Outcome(Status.NEEDS_HISTORY, offset, texts=late, since=target)
        whole = undone(window, late, target, (history or History()).texts)
        _go_back(window, offset, target, at, whole)
        taught = _taught(window, target)
        return None if taught is None else Outcome(Status.APPLIED, offset, taught=taught)
    if history is None:
        return Outcome(Status.NEEDS_HISTORY, offset, target=target)
    if history.window is None:
        return "it names no event of this conversation"
    return _restore(window, offset, target, history)


def _go_back(window: Window, offset: int, target: int, at: int, whole: Mapping[int, Entry]) -> None:
    """Drop what stands behind the target in the tail, and undo the cuts made since: what each cut
    did follows from what was before it. ``whole`` are the entries without them.
    """
    # Whole results that came before their calls part from those calls that are dropped, too.
    replace_entries(window, whole)
    gone = window.detach(at + 1, target)
    window.end_rollback(offset, target, abandoned_range(gone, offset))
    narrow_due(window, target)


def _resolve(window: Window, to: str) -> int | None:
    """A rollback's target: a position of this partition, or the id of a recent event."""
    try:
        position = parse_position(to)
    except InvalidPosition:
        seen = window.recent_ids.find(id_hash_of(to))
        return None if seen is None else seen.offset
    return position.offset if position.partition == window.partition else None


def _index_at(window: Window, target: int) -> int | None:
    """Where in the tail the target stands, or None when only the log can tell: also where a summary
    that came later has taken the last message before it, or a call that may have waited there. A
    message at the end of its span that the window still has was kept by it.
    """
    reached = window.covered_to
    at = next(
        (
            i
            for i, entry in enumerate(window.tail)
            if entry.offset == target and entry.kind not in RANGES and target > reached
        ),
        None,
    )
    summary = window.meta.summary
    if at is None or summary is None or summary.offset <= target:
        return at
    if summary.waited is not None and summary.waited > target:
        return None
    said = (entry.offset for entry in window.tail[: at + 1] if entry.kind in RENDERED)
    return at if any(offset >= reached for offset in said) else None


def _restore(window: Window, offset: int, target: int, history: History) -> Outcome:
    """Take tail, state and summary from the fold at the target; ids, count and digest of this
    window go on.
    """
    restored = history.window
    if restored is None:
        raise ValueError("a rollback beyond the window needs its history")
    new = restored.meta.summary
    gone = abandoned_since(window.recent_ids, target, offset)
    lost, gained = _parted(window, window.meta.summary, new, history.texts)
    again = {summary.summary_id for summary in gained}
    voided = tuple(one.summary_id for one in lost if one.summary_id not in again)
    before = {summary.summary_id for summary in lost}
    # Oldest first, as they were announced the first time.
    accepted = tuple(one for one in reversed(gained) if one.summary_id not in before)
    closes = _closes_again(window, restored)
    window.restore(restored, offset, gone)
    return Outcome(
        Status.APPLIED,
        offset,
        accepted=accepted,
        voided=voided,
        taught=_taught(window, target),
        closes=closes,
    )


def regained(window: Window, history: History) -> list[int]:
    """Where the summaries stand that a rollback with this history puts in force again."""
    if history.window is None:
        return []
    its = history.window.meta.summary
    return [one.offset for one in _parted(window, window.meta.summary, its, history.texts)[1]]


class LaterSummaries:
    """Takes summaries that were in force at the rollback and not at its target, and are of nothing
    but what was before the last group up to there, into the fold up to there: what is to be
    answered stays verbatim, and so do calls that wait there. Where the last group waits itself,
    they may go beyond it.

    Args:
        chain: accepted summaries, newest first (``projections.fold.replay.summary_chain``).
    """

    def __init__(
        self, restored: Window, chain: Sequence[tuple[int, events.SummaryEvent]], target: int
    ) -> None:
        self.window = restored
        self._rest = list(chain)
        shown = [group for group in group_tail(restored.tail) if group.messages()]
        self._target = target
        self._stays: list[int] = []
        if shown and not shown[-1].waits(restored.state.waiting()):
            self._stays = [entry.offset for entry in shown[-1].entries]
        self._acceptance: Acceptance | None = None

    def go_on(self, texts: KnownEvents) -> Window:
        """The window with all of them; raises ``NotRead`` as ``Acceptance.go_on``."""
        while self._rest:
            self._acceptance = self._acceptance or self._acceptance_of(*self._rest[-1])
            if self._acceptance is not None:
                self._acceptance.go_on(texts)
            self._acceptance = None
            self._rest.pop()
        return self.window

    def _acceptance_of(self, at: int, event: events.SummaryEvent) -> Acceptance | None:
        data = event.data
        tokens = trusted_tokens(data, event.tokens, self.window.policy.encoding)
        # A result that it says is of no call need not stay with the last group's, and what it
        # keeps stays anyway.
        apart = results_apart(self.window, data) | set(events.absolute(data.span.kept))
        end = min((at for at in self._stays if at not in apart), default=self._target + 1)
        fits = parse_position(data.span.to).offset < end
        if fits and why_not(self.window, data, restoring=True) is None:
            return Acceptance(self.window, at, data, tokens)
        return None


def _closes_again(window: Window, restored: Window) -> tuple[int, ...]:
    """Where sessions were closed of a branch that was abandoned until now."""
    stood = {entry.offset for entry in window.tail if entry.kind == Kind.CLOSED}
    return tuple(
        entry.offset
        for entry in restored.tail
        if entry.kind == Kind.CLOSED
        and entry.offset > window.covered_to
        and entry.offset not in stood
    )


def _taught(window: Window, target: int) -> Taught | None:
    """The news for those whose memory the log has taught: its records follow from its rollbacks."""
    users = window.meta.memory_users
    return None if users is None else Taught(users, to=target)


def _parted(
    window: Window,
    mine: ActiveSummary | None,
    its: ActiveSummary | None,
    texts: KnownEvents,
) -> tuple[list[ActiveSummary], list[ActiveSummary]]:
    """The summaries of two chains back to the one on which both stand, newest first, as far as
    their events are known.
    """
    lost: list[ActiveSummary] = []
    gained: list[ActiveSummary] = []
    while (mine is None or its is None or mine.offset != its.offset) and (mine or its):
        if its is None or (mine is not None and mine.offset > its.offset):
            assert mine is not None
            lost.append(mine)
            mine = _before(window, mine, texts)
        else:
            gained.append(its)
            its = _before(window, its, texts)
    return lost, gained


def _before(window: Window, summary: ActiveSummary, texts: KnownEvents) -> ActiveSummary | None:
    offset = summary.previous_offset
    event = None if offset is None else texts.get(offset)
    if offset is None or not isinstance(event, events.SummaryEvent):
        return None
    tokens = trusted_tokens(event.data, event.tokens, window.policy.encoding)
    return active_summary(window, event.data, offset, tokens)


def take_out(window: Window, position: str) -> int | None:
    """Take the event at a position (or of a recent id) out of the tail and the state before it;
    nothing happens where it is in neither. Returns its offset, None where it is of another log.

    Text that a summary was made of stays in the summary.
    """
    target = _resolve(window, position)
    if target is None:
        return None
    window.unlink_early(-1, only=target)
    for i, entry in enumerate(window.tail):
        out = _without(entry, target)
        if out is not None:
            window.replace_tail([*window.tail[:i], out, *window.tail[i + 1 :]])
            break
    window.drop_from_base(target)
    return target


def _without(entry: Entry, target: int) -> Entry | None:
    """What stands in the entry's place without the event at ``target``, None where that is not in
    it.
    """
    if entry.kind not in RANGES:
        return Entry(target, Kind.NOTE) if entry.offset == target else None
    gone = events.absolute(entry.gone or [])
    known = entry.offsets()
    inside = entry.start <= target <= entry.offset if known is None else target in known
    if entry.kind != Kind.HELD or target in gone or not inside:
        return None
    # Nobody summarises it from the log.
    return msgspec.structs.replace(entry, gone=events.delta(sorted([*gone, target])))
