"""The window: everything a model's context is rendered from, bounded, and the forms it is stored
and compared in.

A window *is* its meta (the lanes as they stood before the tail, the summary in force, counters),
its tail and its recent ids; all else is *derived* by stepping the lanes over the tail. The fold
that moves a window is in ``projections.fold.apply``, how one is stored in
``projections.storage.layout``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import msgspec

from projections.events.provider_limits import call_ids
from projections.events.truncation import clip
from projections.names import Key, Position
from projections.policy.policy import Policy, Rules
from projections.policy.thresholds import Limits
from projections.window.bodies import result_call_id, with_call_id
from projections.window.conversation_state import (
    AT_ONCE,
    EARLY,
    RANGES,
    RENDERED,
    Entry,
    Kind,
    PinnedResult,
    pin,
    step,
    step_message,
)
from projections.window.log_ranges import held_range
from projections.window.meta import Meta
from projections.window.recent_ids import RecentIds
from projections.window.reductions import MAX_TAIL_BYTES, enforce_limits, shorten
from projections.window.tail_statistics import TailStatistics
from projections.window.trace_steps import Cut, Step, chain
from projections.window.variants import Variants, result_text

MAX_ENTRIES = 4_096
MAX_HIDDEN = 384
"""Entries in front of the tail that say nothing any more, before they are held as one range."""


_meta_encoder = msgspec.msgpack.Encoder()
_meta_decoder = msgspec.msgpack.Decoder(Meta)
_entry_decoder = msgspec.msgpack.Decoder(Entry)
encode_entry = msgspec.msgpack.Encoder().encode
"""Encode one tail entry, for an image or a snapshot."""


@dataclass(slots=True)
class Hashed:
    """A hash of rendered messages that can go on: what it is of, up to which running number, and
    whether there is any message in it.
    """

    of: tuple[int, int, int]
    sha: Any
    end: int
    any: bool


class Window(TailStatistics):
    """One conversation's window, owned and mutated by whoever folds it.

    ``tail`` is in log order, but for what a summary went around: such *kept* entries stand at its
    front, and their offsets are before the summary's end. What changed is told to a store by
    ``start``, the running number of ``tail[0]`` (it grows as the head is dropped), ``epoch``, which
    grows whenever entries already in the tail were replaced, and ``base_epoch``, whenever the lanes
    before the tail or the summary in force did.

    Derived: ``lanes``, ``policy`` and ``limits`` as they stand after the tail, sums over it
    (``gains``: for each reducer the messages and tokens it saves), and ``flat``: whether its
    rendered bodies, joined in their order, are a valid conversation (``awaited`` results of its
    last group are still to come).
    """

    __slots__ = (
        "_answered",
        "base_epoch",
        "beyond",
        "cut",
        "epoch",
        "hashed",
        "key",
        "limits",
        "partition",
        "policy",
        "recents",
        "rules",
        "start",
        "tail",
    )

    def __init__(
        self,
        key: Key,
        partition: int,
        rules: Rules,
        meta: Meta | None = None,
        tail: list[Entry] | None = None,
        recents: RecentIds | None = None,
    ) -> None:
        self.key = key
        self.partition = partition
        self.rules = rules
        self.meta = Meta() if meta is None else meta
        self.tail: list[Entry] = [] if tail is None else tail
        self.recents = RecentIds() if recents is None else recents
        self.start = 0
        self.epoch = 0
        self.base_epoch = 0
        self.hashed: Hashed | None = None
        self.cut: Cut | None = None
        self.derive()

    # -- what follows from the stored parts
    # ---------------------------------------------------------------------------------

    @property
    def summary_tokens(self) -> int:
        """Tokens of the summary in force, 0 without one."""
        return self.meta.summary.tokens if self.meta.summary else 0

    @property
    def covered_to(self) -> int:
        """The last offset that the summary in force reaches, -1 without one: entries up to there
        are kept ones.
        """
        return self.meta.summary.to if self.meta.summary else -1

    def position_of(self, offset: int) -> str:
        """The position string of an offset in this conversation's partition."""
        return str(Position(self.partition, offset))

    def shaper(self) -> Variants:
        """What makes the forms of this window's entries."""
        return Variants(self.position_of, self.policy.encoding, self.rules.callables)

    def derive(self) -> None:
        """Recompute lanes and sums from the stored parts."""
        self._to_base()
        for entry in self.tail:
            self._step(entry)

    def refold(self, marked: int) -> None:
        """Derive anew and cut again: the tail is gone through as if its entries came only now.

        Used when a summary takes the tail's front, so that it makes no difference when that
        happened. As that is a cut, too, tool results are shortened: among the entries up to
        ``marked``, at which the summary was found to be due.
        """
        self.meta.due = None
        self.base_epoch += 1
        self._to_base()
        self.unlink_early(-1)
        for i, entry in enumerate(self.tail):
            if entry.calls and self._early:
                self._adopt(entry)
            if (
                entry.link in self._answered
                and entry.link is not None
                and entry.link[0] < entry.offset
            ):
                # An earlier result has the call, that was left out when this one came.
                entry.link = None
                self.epoch += 1
            self._step(entry)
            if entry.offset <= marked and (
                i + 1 == len(self.tail) or self.tail[i + 1].offset > marked
            ):
                shorten(self, i + 1)
            enforce_limits(self, i + 1)

    def changed(self, n: int, anything: bool) -> None:
        """Note that entries among the first ``n`` were shortened: sums are taken anew over these
        (and no others).
        """
        if anything:
            before, tokens = self.gains, self.tail_tokens
            self.epoch += 1
            self._zero()
            for entry in self.tail[:n]:
                self._count(entry)
            made = {
                name: (m - before.get(name, (0, 0))[0], t - before.get(name, (0, 0))[1])
                for name, (m, t) in self.gains.items()
            }
            self.note_cut(
                self.tail[n - 1].offset, tokens, chain(made, self.shown_messages, self.tail_tokens)
            )

    def note_cut(self, at: int, tokens: int, steps: list[Step]) -> None:
        """Keep what the latest cut did, for whoever reports it: the tail had ``tokens`` before. Not
        part of the window.
        """
        utilization = round(
            (self.lanes.pinned_tokens + self.summary_tokens + tokens) / self.limits.ceiling, 6
        )
        before = () if self.cut is None else self.cut.steps
        self.cut = Cut(
            at, utilization if self.cut is None else self.cut.utilization, (*before, *steps)
        )

    def _to_base(self) -> None:
        """Lanes and sums as they stand before the tail."""
        self.lanes = self.meta.base.copy()
        self.beyond = 0
        self._answered: set[tuple[int, int]] = set()
        self._zero()
        self._refresh()

    def _refresh(self) -> None:
        """Policy and limits anew: something that they follow from has changed."""
        self.policy: Policy = self.rules.for_conversation(self.key.tenant, self.lanes.policy)
        self.limits = Limits.of(
            self.policy, self.lanes.pinned_tokens, self.summary_tokens, self.beyond
        )

    def _step(self, entry: Entry) -> None:
        kind = entry.kind
        if kind in RENDERED:
            if entry.offset > self.covered_to:
                step_message(self.lanes, entry)
                if entry.calls and self._answered:
                    self.lanes.calls = [
                        c for c in self.lanes.calls if (c.offset, c.index) not in self._answered
                    ]
            if entry.link is not None and entry.link[0] > entry.offset:
                self._answered.add(entry.link)
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

    # -- changes the fold makes
    # ------------------------------------------------------------------------------------------

    def push(self, entry: Entry, reported: int = 0) -> None:
        """Put an entry at the end of the tail, cut where a mark is passed, and keep the tail
        bounded.

        ``reported`` are the tokens that a model said its input had, 0 where it said nothing.
        """
        if entry.kind in RENDERED:
            if entry.kind == Kind.RESULT:
                self._receive(entry)
            elif entry.calls and self._early:
                self._adopt(entry)
            if entry.tokens > self.limits.ceiling:
                entry.full = entry.full if entry.forms else entry.tokens
                if entry.kind == Kind.RESULT and not entry.chars:
                    entry.chars = len(result_text(msgspec.json.decode(entry.body)))
                entry.tokens, entry.body = clip(entry.body, entry.tokens, self.limits.ceiling)
                entry.forms = (*entry.forms, (AT_ONCE, f"clip:{self.limits.ceiling}", entry.tokens))
            if reported:
                ours = self.lanes.pinned_tokens + self.summary_tokens + self.tail_tokens
                # A claim far off is of another model call, or of none.
                entry.beyond = max(-ours // 2, min(3 * ours, reported - ours))
        self.tail.append(entry)
        self._step(entry)
        enforce_limits(self, len(self.tail))
        if (
            self._hidden > MAX_HIDDEN
            or len(self.tail) > MAX_ENTRIES
            or self.tail_bytes > MAX_TAIL_BYTES
        ):
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
        if (
            tokens + self.held_tokens > limits.mark
            or tokens > limits.hold
            or self.tail_bytes > MAX_TAIL_BYTES
        ):
            enforce_limits(self, len(tail))
        if self._hidden > MAX_HIDDEN or len(tail) > MAX_ENTRIES:
            self._bound_entries()

    def _receive(self, result: Entry) -> None:
        """A result that is too large to be kept whole is held by its position from the
        beginning.
        """
        policy = self.policy
        if policy.spill_chars and len(result.body) > policy.spill_chars:
            text = result_text(msgspec.json.decode(result.body))
            if len(text) > policy.spill_chars:
                form, shaper, result.full = (
                    f"soft:{policy.soft_trim_chars}",
                    self.shaper(),
                    result.tokens,
                )
                result.body = shaper.shaped(result.body, form, result, "")
                result.tokens = min(result.tokens, shaper.tokens(result.body))
                result.forms = ((AT_ONCE, form, result.tokens),)

    def unlink_early(self, after: int, only: int | None = None) -> None:
        """Results that came before their calls wait for them again, where the call stands beyond
        ``after`` (with ``only``: just there).
        """
        early = [
            entry
            for entry in self.tail
            if entry.link is not None
            and entry.link[0] > max(after, entry.offset)
            and only in (None, entry.link[0])
        ]
        ids = (
            {(e.offset, i): call[0] for e in self.tail for i, call in enumerate(e.calls or ())}
            if early
            else {}
        )
        for entry in early:
            own = ids.get(entry.link) if entry.link else None
            if entry.sent_id and own is not None:
                entry.sent_id, entry.body = "", with_call_id(entry.body, own)
            entry.link = EARLY
            self.epoch += 1

    def _adopt(self, message: Entry) -> None:
        """Results that came before their calls."""
        for i, (call_id, _, _) in enumerate(message.calls or ()):
            for entry in self.tail:
                if entry.offset > message.offset:
                    break
                if entry.link == EARLY and not entry.out and result_call_id(entry.body) == call_id:
                    entry.link = (message.offset, i)
                    if self.meta.due is not None and entry.offset <= self.meta.due.last:
                        # Its span would part the two now: no summary of it could ever be taken.
                        self.meta.due = None
                    sent = call_ids([call[0] for call in message.calls or ()])[i]
                    if sent != call_id:
                        self.tail_bytes -= len(entry.body)
                        entry.sent_id, entry.body = sent, with_call_id(entry.body, sent)
                        self.tail_bytes += len(entry.body)
                    self._answered.add(entry.link)
                    self._early -= 1
                    self.epoch += 1
                    break

    def cover(self, end: int, kept: set[int]) -> None:
        """Take the first ``end`` entries out of the tail, but those at offsets in ``kept``; the
        lanes before the tail move past them.
        """
        self._pass(end, kept)
        stay = [entry for entry in self.tail[:end] if entry.offset in kept]
        if stay:
            self.tail = stay + self.tail[end:]
            self.epoch += 1
        else:
            del self.tail[:end]
        self.start += end - len(stay)

    def _pass(self, end: int, kept: set[int]) -> None:
        """Move the lanes before the tail past its first ``end`` entries; of their calls those of
        ``kept`` messages stay open.
        """
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
                if (
                    entry.pinned
                    and entry.offset not in kept
                    and head is not None
                    and not head.out
                    and not entry.out
                ):
                    pin(base, self._pinned(head, entry, entry.link[1]), policy)
        # A call that left the tail can no longer be shown with its result, and must not take a
        # reused id's result away.
        base.calls = [
            c for c in base.calls if c.offset in kept and (c.offset, c.index) not in answered
        ]

    def _pinned(self, head: Entry, result: Entry, index: int) -> PinnedResult:
        call = self.shaper().shaped(head.body, f"pair:{index}", head, "", head.forms)
        full = result.full if result.forms else 0
        tokens = result.tokens + self.shaper().tokens(call)
        return PinnedResult(
            result.offset,
            tokens,
            call,
            result.body,
            (head.offset, index),
            full - result.tokens if full else 0,
        )

    def replace_tail(self, tail: list[Entry]) -> None:
        """Put another tail in place of this one; marks and cuts stay as they are."""
        self.tail = tail
        self.epoch += 1
        self.base_epoch += 1
        self.derive()

    def _bound_entries(self) -> None:
        """Hold what says nothing any more, or the oldest quarter of too many entries, as one range
        of the log.
        """
        kept = sum(
            entry.offset <= self.covered_to and entry.kind not in RANGES for entry in self.tail
        )
        stays = set(self.meta.due.kept) if self.meta.due else set()
        end = kept
        while end < len(self.tail) - 1:
            entry = self.tail[end]
            if entry.offset in stays or (
                entry.kind in RENDERED and not entry.out and entry.link != EARLY
            ):
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
        if stays.intersection(entry.offset for entry in self.tail[kept:end]):
            # What the summary that was asked for would have gone around is not there to stay:
            # another span is found.
            self.meta.due = None
        held = held_range(self.tail[kept:end])
        self._pass(end, {entry.offset for entry in self.tail[:kept]})
        self.tail[kept:end] = [held]
        self.start += end - kept - 1
        self.epoch += 1
        self.derive()

    # -- forms
    # ------------------------------------------------------------------------------------------

    def encode_meta(self) -> bytes:
        """The meta, for an image or a snapshot."""
        return _meta_encoder.encode(self.meta)

    def image(self) -> bytes:
        """The whole window as bytes: two windows are the same exactly when their images are."""
        return msgspec.msgpack.encode(
            (self.encode_meta(), [encode_entry(e) for e in self.tail], self.recents.packed())
        )


def load_window(
    key: Key, partition: int, rules: Rules, meta: bytes, tail: list[bytes], recents: bytes
) -> Window:
    """Build a window from the parts of its image; raises :class:`msgspec.DecodeError` when they are
    not what was stored.
    """
    decoded = _meta_decoder.decode(meta)
    ids = RecentIds(recents, decoded.count + decoded.skipped)
    return Window(key, partition, rules, decoded, [_entry_decoder.decode(e) for e in tail], ids)
