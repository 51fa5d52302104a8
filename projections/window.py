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

from projections.clipping import clip
from projections.cuts import MAX_TAIL_BYTES, settle, shorten
from projections.due import Due
from projections.events import absolute, delta
from projections.forms import Shaper, reducer_of, result_text
from projections.lanes import AT_ONCE, EARLY, RANGES, RENDERED, Entry, Kind, Lanes, PinnedResult, entry_offsets, pin, step, step_message
from projections.limits import Limits
from projections.names import Key, Position
from projections.openai import has_attachments
from projections.policy import Policy, Rules
from projections.providers import call_ids
from projections.recents import Recents
from projections.reducers import LEFT_OUT

VERSION = 2
MAX_ENTRIES = 4_096
MAX_HIDDEN = 384
"""Entries in front of the tail that say nothing any more, before they are held as one range."""
MAX_HELD_POSITIONS = 4_096


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

    ``tail`` is in log order, but for what a summary went around: such *kept* entries stand at its front, and their offsets are before the
    summary's end. What changed is told to a store by ``start``, the running number of ``tail[0]`` (it grows as the head is dropped),
    ``epoch``, which grows whenever entries already in the tail were replaced, and ``base_epoch``, whenever the lanes before the tail or the
    summary in force did.

    Derived: ``lanes``, ``policy`` and ``limits`` as they stand after the tail, sums over it (``gains``: for each reducer the messages and
    tokens it saves), and ``flat``: whether its rendered bodies, joined in their order, are a valid conversation (``awaited`` results of its
    last group are still to come).
    """

    __slots__ = (
        "_answered",
        "_early",
        "_group",
        "_hidden",
        "_next",
        "awaited",
        "base_epoch",
        "beyond",
        "epoch",
        "flat",
        "gains",
        "hashed",
        "held_tokens",
        "key",
        "lanes",
        "left_out",
        "limits",
        "meta",
        "partition",
        "policy",
        "recents",
        "results",
        "rules",
        "shown_messages",
        "shown_turns",
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

    @property
    def covered_to(self) -> int:
        """The last offset that the summary in force reaches, -1 without one: entries up to there are kept ones."""
        return self.meta.summary.to if self.meta.summary else -1

    def position_of(self, offset: int) -> str:
        """The position string of an offset in this conversation's partition."""
        return str(Position(self.partition, offset))

    def shaper(self) -> Shaper:
        """What makes the forms of this window's entries."""
        return Shaper(self.position_of, self.policy.encoding, self.rules.callables)

    def derive(self) -> None:
        """Recompute lanes and sums from the stored parts."""
        self._to_base()
        for entry in self.tail:
            self._step(entry)

    def refold(self, marked: int) -> None:
        """Derive anew and cut again: the tail is gone through as if its entries came only now.

        Used when a summary takes the tail's front, so that it makes no difference when that happened. As that is a cut, too, tool results
        are shortened: among the entries up to ``marked``, at which the summary was found to be due.
        """
        self.meta.due = None
        self.base_epoch += 1
        self._to_base()
        self.unlink_early(-1)
        for i, entry in enumerate(self.tail):
            if entry.calls and self._early:
                self._adopt(entry)
            self._step(entry)
            if entry.offset <= marked and (i + 1 == len(self.tail) or self.tail[i + 1].offset > marked):
                shorten(self, i + 1)
            settle(self, i + 1)

    def changed(self, n: int, anything: bool) -> None:
        """Note that entries among the first ``n`` were shortened: sums are taken anew over these (and no others)."""
        if anything:
            self.epoch += 1
            self._zero()
            for entry in self.tail[:n]:
                self._count(entry)

    def _to_base(self) -> None:
        """Lanes and sums as they stand before the tail."""
        self.lanes = self.meta.base.copy()
        self.beyond = 0
        self._answered: set[tuple[int, int]] = set()
        self._zero()
        self._refresh()

    def _zero(self) -> None:
        self.tail_tokens = self.held_tokens = self.tail_messages = self.tail_bytes = 0
        self.tail_pinned = self.tail_pinned_tokens = 0
        self.shown_messages = self.shown_turns = self.results = self.left_out = 0
        self._hidden = self._early = 0
        self.gains: dict[str, list[int]] = {}
        self.flat = not any(has_attachments(item.body) for item in self.meta.base.pinned)
        self.awaited, self._group, self._next = 0, -1, 0

    def _refresh(self) -> None:
        """Policy and limits anew: something that they follow from has changed."""
        self.policy: Policy = self.rules.for_conversation(self.key.tenant, self.lanes.policy)
        self.limits = Limits.of(self.policy, self.lanes.pinned_tokens, self.summary_tokens, self.beyond)

    def _step(self, entry: Entry) -> None:
        kind = entry.kind
        if kind in RENDERED:
            if entry.offset > self.covered_to:
                step_message(self.lanes, entry)
                if entry.link is not None and entry.link[0] > entry.offset:
                    self._answered.add(entry.link)
                elif entry.calls and self._answered:
                    self.lanes.calls = [c for c in self.lanes.calls if (c.offset, c.index) not in self._answered]
            self._count(entry)
            if entry.beyond is not None:
                self._report(entry)
        elif kind != Kind.NOTE:
            step(self.lanes, entry, self.policy)
            self._count(entry)
            if kind in (Kind.SYSTEM, Kind.OPENED):
                self._refresh()

    def _report(self, entry: Entry) -> None:
        """What a model reported counts until a summary changes what the next one is sent."""
        summary = self.meta.summary
        if summary is None or entry.offset > summary.offset:
            self.beyond = entry.beyond or 0
            self._refresh()

    def _count(self, entry: Entry) -> None:
        """Take an entry into the sums."""
        kind = entry.kind
        self.tail_bytes += len(entry.body)
        if entry.forms:
            self._gain(entry)
        if kind in RENDERED:
            self.tail_tokens += entry.tokens
            self.tail_messages += 1
            if entry.forms and entry.out:
                return
            if kind == Kind.RESULT:
                self.results += 1
                self._early += entry.link == EARLY
            else:
                self.shown_messages += 1 + len(entry.calls or ())
                self.shown_turns += kind == Kind.USER
            if self.flat:
                self._follow(entry)
        elif kind == Kind.HELD:
            self.held_tokens += entry.tokens
            self.tail_messages += entry.count
            self.flat = self.flat and not entry.tokens
        elif kind == Kind.SYSTEM:
            self.tail_pinned += 1
            self.tail_pinned_tokens += entry.tokens
            # What alone is too long is cut: its tokens may be the same after that, its text is not.
            whole = any(item.offset == entry.offset and item.body == entry.body for item in self.lanes.pinned)
            self.flat = self.flat and whole and not has_attachments(entry.body)

    def _gain(self, entry: Entry) -> None:
        """Note what an entry's forms save, and what follows from them."""
        before = entry.full
        for _, form, tokens in entry.forms:
            name, out = reducer_of(form), form.startswith("out:")
            gain = self.gains.setdefault(name, [0, 0])
            gain[0] += entry.count if out else 0
            gain[1] += before - tokens
            before = tokens
        if entry.kind == Kind.HELD:
            return
        if entry.out:
            self._hidden += 1
            if entry.form == f"out:{LEFT_OUT}":
                self.left_out += 1
                self.held_tokens += entry.full
                self.flat = False

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
        elif entry.calls and entry.form != "only:":
            self.awaited, self._group, self._next = len(entry.calls), entry.offset, 0
            self.flat = not entry.forms
        if entry.kind != Kind.USER and has_attachments(entry.body):
            self.flat = False

    # -- changes the fold makes ---------------------------------------------------------------------------------------------

    def push(self, entry: Entry, reported: int = 0) -> None:
        """Put an entry at the end of the tail, cut where a mark is passed, and keep the tail bounded.

        ``reported`` are the tokens that a model said its input had, 0 where it said nothing.
        """
        if entry.kind in RENDERED:
            if entry.kind == Kind.RESULT:
                self._receive(entry)
            elif entry.calls and self._early:
                self._adopt(entry)
            if entry.tokens > self.limits.ceiling:
                entry.room = self.limits.ceiling
                entry.tokens, entry.body = clip(entry.body, entry.tokens, entry.room)
            if reported:
                ours = self.lanes.pinned_tokens + self.summary_tokens + self.tail_tokens
                # A claim far off is of another model call, or of none.
                entry.beyond = max(-ours // 2, min(3 * ours, reported - ours))
        self.tail.append(entry)
        self._step(entry)
        settle(self, len(self.tail))
        if self._hidden > MAX_HIDDEN or len(self.tail) > MAX_ENTRIES or self.tail_bytes > MAX_TAIL_BYTES:
            self._bound_entries()

    def push_text(self, entry: Entry) -> None:
        """What :meth:`push` does, for a user's or an assistant's message of nothing but text."""
        limits = self.limits
        if entry.tokens > limits.ceiling or limits.counted:
            self.push(entry)
            return
        lanes, tail = self.lanes, self.tail
        tail.append(entry)
        lanes.closed = None
        lanes.last_message = entry.offset
        if entry.kind == Kind.USER:
            lanes.turn_ended = False
            lanes.run = lanes.loop = None
            for call in lanes.calls:
                call.dead = True
            self.shown_turns += 1
        self.tail_bytes += len(entry.body)
        self.tail_tokens = tokens = self.tail_tokens + entry.tokens
        self.tail_messages += 1
        self.shown_messages += 1
        if self.awaited:
            self.flat = False
        if tokens + self.held_tokens > limits.mark or tokens > limits.hold or self.tail_bytes > MAX_TAIL_BYTES:
            settle(self, len(tail))
        if self._hidden > MAX_HIDDEN or len(tail) > MAX_ENTRIES:
            self._bound_entries()

    def _receive(self, result: Entry) -> None:
        """A result that is too large to be kept whole is held by its position from the beginning."""
        policy = self.policy
        if policy.spill_chars and len(result.body) > policy.spill_chars:
            text = result_text(msgspec.json.decode(result.body))
            if len(text) > policy.spill_chars:
                form, shaper, result.full = f"soft:{policy.soft_trim_chars}", self.shaper(), result.tokens
                result.body = shaper.shaped(result.body, form, result, "")
                result.tokens = min(result.tokens, shaper.tokens(result.body))
                result.forms = ((AT_ONCE, form, result.tokens),)

    def unlink_early(self, after: int) -> None:
        """Results that came before their calls wait for them again, where the call stands beyond ``after``."""
        for entry in self.tail:
            if entry.link is not None and entry.link[0] > max(after, entry.offset):
                if entry.sent_id:
                    # What call_ids gave it is the id with a number behind.
                    _rename(entry, entry.sent_id.rpartition("-")[0])
                entry.link, entry.sent_id = EARLY, ""
                self.epoch += 1

    def _adopt(self, message: Entry) -> None:
        """Results that came before their calls."""
        for i, (call_id, _, _) in enumerate(message.calls or ()):
            for entry in self.tail:
                if entry.offset > message.offset:
                    break
                if entry.link == EARLY and not entry.out and _call_id(entry) == call_id:
                    entry.link = (message.offset, i)
                    before = len(entry.body)
                    _rename(entry, call_ids([call[0] for call in message.calls or ()])[i])
                    self.tail_bytes += len(entry.body) - before
                    self._answered.add(entry.link)
                    self._early -= 1
                    self.epoch += 1
                    break

    def cover(self, end: int, kept: set[int]) -> None:
        """Take the first ``end`` entries out of the tail, but those at offsets in ``kept``; the lanes before the tail move past them."""
        self._pass(end, kept)
        stay = [entry for entry in self.tail[:end] if entry.offset in kept]
        if stay:
            self.tail = stay + self.tail[end:]
            self.epoch += 1
        else:
            del self.tail[:end]
        self.start += end - len(stay)

    def _pass(self, end: int, kept: set[int]) -> None:
        """Move the lanes before the tail past its first ``end`` entries; of their calls those of ``kept`` messages stay open."""
        base, reached = self.meta.base, self.covered_to
        self.base_epoch += 1
        heads: dict[int, Entry] = {}
        answered: set[tuple[int, int]] = set()
        for entry in self.tail[:end]:
            policy = self.rules.for_conversation(self.key.tenant, base.policy)
            if entry.offset > reached or entry.kind in RANGES:
                step(base, entry, policy)
            if entry.calls:
                heads[entry.offset] = entry
            if entry.link is not None:
                answered.add(entry.link)
                head = heads.get(entry.link[0])
                if entry.pinned and entry.offset not in kept and head is not None and not head.out and not entry.out:
                    pin(base, self._pinned(head, entry, entry.link[1]), policy)
        # A call that left the tail can no longer be shown with its result, and must not take a reused id's result away.
        base.calls = [c for c in base.calls if c.offset in kept and (c.offset, c.index) not in answered]

    def _pinned(self, head: Entry, result: Entry, index: int) -> PinnedResult:
        call = self.shaper().shaped(head.body, f"pair:{index}", head, "", head.forms)
        return PinnedResult(result.offset, result.tokens + self.shaper().tokens(call), call, result.body, (head.offset, index))

    def replace_tail(self, tail: list[Entry]) -> None:
        """Put another tail in place of this one; marks and cuts stay as they are."""
        self.tail = tail
        self.epoch += 1
        self.base_epoch += 1
        self.derive()

    def _bound_entries(self) -> None:
        """Hold what says nothing any more, or the oldest quarter of too many entries, as one range of the log."""
        kept = sum(entry.offset <= self.covered_to and entry.kind not in RANGES for entry in self.tail)
        stays = set(self.meta.due.kept) if self.meta.due else set()
        end = kept
        while end < len(self.tail) - 1:
            entry = self.tail[end]
            if entry.offset in stays or (entry.kind in RENDERED and not entry.out and entry.link != EARLY):
                break
            if entry.link is not None and entry.link[0] > entry.offset:
                break  # its call stands further on
            end += 1
        if len(self.tail) > MAX_ENTRIES:
            end = max(end, kept + MAX_ENTRIES // 4)
        elif self.tail_bytes > MAX_TAIL_BYTES:
            size = self.tail_bytes - sum(len(entry.body) for entry in self.tail[:end])
            while end < len(self.tail) - 1 and size > MAX_TAIL_BYTES * 3 // 4:
                size -= len(self.tail[end].body)
                end += 1
        elif end - kept < MAX_HIDDEN // 2:
            return
        held = held_range(self.tail[kept:end])
        self._pass(end, {entry.offset for entry in self.tail[:kept]})
        self.tail[kept:end] = [held]
        self.start += end - kept - 1
        self.epoch += 1
        self.derive()

    # -- forms --------------------------------------------------------------------------------------------------------------

    def encode_meta(self) -> bytes:
        """The meta, for an image or a snapshot."""
        return _meta_encoder.encode(self.meta)

    def image(self) -> bytes:
        """The whole window as bytes: two windows are the same exactly when their images are."""
        return msgspec.msgpack.encode((self.encode_meta(), [encode_entry(e) for e in self.tail], self.recents.packed()))


class _Named(Struct):
    tool_call_id: str


_decode_named = msgspec.json.Decoder(_Named).decode


def _call_id(result: Entry) -> str:
    """The id that a result came with: its body has another one only when it is linked."""
    return _decode_named(result.body).tool_call_id


def _rename(result: Entry, call_id: str) -> None:
    if result.body and _call_id(result) != call_id:
        result.sent_id = call_id
        result.body = msgspec.json.encode({**msgspec.json.decode(result.body), "tool_call_id": call_id})


def load_window(key: Key, partition: int, rules: Rules, meta: bytes, tail: list[bytes], recents: bytes) -> Window:
    """Build a window from the parts of its image; raises :class:`msgspec.DecodeError` when they are not what was stored."""
    decoded = _meta_decoder.decode(meta)
    ids = Recents(recents, decoded.count + decoded.skipped)
    return Window(key, partition, rules, decoded, [_entry_decoder.decode(e) for e in tail], ids)


def held_range(entries: list[Entry]) -> Entry:
    """One range in place of several entries.

    Positions stay known up to a bound; tokens count what would have been shown, ``full`` all that was said. A range of nothing but what
    a reducer left out has that form, so it is not spoken of.
    """
    tokens = sum(_would_show(e) for e in entries)
    full = sum(max(e.tokens, e.full) for e in entries if e.kind in RENDERED or e.kind == Kind.HELD)
    entry = _range(Kind.HELD, entries, tokens)
    out = next((e.form for e in entries if e.out), "")
    if not tokens and out:
        entry.full, entry.forms = full, ((entry.offset, out, 0),)
    return entry


def _would_show(entry: Entry) -> int:
    if entry.kind == Kind.HELD:
        return entry.tokens
    if entry.kind not in RENDERED:
        return 0
    return entry.full if entry.form == f"out:{LEFT_OUT}" else entry.tokens


def abandoned_range(entries: list[Entry], last: int) -> Entry:
    """The range a rollback at offset ``last`` abandoned (the rollback itself included)."""
    return _range(Kind.ABANDONED, [*entries, Entry(last, Kind.NOTE)], 0)


def _range(kind: Kind, entries: list[Entry], tokens: int) -> Entry:
    offsets: list[int] | None = []
    gone: list[int] = []
    for entry in entries:
        known = entry_offsets(entry)
        offsets = offsets + known if offsets is not None and known is not None else None
        if entry.kind in (Kind.NOTE, Kind.ABANDONED):
            gone += known or []
        elif entry.gone is not None:
            gone += absolute(entry.gone)
    count = sum(e.count for e in entries)
    if offsets is not None and len(offsets) > MAX_HELD_POSITIONS:
        offsets = None
    positions = None if offsets is None else delta(offsets)
    dead = delta(gone) if kind == Kind.HELD and gone and positions is not None else None
    return Entry(entries[-1].offset, kind, tokens, first=entries[0].start, count=count, positions=positions, gone=dead)
