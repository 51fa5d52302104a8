"""Folding a whole conversation from its events: the same fold as live, driven from a list.

Used wherever the events are at hand: verify, rollbacks into summarised history, readers that fold
without writing, and the tests. A rollback beyond the window needs the fold as it stood at its
target; such copies are kept here, in bounded bytes, and nowhere else.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from collections.abc import Set as AbstractSet
from functools import partial
from typing import NamedTuple

from projections.events import types as events
from projections.events.types import AnyEvent
from projections.fold.apply import History, Outcome, Status, apply, id_hash_of
from projections.fold.known_events import KnownEvents, NotRead
from projections.fold.rollback import LaterSummaries, take_out
from projections.fold.summary_effects import LateSummary
from projections.names import Key, parse_position
from projections.policy.policy import Rules
from projections.window.shared_images import SharedImage, SharedImages
from projections.window.window import Window

Logged = tuple[int, AnyEvent]
"""An event with its offset."""
EVERY = 50
"""Events between two copies of a fold whose rollbacks are not known beforehand."""
COPIES_BYTES = 8 << 20
"""Bytes of a conversation's copies, but for what they share; when there are more, every other one
goes.
"""
LATEST = 16
"""The copies that were made last stay: rollbacks often go back to before the one before."""
AGAIN, GROWTH = 8, 8
"""Where copies are so few that events are folded again :data:`AGAIN` times on average, there may be
twice as many bytes of them, and so on, up to :data:`GROWTH` times as many: the time that rollbacks
over rollbacks take grows exponentially with the distance between copies.
"""


def replay(key: Key, partition: int, rules: Rules, log: Sequence[Logged]) -> Window:
    """Fold a conversation's events, in order and from the first, into a new window."""
    fold = ReplayCheckpoints(key, partition, rules, every=0, at=_possible_targets(partition, log))
    fold.extend(log)
    return fold.window


def apply_with_log(
    window: Window, offset: int, event: AnyEvent, earlier: Sequence[Logged]
) -> Outcome:
    """Fold one event; ``earlier`` are all the conversation's events before it, should a rollback
    need them.
    """
    outcome = apply(window, offset, event)
    if outcome.status is Status.NEEDS_HISTORY:
        history = (
            History(texts=KnownEvents(earlier))
            if outcome.target is None
            else history_from(window, outcome.target, earlier)
        )
        outcome = apply(window, offset, event, history)
    return outcome


def history_from(window: Window, target: int, earlier: Sequence[Logged]) -> History:
    """The history that a rollback of ``window`` to ``target`` needs, from all the conversation's
    events before the rollback.
    """
    fold = ReplayCheckpoints(
        window.key,
        window.partition,
        window.rules,
        every=0,
        at=_possible_targets(window.partition, earlier) | {target},
    )
    drops = [offset for offset, event in earlier if is_unsure(window, target, offset, event)]
    fold.extend(earlier, upto=max([target, *drops]))
    return fold.history(window, target)


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


class _Copy(NamedTuple):
    """The image of a window as it stood after an event, and whether that event was a repeat."""

    image: SharedImage
    repeat: bool

    @property
    def size(self) -> int:
        return self.image.size + 200


class TooOld(Exception):
    """The target of a rollback of ``window`` lies before the window that a fold began with.

    ``give`` takes the history that it needs, and then the fold can go on; None: it is the rollback
    for which the fold is made.
    """

    def __init__(
        self,
        target: int,
        window: Window | None = None,
        give: Callable[[History], None] | None = None,
    ) -> None:
        super().__init__(target)
        self.target = target
        self.window = window
        self.give = give


