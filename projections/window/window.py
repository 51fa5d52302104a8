"""The window: everything a model's context is rendered from, bounded. Its class owns every write.

A window *is* its meta (the state as it stood before the tail, the active summary, counters), its
tail and its recent ids; all else is derived (``projections.window.derived_state``). Rules change a
window through its methods alone: those of the events stand in ``projections.fold``, the
shortenings in ``projections.reducers``. How one is stored stands in ``projections.storage.layout``.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from hashlib import sha256
from itertools import islice, takewhile

from projections.names import Key
from projections.policy.policy import Policy, Rules
from projections.window.bodies import body_tokens, with_calls
from projections.window.conversation_state import ConversationState, PinnedResult, pin, step
from projections.window.derived_state import DerivedState
from projections.window.entry import EARLY, RANGES, RENDERED, Entry, Kind
from projections.window.image import decode_image, encode_image
from projections.window.log_ranges import held_range, silent_end
from projections.window.meta import ActiveSummary, Due, Meta
from projections.window.recent_ids import RecentIds
from projections.window.rendered_hash import RenderedHash
from projections.window.tail import Shortened
from projections.window.trace_steps import Cut, Step, chain

MAX_TAIL_BYTES = 16 << 20
MAX_ENTRIES = 4_096
MAX_HIDDEN = 384
"""Entries in front of the tail that say nothing any more, before they are held as one range."""

_USER = Kind.USER


class Window(DerivedState):
    """One conversation's window, owned by whoever folds it.

    ``tail`` is in log order, but for what a summary went around: such *kept* entries stand at its
    front, and their offsets are before the summary's end. A store learns what changed from
    ``start``, the running number of ``tail[0]`` (it grows as the front leaves), from
    ``tail_revision``, which grows whenever entries already in the tail were replaced, and from
    ``base_revision``, which grows whenever the state before the tail or the active summary changed.

    ``cut`` is what the latest cut did, for whoever reports it (:meth:`pop_cut`). ``fruitless``
    shortenings are not tried again (:class:`projections.reducers.reduction.Reduction`).
    """

    __slots__ = ("_rendered", "base_revision", "cut", "fruitless")

    def __init__(
        self,
        key: Key,
        partition: int,
        rules: Rules,
        meta: Meta | None = None,
        tail: list[Entry] | None = None,
        recent_ids: RecentIds | None = None,
    ) -> None:
        self.key = key
        self.partition = partition
        self.rules = rules
        self.meta = Meta.empty() if meta is None else meta
        self.tail: list[Entry] = [] if tail is None else tail
        self.recent_ids = RecentIds() if recent_ids is None else recent_ids
        self.start = 0
        self.tail_revision = 0
        self.base_revision = 0
        self.cut: Cut | None = None
        self.fruitless: set[int] = set()
        self._rendered: RenderedHash | None = None
        self.derive()

    @classmethod
    def from_image(cls, key: Key, partition: int, rules: Rules, image: bytes) -> Window:
        """Build a window from :meth:`image`; raises :class:`msgspec.DecodeError` when it is not
        one.
        """
        return cls(key, partition, rules, *decode_image(image))

    def image(self) -> bytes:
        """The whole window as bytes: two windows are the same exactly when their images are."""
        return encode_image(self.meta, self.tail, self.recent_ids)

    def copy(self) -> Window:
        """An independent copy."""
        return Window.from_image(self.key, self.partition, self.rules, self.image())

    @property
    def crowded(self) -> bool:
        """Whether there are more entries than a tail may have: see :meth:`bound_entries`."""
        return self._hidden > MAX_HIDDEN or len(self.tail) > MAX_ENTRIES

    def rendered_digest(self, lead: Callable[[Window], list[bytes]]) -> bytes:
        """The SHA-256 of the JSON array of ``lead`` and the rendered bodies of the tail.

        As such an array mostly grows at its end, the hash goes on from where it was the last time,
        unless something before the end changed.
        """
        of = (self.tail_revision, self.base_revision, self.tail_pinned)
        hashed = self._rendered
        if hashed is None or hashed.of != of:
            self._rendered = hashed = RenderedHash(of, lead(self), self.start)
        since = islice(self.tail, hashed.end - self.start, None)
        bodies = [e.body for e in since if e.kind in RENDERED and e.body]
        return hashed.extend(bodies, self.start + len(self.tail))

    # -- the whole

    def erase(self, offset: int) -> None:
        """Set the window back to what it was before its first event, but for that it is erased;
        this is final.

        Counters, digest and recent ids go, too. What was folded before may have been readable or,
        with its key gone, opaque: an event that was rejected in the one fold counts in the other.
        From here on any two folds agree, whatever they have seen.
        """
        self.meta = Meta.empty(self.meta.version, offset, erased=True)
        self.recent_ids = RecentIds()
        self._rendered = None
        self.replace_tail([])

    # -- the end of the tail

    def append(self, entry: Entry, reported: int = 0) -> None:
        """Put an entry at the end of the tail.

        ``reported`` are the tokens that a model said its input had, 0 where it said nothing. Limits
        are not looked at: see :func:`projections.fold.append.append`.
        """
        if entry.kind in RENDERED:
            if entry.calls and self._early:
                self._adopt(entry)
            elif entry.link == EARLY:
                self._wait(entry)
            if reported:
                ours = self.state.pinned_tokens + self.summary_tokens + self.tail_tokens
                # A claim far off is of another model call, or of none.
                entry.usage_excess = max(-ours // 2, min(3 * ours, reported - ours))
        self.tail.append(entry)
        self._step(entry)

    def append_text(self, entry: Entry, id_hash: bytes) -> bool:
        """Do what :meth:`append` and :meth:`count_event` do, for a user's or an assistant's message
        of nothing but text. Most events are such messages.

        Returns whether a limit is passed. It holds while no limit of turns or messages is set.
        """
        meta, state, tail, limits = self.meta, self.state, self.tail, self.limits
        offset = entry.offset
        meta.count += 1
        meta.digest = sha256(meta.digest + id_hash).digest()
        meta.last = meta.position = state.last_message = offset
        self.recent_ids.add(id_hash, offset)
        tail.append(entry)
        state.closed = None
        if entry.kind == _USER:
            state.turn_ended = False
            state.run = state.loop = None
            for call in state.calls:
                call.dead = True
            self.shown_turns += 1
        self.tail_bytes += len(entry.body)
        self.tail_tokens = tokens = self.tail_tokens + entry.tokens
        self.tail_messages += 1
        self.shown_messages += 1
        if self.awaited and self.flat:
            self.flat = False
        return (
            tokens + self.held_tokens > limits.mark
            or tokens > limits.hold
            or self.tail_bytes > MAX_TAIL_BYTES
            or self._hidden > MAX_HIDDEN
            or len(tail) > MAX_ENTRIES
        )

    # -- shortenings and summaries

    def mark_due(self, due: Due | None) -> None:
        """Note that a span waits for its summary; None: no span does."""
        self.meta.due = due

    def activate_summary(self, summary: ActiveSummary) -> None:
        """Make a summary the active one; its span has left the tail (:meth:`cover`)."""
        self.meta.summary = summary

    def note_reductions(self, n: int, shortened: Collection[Shortened]) -> None:
        """Note which entries among the first ``n`` were shortened, each once: statistics are of
        these ``n`` (and no others).
        """
        before = {name: (m, t) for name, (m, t) in self.gains.items()}
        tokens = self.tail_tokens
        self.tail_revision += 1
        self._count_shortened(n, shortened)
        made = {
            name: (m - before.get(name, (0, 0))[0], t - before.get(name, (0, 0))[1])
            for name, (m, t) in self.gains.items()
        }
        steps = chain(made, self.shown_messages, self.tail_tokens)
        self.note_cut(self.tail[n - 1].offset, tokens, steps)

    def note_cut(self, at: int, tokens: int, steps: list[Step]) -> None:
        """Keep what the latest cut did, for whoever reports it: the tail had ``tokens`` before. Not
        part of the window.
        """
        used = self.state.pinned_tokens + self.summary_tokens + tokens
        self._join_cut(Cut(at, round(used / self.limits.ceiling, 6), tuple(steps)))

    def _join_cut(self, cut: Cut) -> None:
        before = self.cut
        if before is not None:
            cut = Cut(cut.at, before.utilization, (*before.steps, *cut.steps))
        self.cut = cut

    def pop_cut(self) -> Cut | None:
        """What the cuts since the last call did, None where there was none."""
        cut, self.cut = self.cut, None
        return cut

    def begin_refold(self) -> None:
        """Go back to before the tail, to go through it as if its entries came only now: each by
        :meth:`refold_entry`, in order.
        """
        self.meta.due = None
        self.base_revision += 1
        self._to_base()
        self.unlink_early(-1)

    def refold_entry(self, entry: Entry) -> None:
        """Step past the next entry of the tail (:meth:`begin_refold`)."""
        if entry.calls and self._early:
            self._adopt(entry)
        if entry.link in self._answered and entry.link is not None and entry.link[0] < entry.offset:
            # An earlier result has the call, that was left out when this one came.
            entry.link = None
            self.tail_revision += 1
        self._step(entry)

    def cover(self, end: int, kept: set[int]) -> None:
        """Take the first ``end`` entries out of the tail, but those at offsets in ``kept``; the
        state before the tail moves past them.
        """
        self._pass(end, kept)
        stay = [entry for entry in self.tail[:end] if entry.offset in kept]
        if stay:
            self.tail = stay + self.tail[end:]
            self.tail_revision += 1
        else:
            del self.tail[:end]
        self.start += end - len(stay)

    def _pass(self, end: int, kept: set[int]) -> None:
        """Move the state before the tail past its first ``end`` entries; of their calls those of
        ``kept`` messages stay open.
        """
        base, reached = self.meta.base, self.covered_to
        self.base_revision += 1
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
            if entry.offset not in kept:
                self._pin_leaving(base, entry, heads, policy)
        # A call that left the tail can no longer be shown with its result, and must not take a
        # reused id's result away.
        base.calls = [
            c for c in base.calls if c.offset in kept and (c.offset, c.index) not in answered
        ]

    def when_tail_left(self) -> ConversationState:
        """The state as it would be if the tail's pinned results had left it: what the pinned lane
        then holds of them.
        """
        state, heads = self.state.copy(), dict[int, Entry]()
        for entry in self.tail:
            if entry.calls:
                heads[entry.offset] = entry
            self._pin_leaving(state, entry, heads, self.policy)
        return state

    def _pin_leaving(
        self, state: ConversationState, entry: Entry, heads: Mapping[int, Entry], policy: Policy
    ) -> None:
        """Pin a result that leaves the tail with its call, if it is to stay."""
        if not entry.pinned or entry.out or entry.link is None:
            return
        head = heads.get(entry.link[0])
        if head is not None and not head.out:
            pin(state, self._pinned(head, entry, entry.link[1]), policy)

    def _pinned(self, head: Entry, result: Entry, index: int) -> PinnedResult:
        places = [place for place, i in enumerate(head.shown_calls()) if i == index]
        call = with_calls(head.body, places, keep_text=False)
        saved = result.full - result.tokens if result.variants and result.full else 0
        tokens = result.tokens + body_tokens(call, self.policy.encoding)
        return PinnedResult(result.offset, tokens, call, result.body, (head.offset, index), saved)

    def bound_entries(self) -> None:
        """Hold what says nothing any more, or the oldest quarter of too many entries, as one range
        of the log.
        """
        covered = self.covered_to
        front = takewhile(lambda entry: entry.offset <= covered, self.tail)
        kept = sum([entry.kind not in RANGES for entry in front])
        stays = set(self.meta.due.kept) if self.meta.due else set()
        end = silent_end(self.tail, kept, stays)
        if len(self.tail) > MAX_ENTRIES:
            end = max(end, kept + MAX_ENTRIES // 4)
        elif self.tail_bytes > MAX_TAIL_BYTES:
            size = self.tail_bytes - sum(len(entry.body) for entry in self.tail[:end])
            while end < len(self.tail) - 1 and size > MAX_TAIL_BYTES * 3 // 4:
                size -= len(self.tail[end].body)
                end += 1
            if end <= kept:
                return  # what waits alone is too much, and it stays
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
        self.tail_revision += 1
        self.derive()

    # -- going back

    def replace_tail(self, tail: list[Entry]) -> None:
        """Put another tail in place of this one; marks and cuts stay as they are."""
        self.tail = tail
        self.tail_revision += 1
        self.base_revision += 1
        self.derive()

    def detach(self, end: int, target: int) -> list[Entry]:
        """Take the entries from index ``end`` on off the tail, for a rollback to offset ``target``;
        :meth:`end_rollback` follows.
        """
        self.unlink_early(target)
        gone, self.tail = self.tail[end:], self.tail[:end]
        return gone

    def end_rollback(self, offset: int, target: int, abandoned: Entry) -> None:
        """Note the rollback at ``offset``, which left the tail as it stood at ``target``."""
        self.meta.rollback = offset
        if self.meta.due is not None and self.meta.due.at > target:
            self.meta.due = None
        self.replace_tail([*self.tail, abandoned])

    def restore(self, other: Window, offset: int, abandoned: Entry) -> None:
        """Take tail, state and summary from the fold at the target of the rollback at ``offset``;
        recent ids, count and digest go on.
        """
        mine, its = self.meta, other.meta
        mine.base, mine.summary, mine.due, mine.rollback = its.base, its.summary, its.due, offset
        self.replace_tail([*other.tail, abandoned])

    def take_over(self, other: Window) -> None:
        """Become what a copy of this window has become meanwhile.

        Raises:
            ValueError: it is a copy of another state of the window.
        """
        mine, its = self.meta, other.meta
        if (mine.position, mine.count, mine.digest) != (its.position, its.count, its.digest):
            raise ValueError("the window has changed since it was copied")
        self.meta = its
        if other.cut is not None:
            self._join_cut(other.cut)
        self.replace_tail(other.tail)

    def drop_from_base(self, offset: int) -> None:
        """Take what the event at ``offset`` left in the state before the tail out of it."""
        base = self.meta.base
        pins = [pin for pin in base.pins if offset not in (pin.offset, pin.link[0])]
        pinned = [item for item in base.pinned if item.offset != offset]
        suspensions = [suspension for suspension in base.suspensions if suspension.offset != offset]
        calls = [call for call in base.calls if call.offset != offset]
        before = (base.pins, base.pinned, base.suspensions, base.calls)
        if (pins, pinned, suspensions, calls) != before:
            base.pins, base.pinned, base.suspensions, base.calls = pins, pinned, suspensions, calls
            self.base_revision += 1
            self.derive()
