"""The window: everything a model's context is rendered from, bounded, and the forms it is stored and compared in.

A window *is* its meta (the lanes as they stood before the tail, the summary in force, counters), its tail and its recent ids; all else is
*derived* by stepping the lanes over the tail. The fold that moves a window is in ``projections.fold``, how one is stored in
``projections.layout``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Struct

from projections.due import Due, calls_for_compaction, due_span
from projections.events import delta
from projections.lanes import RENDERED, Entry, Kind, Lanes, clip, entry_offsets, step, step_message
from projections.limits import Limits
from projections.names import Key, Position
from projections.openai import has_attachments
from projections.policy import Policy, Rules
from projections.recents import Recents

VERSION = 1
MAX_ENTRIES = 4_096
MAX_TAIL_BYTES = 16 << 20
MAX_HELD_POSITIONS = 2_048


class InForce(Struct, array_like=True):
    """The accepted summary a window stands on. ``offset`` is the summary event's own, ``to`` the last one it covers."""

    summary_id: str
    offset: int
    text: str
    tokens: int
    to: int
    trust: str
    previous: str | None = None
    previous_offset: int | None = None


class Meta(Struct, array_like=True):
    """The part of a window that is neither tail nor recent ids. Its size does not depend on the conversation's length."""

    version: int = VERSION
    position: int = -1
    count: int = 0
    digest: bytes = bytes(32)
    base: Lanes = msgspec.field(default_factory=Lanes)
    summary: InForce | None = None
    rollback: int | None = None
    due: Due | None = None
    unknown: int = 0
    duplicates: int = 0
    skipped: int = 0
    erased: bool = False


_meta_encoder = msgspec.msgpack.Encoder()
_meta_decoder = msgspec.msgpack.Decoder(Meta)
_entry_decoder = msgspec.msgpack.Decoder(Entry)
encode_entry = msgspec.msgpack.Encoder().encode
"""Encode one tail entry, for an image or a snapshot."""


@dataclass(slots=True)
class Hashed:
    """A hash of rendered messages that can go on: what it is of, up to which running number, and whether there is any message in it."""

    of: tuple[int, int, int]
    sha: Any
    end: int
    any: bool