class ReplayCheckpoints:
    """The fold of a conversation's events so far, with copies of it on the way for rollbacks beyond
    the window: each of them folds from the nearest copy before its target.

    Folding for each rollback anew, and within that for those before it, would take time exponential
    in their number.
    """

    def __init__(
        self,
        key: Key,
        partition: int,
        rules: Rules,
        copies_bytes: int = COPIES_BYTES,
        *,
        every: int = EVERY,
        at: AbstractSet[int] = frozenset(),
        base: Window | None = None,
        texts: KnownEvents | None = None,
        images: SharedImages | None = None,
    ) -> None:
        """Args:
        every: events between two copies, 0 for none. at: offsets after which one is made.
        base: the fold of the first events, which come not again; None: of none.
        texts: the conversation's events that are known. Those that are folded come to them: folds
            of its other parts may share them, and the ``images``.
        """
        self.window = Window(key, partition, rules) if base is None else base
        """The fold of all events so far."""
        self.size = 0
        """Bytes of the copies, but for what they share."""
        self._begin = self.window.meta.position if base is not None else -1
        self._images = SharedImages() if images is None else images
        self._base = self._images.take(self.window)
        self.texts = KnownEvents() if texts is None else texts
        """The events that are known."""
        self._offsets: list[int] = []
        self._dropped: list[tuple[int, events.EventDroppedEvent]] = []
        """What an operator took out, where it was; repeats among them where it is not folded."""
        self._copies: dict[int, _Copy] = {}
        self._places: list[int] = []
        self._most, self._greatest = copies_bytes, copies_bytes * GROWTH
        self._latest: deque[int] = deque(maxlen=LATEST)
        self._again = 0
        self._every = every
        self._at_these = at
        self._given: dict[int, History] = {}
        """What was given for rollbacks to before the base, by offset; each is used once."""
        self._half: dict[int, tuple[Window, int, AnyEvent | None]] = {}
        """By its target, a fold that waits for the history of a rollback, how far it is, and that
        rollback: else those that wait for one another would have to be read at the same time.
        """
        self._waiting: dict[tuple[str, int, int], LaterSummaries | LateSummary] = {}
        """What waits for events amid its work."""

    @property
    def held(self) -> int:
        """Bytes of the copies and of the base, but for what images share."""
        return self.size + self._base.size

    @property
    def copies(self) -> int:
        """How many copies there are."""
        return len(self._places)

    @property
    def reached(self) -> int:
        """The last offset that is known, -1 where there is none."""
        return self._offsets[-1] if self._offsets else self._begin

    @property
    def last_dropped(self) -> int:
        """Where the last event stands by which an operator took one out, -1 where there is none."""
        return self._dropped[-1][0] if self._dropped else -1

    def extend(self, log: Iterable[Logged], upto: int | None = None) -> None:
        """Fold on; the events come after those before, in their order.

        Those after offset ``upto`` are known and not folded: whoever gives it asks for nothing
        beyond it, and does not go on.

        Raises ``TooOld`` and ``NotRead`` as :meth:`history`: call it again from the event on at
        which it did, the first after ``reached``.
        """
        window, every, at, texts = self.window, self._every, self._at_these, self.texts
        for offset, event in log:
            folds = upto is None or offset <= upto
            repeat = folds and self._fold(window, offset, event)
            texts.add(offset, event)
            self._offsets.append(offset)
            if isinstance(event, events.EventDroppedEvent) and not repeat:
                self._dropped.append((offset, event))
            if folds and (offset in at or (every and len(self._offsets) % every == 0)):
                self._put(window, offset, repeat)

    def history(self, window: Window, target: int) -> History:
        """The history that a rollback of ``window`` to ``target`` needs; an empty one where the
        target is no event of the conversation. All of the window's summaries since have to be
        known. Raises as :meth:`restored`.
        """
        place = ("target", target, window.meta.position)
        work = self._waiting.get(place)
        if work is None:
            restored = self.restored(window, target)
            if restored is None:
                return History()
            work = LaterSummaries(restored, summary_chain(window, self.texts, target), target)
        return History(self._made(place, work), self.texts)

    def _made(self, place: tuple[str, int, int], work: LaterSummaries | LateSummary) -> Window:
        """What a work makes of the known events; while it waits for others it is kept."""
        self._waiting[place] = work
        window = work.go_on(self.texts)
        del self._waiting[place]
        return window

    def restored(self, window: Window, target: int) -> Window | None:
        """The fold up to and including the target of a rollback of ``window``, without what an
        operator took out since; None where the target is no event of the conversation.

        Raises:
            TooOld: this, or a rollback in between, goes back to before its base. Once what that
                needs is given, call this again: it goes on from there.
            NotRead: events are needed that were not read, or are forgotten. Once they are read,
                call this again, too.
        """
        found = self._at(target)
        # A repeat is no event of its own; a reader that goes by the tail's and spans' positions
        # does not even find it.
        if found is None or found.repeat:
            return None
        restored = self._load(found.image)
        for offset, event in self._dropped:
            # What an operator took out since then stays out.
            if target < offset <= window.meta.position and _counted(window, offset, event):
                take_out(restored, event.data.position)
        return restored

    def _fold(self, window: Window, offset: int, event: AnyEvent) -> bool:
        """Fold one event; returns whether it is a repeat."""
        outcome = apply(window, offset, event)
        if outcome.status is not Status.NEEDS_HISTORY:
            return outcome.status is Status.DUPLICATE
        given = self._given.pop(offset, None)
        if given is None:
            apply(window, offset, event, self._needed(window, offset, outcome))
        else:
            apply(window, offset, event, given)
            self._put(window, offset, False)  # it is not asked for again
        self.texts.trim()
        return False

    def _needed(self, window: Window, offset: int, outcome: Outcome) -> History:
        """What the event at ``offset`` needs of the log, by what the fold answered."""
        if outcome.late is not None:
            place = ("summary", offset, id(window))
            return History(self._made(place, self._waiting.get(place, outcome.late)))
        if outcome.target is None:
            return History(texts=self.texts)
        try:
            return self.history(window, outcome.target)
        except TooOld as older:
            if older.give is not None:
                raise
            give = partial(self._given.__setitem__, offset)
            raise TooOld(older.target, window, give) from None

    def _at(self, target: int) -> _Copy | None:
        """The fold as it stood after the event at ``target``, None where none of the conversation's
        is there.
        """
        if target == self._begin and (event := self._known(target)) is not None:
            seen = self._load(self._base).recent_ids.find(id_hash_of(event.id))
            return _Copy(self._base, seen is None or seen.offset != target)
        if target <= self._begin:
            raise TooOld(target)
        known = self._copies.get(target)
        end = bisect_right(self._offsets, target)
        if known is not None or not end or self._offsets[end - 1] != target:
            return known
        event = None
        if target in self._half:
            window, begin, event = self._half.pop(target)
        else:
            at = bisect_right(self._places, target)
            begin = self._places[at - 1] if at else self._begin
            window = self._load(self._copies[begin].image if at else self._base)
        repeat = False
        rest = self._offsets[bisect_right(self._offsets, begin) : end]
        for i, offset in enumerate(rest):
            event = event or self.texts.get(offset)
            try:
                if event is None:
                    raise NotRead(self.texts.unread(rest[i:]))
                repeat = self._fold(window, offset, event)
            except (TooOld, NotRead):
                self._half[target] = window, begin, event
                raise
            begin, event = offset, None
            self._again += 1
        return self._put(window, target, repeat)

    def _known(self, offset: int) -> AnyEvent | None:
        if unread := self.texts.unread([offset]):
            raise NotRead(unread)
        return self.texts.get(offset)

    def _put(self, window: Window, offset: int, repeat: bool) -> _Copy:
        copy = _Copy(self._images.take(window), repeat)
        if offset not in self._copies:
            self._places.insert(bisect_right(self._places, offset), offset)
            self._copies[offset] = copy
            self.size += copy.size
        self._latest.append(offset)
        if self._again > AGAIN * len(self._offsets) and self._most < self._greatest:
            self._most, self._again = 2 * self._most, 0
        if self.size > self._most:
            self._thin_out()
        return copy

    def _thin_out(self) -> None:
        latest = set(self._latest)
        old = [place for place in self._places if place not in latest]
        while self.size > self._most and old:
            gone, old = old[::2], old[1::2]
            self.size -= sum(self._copies.pop(place).size for place in gone)
        self._places = sorted(self._copies)

    def _load(self, image: SharedImage) -> Window:
        mine = self.window
        return image.window(mine.key, mine.partition, mine.rules)


