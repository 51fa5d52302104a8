"""How far a window is in its log: position, counts, digest and recent ids, turns, quarantine."""

from __future__ import annotations

from hashlib import sha256

from projections.window.meta import Meta, Quarantine
from projections.window.recent_ids import RecentIds
from projections.window.turns import Turns

MAX_WAITING = 500
"""Offsets of waiting events that a window carries; those of more are looked for in the log."""
MAX_CAUSE = 300


class LogProgress:
    """What every event of the log writes to a window, whatever its type."""

    __slots__ = ("meta", "recent_ids")

    meta: Meta
    recent_ids: RecentIds

    def advance(self, offset: int) -> None:
        """Note that the log was read up to ``offset``."""
        self.meta.position = offset

    def count_event(self, offset: int, id_hash: bytes, visible: bool = True) -> None:
        """Count an applied event; ``visible``: later conditions see that it came."""
        meta = self.meta
        if visible:
            meta.last = offset
        meta.count += 1
        meta.digest = sha256(meta.digest + id_hash).digest()
        meta.position = offset
        self.recent_ids.add(id_hash, offset)

    def count_repeat(self, offset: int) -> None:
        """Count a repeat of a recent id: nothing else changes."""
        self.meta.duplicates += 1
        self.meta.position = offset

    def count_rejected(self, offset: int, id_hash: bytes) -> None:
        """Count an event that the fold skips; its id is known from now on."""
        self.meta.skipped += 1
        self.meta.position = offset
        self.recent_ids.add(id_hash, offset, rejected=True)

    def count_unknown(self) -> None:
        """Count an event of a type or version that this release does not know."""
        self.meta.unknown += 1

    def set_turns(self, turns: Turns | None) -> None:
        """Put other turns in force; None: there are none."""
        self.meta.turns = turns

    def teach(self, user: str) -> None:
        """Note that this log has taught the memory of a user (``projections.names.user_tag``)."""
        known = self.meta.memory_users or ()
        if user not in known:
            self.meta.memory_users = (*known, user)

    def quarantine(self, offset: int, cause: str) -> None:
        """Stop before the event at ``offset``, on which the fold failed."""
        self.meta.quarantine = Quarantine(offset, cause[:MAX_CAUSE], last=offset)

    def add_waiting(self, offset: int) -> None:
        """Note that the event at ``offset`` waits behind the one that is quarantined."""
        quarantine = self.meta.quarantine
        if quarantine is None:
            raise ValueError("it is not quarantined: nothing waits in it")
        if len(quarantine.waiting) < MAX_WAITING:
            quarantine.waiting.append(offset - sum(quarantine.waiting))
        quarantine.count += 1
        quarantine.last = offset

    def release(self) -> None:
        """Lift the quarantine: events are folded again."""
        self.meta.quarantine = None