class Window:
    """One conversation's window, owned and mutated by whoever folds it.

    ``tail`` is in log order. What changed is told to a store by ``start``, the running number of ``tail[0]`` (it grows as the head is
    dropped), ``epoch``, which grows whenever entries already in the tail were replaced, and ``base_epoch``, whenever the lanes before the
    tail or the summary in force did.

    Derived: ``lanes``, ``policy`` and ``limits`` as they stand after the tail, sums over it, and ``flat``: whether its rendered bodies,
    joined in their order, are a valid conversation (``awaited`` results of its last group are still to come).
    """

    __slots__ = (
        "_group",
        "_next",
        "awaited",
        "base_epoch",
        "epoch",
        "flat",
        "hashed",
        "held_tokens",
        "key",
        "lanes",
        "limits",
        "meta",
        "partition",
        "policy",
        "recents",
        "rules",
        "start",
        "tail",
        "tail_bytes",
        "tail_messages",
        "tail_pinned",
        "tail_pinned_tokens",
        "tail_tokens",
    )

    def __init__(
        self,
        key: Key,
        partition: int,
        rules: Rules,
        meta: Meta | None = None,
        tail: list[Entry] | None = None,
        recents: Recents | None = None,
    ) -> None:
        self.key = key
        self.partition = partition
        self.rules = rules
        self.meta = Meta() if meta is None else meta
        self.tail: list[Entry] = [] if tail is None else tail
        self.recents = Recents() if recents is None else recents
        self.start = 0
        self.epoch = 0
        self.base_epoch = 0
        self.hashed: Hashed | None = None
        self.derive()

    # -- what follows from the stored parts ---------------------------------------------------------------------------------

    @property
    def summary_tokens(self) -> int:
        """Tokens of the summary in force, 0 without one."""
        return self.meta.summary.tokens if self.meta.summary else 0

    def position_of(self, offset: int) -> str:
        """The position string of an offset in this conversation's partition."""
        return str(Position(self.partition, offset))

    def derive(self) -> None:
        """Recompute lanes and sums from the stored parts."""
        self._to_base()
        for entry in self.tail:
            self._step(entry)

    def refold(self) -> None:
        """Derive anew and mark again: the due flag is set at the first entry of the tail that calls for compaction.

        Used when the tail lost or replaced entries, so that it makes no difference when that happened.
        """
        self.meta.due = None
        self.base_epoch += 1
        self._to_base()
        for i, entry in enumerate(self.tail):
            self._step(entry)
            if self.tail_tokens + self.held_tokens > self.limits.mark:
                self._mark(i + 1)

    def _to_base(self) -> None:
        """Lanes and sums as they stand before the tail."""
        self.lanes = self.meta.base.copy()
        self.tail_tokens = self.held_tokens = self.tail_messages = self.tail_bytes = 0
        self.tail_pinned = self.tail_pinned_tokens = 0
        self.flat = not any(has_attachments(item.body) for item in self.lanes.pinned)
        self.awaited, self._group, self._next = 0, -1, 0
        self._refresh()

    def _refresh(self) -> None:
        """Policy and limits anew: something that they follow from has changed."""
        self.policy: Policy = self.rules.for_conversation(self.key.tenant, self.lanes.policy)
        self.limits = Limits.of(self.policy, self.lanes.pinned_tokens, self.summary_tokens)

    def _mark(self, n: int) -> None:
        """Set the due flag when the first ``n`` entries, with the sums and lanes as they stand after them, call for compaction."""
        if self.meta.due is None and calls_for_compaction(
            self.lanes,
            self.policy,
            tokens=self.tail_tokens + self.held_tokens,
            messages=self.tail_messages,
            summary_tokens=self.summary_tokens,
        ):
            self.meta.due = due_span(self.tail if n == len(self.tail) else self.tail[:n], self.lanes, self.policy)

    def _step(self, entry: Entry) -> None:
        kind = entry.kind
        if kind in RENDERED:
            step_message(self.lanes, entry)
            self.tail_bytes += len(entry.body)
            self.tail_tokens += entry.tokens
            self.tail_messages += 1
            if self.flat:
                self._follow(entry)
        elif kind != Kind.NOTE:
            self._step_other(entry)

    def _step_other(self, entry: Entry) -> None:
        step(self.lanes, entry, self.policy)
        self.tail_bytes += len(entry.body)
        if entry.kind == Kind.HELD:
            self.held_tokens += entry.tokens
            self.tail_messages += entry.count
            self.flat = self.flat and not entry.tokens
        elif entry.kind == Kind.SYSTEM:
            self.tail_pinned += 1
            self.tail_pinned_tokens += entry.tokens
            # What alone is too long is cut: its tokens may be the same after that, its text is not.
            self.flat = self.flat and not has_attachments(entry.body) and self.lanes.pinned[-1].body == entry.body
            self._refresh()
        elif entry.kind == Kind.OPENED:
            self._refresh()

    def _follow(self, entry: Entry) -> None:
        """See whether the tail is still flat: results stand right after their calls, in order, and nothing is to be replaced."""
        if entry.kind == Kind.RESULT:
            if not self.awaited or entry.link != (self._group, self._next):
                self.flat = False
                return
            self.awaited -= 1
            self._next += 1
        elif self.awaited:
            self.flat = False
            return
        elif entry.calls:
            self.awaited, self._group, self._next = len(entry.calls), entry.offset, 0
        if entry.kind != Kind.USER and has_attachments(entry.body):
            self.flat = False

    # -- changes the fold makes ---------------------------------------------------------------------------------------------

    def push(self, entry: Entry) -> None:
        """Put an entry at the end of the tail, mark compaction as due when it is, and keep the tail bounded."""
        if entry.tokens > self.limits.ceiling and entry.kind in RENDERED:
            entry.room = self.limits.ceiling
            entry.tokens, entry.body = clip(entry.body, entry.tokens, entry.room)
        tail = self.tail
        tail.append(entry)
        self._step(entry)
        if self.meta.due is None and self.tail_tokens + self.held_tokens > self.limits.mark:
            self._mark(len(tail))
        if self.tail_tokens > self.limits.hold or len(tail) > MAX_ENTRIES or self.tail_bytes > MAX_TAIL_BYTES:
            self._hold_oldest()

    def push_text(self, entry: Entry) -> None:
        """What :meth:`push` does, for a user's or an assistant's message of nothing but text."""
        ceiling, _, hold, mark = self.limits
        if entry.tokens > ceiling:
            self.push(entry)
            return
        lanes, tail = self.lanes, self.tail
        tail.append(entry)
        lanes.closed = None
        lanes.last_message = entry.offset
        if entry.kind == Kind.USER:
            lanes.turn_ended = False
            for call in lanes.calls:
                call.dead = True
        self.tail_bytes += len(entry.body)
        self.tail_tokens = tokens = self.tail_tokens + entry.tokens
        self.tail_messages += 1
        if self.awaited:
            self.flat = False
        if tokens + self.held_tokens > mark and self.meta.due is None:
            self._mark(len(tail))
        if tokens > hold or len(tail) > MAX_ENTRIES or self.tail_bytes > MAX_TAIL_BYTES:
            self._hold_oldest()

    def drop_head(self, n: int) -> None:
        """Take the first ``n`` entries out of the tail; the lanes before the tail move past them."""
        base = self.meta.base
        self.base_epoch += 1
        for entry in self.tail[:n]:
            step(base, entry, self.rules.for_conversation(self.key.tenant, base.policy))
        if n:
            # A call that left the tail can no longer be shown with its result, and must not take a reused id's result away.
            base.calls = []
            last = self.tail[n - 1].offset
            self.lanes.calls = [call for call in self.lanes.calls if call.offset > last]
        del self.tail[:n]
        self.start += n

    def replace_tail(self, tail: list[Entry]) -> None:
        """Put another tail in place of this one and fold its marks again."""
        self.tail = tail
        self.epoch += 1
        self.refold()

    def _hold_oldest(self) -> None:
        """Past twice the budget (or too many entries or bytes) the oldest entries are held as a range of the log only."""
        limit = self.limits.hold
        if len(self.tail) < 2:
            return
        tokens, size, n = self.tail_tokens, self.tail_bytes, 0
        # Down to three quarters, so that this is done once in a while and not with every event.
        while n < len(self.tail) - 1 and (
            tokens > limit * 3 // 4 or len(self.tail) - n > MAX_ENTRIES * 3 // 4 or size > MAX_TAIL_BYTES * 3 // 4
        ):
            tokens -= self.tail[n].tokens if self.tail[n].kind in RENDERED else 0
            size -= len(self.tail[n].body)
            n += 1
        gone = self.tail[:n]
        self.drop_head(n)
        self.tail.insert(0, held_range(gone))
        self.start -= 1
        self.epoch += 1
        self.derive()

    # -- forms --------------------------------------------------------------------------------------------------------------

    def encode_meta(self) -> bytes:
        """The meta, for an image or a snapshot."""
        return _meta_encoder.encode(self.meta)

    def image(self) -> bytes:
        """The whole window as bytes: two windows are the same exactly when their images are."""
        return msgspec.msgpack.encode((self.encode_meta(), [encode_entry(e) for e in self.tail], self.recents.packed()))