def is_unsure(window: Window, target: int, offset: int, event: AnyEvent) -> bool:
    """Whether an event takes another one out after a rollback's target, so long ago that the
    window's recent ids do not tell whether it is a repeat: it has to be folded up to there.
    """
    return isinstance(event, events.EventDroppedEvent) and target < offset < window.recent_ids.since


def _counted(window: Window, offset: int, event: AnyEvent) -> bool:
    """Whether an event was no repeat when it came, by the ids that a later window knows; True where
    none of that time is left.
    """
    recent_ids = window.recent_ids
    seen = recent_ids.find(id_hash_of(event.id))
    return offset < recent_ids.since or (seen is not None and seen.offset == offset)


def summary_chain(
    window: Window, texts: KnownEvents, target: int
) -> list[tuple[int, events.SummaryEvent]]:
    """The accepted summaries from the one in force backwards, down to the first that was accepted
    by ``target`` (or to the first of all), as far as they are known.

    Not only to the first whose span ends by then: its predecessor may have come after the target,
    too, and it holds only together with it.
    """
    chain: list[tuple[int, events.SummaryEvent]] = []
    active = window.meta.summary
    offset = None if active is None else active.offset
    while offset is not None:
        event = texts.get(offset)
        if not isinstance(event, events.SummaryEvent):
            break
        chain.append((offset, event))
        if offset <= target:
            break
        previous = event.data.previous_position
        offset = None if previous is None else parse_position(previous).offset
    return chain
