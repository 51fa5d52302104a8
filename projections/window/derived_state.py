"""What follows from a window's stored parts: derived by stepping the state over the tail."""

from __future__ import annotations

from projections.names import Key, Position
from projections.policy.policy import Policy, Rules
from projections.policy.thresholds import Limits
from projections.window.conversation_state import step, step_message
from projections.window.entry import RENDERED, Entry, Kind
from projections.window.tail import Tail


class DerivedState(Tail):
    """``state``, ``policy`` and ``limits`` as they stand after the tail, the statistics of the
    tail, and ``usage_excess``: by how much the model's own count of the last call exceeded ours.
    """

    __slots__ = ("key", "limits", "partition", "policy", "rules", "usage_excess")

    key: Key
    partition: int
    rules: Rules
    usage_excess: int

    @property
    def summary_tokens(self) -> int:
        """Tokens of the active summary, 0 without one."""
        return self.meta.summary.tokens if self.meta.summary else 0

    @property
    def covered_to(self) -> int:
        """The last offset that the active summary covers, -1 without one: entries up to there are
        kept ones.
        """
        return self.meta.summary.to if self.meta.summary else -1

    def position_of(self, offset: int) -> str:
        """The position string of an offset in this conversation's partition."""
        return str(Position(self.partition, offset))

    def derive(self) -> None:
        """Recompute state and statistics from the stored parts."""
        self._to_base()
        for entry in self.tail:
            self._step(entry)

    def _to_base(self) -> None:
        """State and statistics as they stand before the tail."""
        self.state = self.meta.base.copy()
        self.usage_excess = 0
        self._answered: set[tuple[int, int]] = set()
        self._zero()
        self._refresh()

    def _refresh(self) -> None:
        """Policy and limits anew: something that they follow from has changed."""
        self._trial = None
        self.policy: Policy = self.rules.for_window(self.key.tenant, self.state.policy)
        self.limits = Limits.of(
            self.policy, self.state.pinned_tokens, self.summary_tokens, self.usage_excess
        )
        self._unsettled.follow(self.policy)

    def _step(self, entry: Entry) -> None:
        kind = entry.kind
        if kind in RENDERED:
            if entry.offset > self.covered_to:
                step_message(self.state, entry)
                if entry.calls and self._answered:
                    self.state.calls = [
                        c for c in self.state.calls if (c.offset, c.index) not in self._answered
                    ]
            if entry.link is not None and entry.link[0] > entry.offset:
                self._answered.add(entry.link)
            self._count(entry)
            if entry.usage_excess is not None:
                # What a model reported counts until a summary changes what the next one is sent.
                summary = self.meta.summary
                if summary is None or entry.offset > summary.offset:
                    self.usage_excess = entry.usage_excess
                    self._refresh()
        elif kind != Kind.NOTE:
            step(self.state, entry, self.policy)
            self._count(entry)
            if kind in (Kind.SYSTEM, Kind.OPENED):
                self._refresh()