def load_window(key: Key, partition: int, rules: Rules, meta: bytes, tail: list[bytes], recents: bytes) -> Window:
    """Build a window from the parts of its image; raises :class:`msgspec.DecodeError` when they are not what was stored."""
    decoded = _meta_decoder.decode(meta)
    ids = Recents(recents, decoded.count + decoded.skipped)
    return Window(key, partition, rules, decoded, [_entry_decoder.decode(e) for e in tail], ids)


def held_range(entries: list[Entry]) -> Entry:
    """One range in place of several entries; positions stay known up to a bound, tokens count what is live in it."""
    return _range(Kind.HELD, entries, sum(e.tokens for e in entries if e.kind in RENDERED or e.kind == Kind.HELD))


def abandoned_range(entries: list[Entry], last: int) -> Entry:
    """The range a rollback at offset ``last`` abandoned (the rollback itself included)."""
    return _range(Kind.ABANDONED, [*entries, Entry(last, Kind.NOTE)], 0)


def _range(kind: Kind, entries: list[Entry], tokens: int) -> Entry:
    offsets: list[int] | None = []
    for entry in entries:
        known = entry_offsets(entry)
        offsets = offsets + known if offsets is not None and known is not None else None
    count = sum(e.count for e in entries)
    if offsets is not None and len(offsets) > MAX_HELD_POSITIONS:
        offsets = None
    positions = None if offsets is None else delta(offsets)
    return Entry(entries[-1].offset, kind, tokens, first=entries[0].start, count=count, positions=positions)
