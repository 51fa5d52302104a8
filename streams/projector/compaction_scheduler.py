"""How often a summary is asked for, and whether an answer is still due: what keeps a slow
summariser from drowning in repeats.

Requests are sent again until a summary is accepted, and wait on their topic while summarisers are
slow or fail. So the pause before each repeat is longer than the one before, and whoever takes a
request from the topic first looks whether its window still asks for just that: of a queue of
repeats one is answered, and paid for, and the others cost one look.

Of a tenant few requests stand on the topic at once; its other windows take their turns
(``streams.projector.request_turns``).
"""

from __future__ import annotations

import sys
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from weakref import WeakKeyDictionary

from projections.errors import Healing
from projections.events.types import delta
from projections.names import Key
from projections.storage.layout import HEAD, decode_head
from projections.storage.protocol import WaitingWork, WindowReader
from projections.storage.records import stored_form
from projections.window.window import Window
from streams.compaction.requests import CompactionRequest, request_for
from streams.log.group_offsets import Extent, GroupOffsets
from streams.partition.partition import Partition
from streams.projector.effect_sink import Publisher
from streams.projector.request_turns import MOST_SENT, RequestTurns
from streams.settings.settings import Settings

GROWTH = 2
LONGEST = 16
"""Each pause is so many times the one before, up to so many times the first."""
LOOKED_AT, ASKED_AT_ONCE, LOADED_AT_ONCE = 1_000, 25, 5
"""Of a partition, each time: conversations that are due again; requests that are sent at most;
windows that are loaded together, and all that are after a batch. Loading one takes 3 ms, and
nothing is folded meanwhile.
"""
LOOK_EVERY = 1.0
"""Seconds between two looks at how far compactors are, while windows wait for that."""
COUNTED = 4
"""A request counts for its tenant for so many times the first pause, at most."""
NO_PLACES: Mapping[Key, str] = {}
MAX_KNOWN = 50_000
"""Conversations whose number of requests is remembered; beyond, all begin anew."""


Answered = Callable[[Collection[int]], Awaitable[Mapping[int, Extent]]]
"""Gives how far compactors are with the requests of partitions; raises KafkaUnavailable."""


def answered_requests(settings: Settings) -> GroupOffsets:
    """How far all compactors are with the requests."""
    return GroupOffsets(
        settings, "compactions", settings.compactor_group, "reading how far compactors are"
    )


@dataclass(slots=True)
class _Asked:
    """How often the pause has grown, and where requests ended when this one was due again."""

    times: int = 0
    end: int | None = None


class Patience:
    """How long each conversation's next request has to wait. In memory only: who takes over begins
    with the shortest pause.
    """

    def __init__(self, first: float) -> None:
        """Args: ``first`` is the pause after a first request, in seconds: a summariser's total time
        cap.
        """
        self._first = first
        self._known: dict[Key, _Asked] = {}

    def unanswered(self, keys: Iterable[Key], answered: Extent) -> set[Key]:
        """The conversations whose last request may still wait on its topic: another one would only
        wait behind it. What has waited for the longest pause counts as lost.
        """
        found: set[Key] = set()
        for key in keys:
            one = self._known.setdefault(key, _Asked())
            one.end = answered.end if one.end is None else one.end
            if answered.done < one.end and one.times < LONGEST:
                found.add(key)
        return found

    def pauses(self, keys: Iterable[Key], *, again: bool) -> dict[float, list[Key]]:
        """The conversations by the seconds until they may ask once more; not ``again``: what they
        ask for is new. What comes of it is noted by :meth:`paused`.
        """
        pauses: dict[float, list[Key]] = {}
        for key in keys:
            known = self._known.get(key)
            before = known.times if known is not None and again else 0
            times = max(1, min(before * GROWTH, LONGEST))
            pauses.setdefault(self._first * times, []).append(key)
        return pauses

    def paused(self, keys: Iterable[Key], pause: float) -> None:
        """The store has it that conversations wait so many seconds. Before, their pauses do not
        grow: while Redis is away the same conversations come up every second.
        """
        if len(self._known) >= MAX_KNOWN:
            self._known.clear()
        for key in keys:
            self._known.setdefault(key, _Asked()).times = round(pause / self._first)

    def begin(self, keys: Iterable[Key]) -> None:
        """What these conversations ask for is new, and was not asked yet."""
        for key in keys:
            self._known.pop(key, None)

    def sent(self, keys: Iterable[Key]) -> None:
        """Another request went out: where it ends is looked at when it is due again."""
        for key in keys:
            if key in self._known:
                self._known[key].end = None


class CompactionScheduler:
    """Sends the requests of due windows, for one projector, and notes when to send them again.

    Whoever calls holds the partition's ``turn``.
    """

    def __init__(
        self,
        publisher: Publisher,
        store: WaitingWork,
        first_pause: float,
        answered: Answered | None = None,
        most: Callable[[], int] = lambda: MOST_SENT,
    ) -> None:
        """Args:
        answered: how far compactors are; None: every pause ends with a request, and a tenant's
            requests are not bounded.
        most: gives how many requests of a tenant may wait on each partition of their topic.
        """
        self._publisher = publisher
        self._store = store
        self._answered = answered
        self._most = most if answered is not None else lambda: sys.maxsize
        self._first = first_pause
        self._patience = Patience(first_pause)
        self._turns: WeakKeyDictionary[Partition, RequestTurns] = WeakKeyDictionary()

    async def ask(
        self,
        partition: Partition,
        windows: Sequence[Window],
        places: Mapping[Key, str] = NO_PLACES,
    ) -> None:
        """Ask for what these windows became due for, those of them whose turn it is, and for some
        that wait; raises KafkaUnavailable, RedisUnavailable, and comes up again then. ``places``
        are the trace parents of the events by which they are due.
        """
        turns = self._turns_of(partition)
        turns.accepted(self._publisher.take_accepted(partition.number))
        at_once = turns.at_once(window.key for window in windows)
        await self._send(partition, [w for w in windows if w.key in at_once], places)
        later = [window.key for window in windows if window.key not in at_once]
        self._patience.begin(later)
        turns.wait(later)
        await self._wait(partition, later)
        await self._go_on(partition, turns, LOADED_AT_ONCE)

    async def ask_again(self, partition: Partition, now_ms: int) -> None:
        """Ask once more for what was asked for and has not come, and for what waits for its turn;
        raises as :meth:`ask`.

        Not while the request may still wait for a compactor: of a backlog of 10,000, loading each
        window and asking again took the worker's whole time.
        """
        turns = self._turns_of(partition)
        keys = await self._store.due(partition.generation, partition.number, now_ms, LOOKED_AT)
        asked = [key for key in keys if not turns.waits(key)]
        waiting: set[Key] = set()
        if (answered := await self._extent(partition, turns, bool(asked))) is not None:
            turns.passed(answered)
            waiting = self._patience.unanswered(asked, answered)
            await self._put_off(partition, waiting, again=True)
        lost = [key for key in asked if key not in waiting]
        turns.lost(set(lost))
        turns.wait(lost)
        over = waiting | await self._go_on(partition, turns, ASKED_AT_ONCE)
        await self._wait(partition, [key for key in keys if key not in over])

    async def _extent(
        self, partition: Partition, turns: RequestTurns, needed: bool
    ) -> Extent | None:
        """How far compactors are; None where that is not to be looked at now."""
        now = time.monotonic()
        late = now >= turns.looked + LOOK_EVERY
        if self._answered is None or not (needed or (late and turns.full)):
            return None
        turns.looked = now
        return (await self._answered([partition.number]))[partition.number]

    async def _go_on(self, partition: Partition, turns: RequestTurns, most: int) -> set[Key]:
        """Ask for what waits and has its turn, at most so much; returns those."""
        keys = turns.next(most)
        for first in range(0, len(keys), LOADED_AT_ONCE):
            part = keys[first : first + LOADED_AT_ONCE]
            windows = await partition.due_windows(part)
            await self._send(partition, windows, again=True)
            # What is not to be summarised, as a window in quarantine, does not stand in the way.
            await self._put_off(partition, set(part) - {w.key for w in windows}, again=True)
        return set(keys)

    async def _send(
        self,
        partition: Partition,
        windows: Sequence[Window],
        places: Mapping[Key, str] = NO_PLACES,
        *,
        again: bool = False,
    ) -> None:
        windows = [one for one in windows if not partition.checkpoint.heals(one.key)]
        if not windows:
            return
        requests = [
            request
            for window in windows
            if (request := request_for(window, partition.generation)) is not None
        ]
        for request in requests if places else ():
            request.traceparent = places.get(Key(request.tenant, request.conversation))
        offsets = await self._publisher.request(requests)
        if self._answered is not None:
            self._turns_of(partition).sent(requests, offsets)
        keys = [window.key for window in windows]
        self._patience.sent(keys)
        await self._put_off(partition, keys, again=again)

    async def _put_off(self, partition: Partition, keys: Iterable[Key], *, again: bool) -> None:
        for pause, those in self._patience.pauses(keys, again=again).items():
            await self._come_up_in(partition, those, pause)
            self._patience.paused(those, pause)

    async def _wait(self, partition: Partition, keys: list[Key]) -> None:
        """Windows wait for their turns. In the store they come up later: they would hide others',
        and what is remembered of turns may be lost.
        """
        if keys:
            await self._come_up_in(partition, keys, self._first)

    async def _come_up_in(self, partition: Partition, keys: list[Key], pause: float) -> None:
        at_ms = int((time.time() + pause) * 1000)
        await self._store.requested(partition.generation, partition.number, keys, at_ms)

    def _turns_of(self, partition: Partition) -> RequestTurns:
        found = self._turns.get(partition)
        if found is None:
            found = RequestTurns(COUNTED * self._first, self._most)
            self._turns[partition] = found
        return found


class StillDue:
    """Whether a request's window still asks for what it says."""

    def __init__(
        self,
        heads: WindowReader,
        live: Callable[[], int],
        ends: Callable[[], Awaitable[Mapping[int, int]]] | None = None,
    ) -> None:
        """Args:
        live: gives the live generation's number.
        ends: gives the offset after each partition's last record; None: no other worker can
            have answered what is asked here.
        """
        self._heads = heads
        self._live = live
        self._ends = ends
        self._known: Mapping[int, int] | None = None

    def handed_over(self) -> None:
        """Requests come that another worker may have answered just now: its summaries may be in the
        log, and not in the windows yet.
        """
        self._known = None

    async def __call__(self, request: CompactionRequest) -> bool:
        """False when the summary was accepted meanwhile, the span changed, or the generation is not
        the live one any more.

        Raises:
            Healing, CorruptWindow, RedisUnavailable: it is unknown now; it is requested again.
        """
        if request.generation != self._live():
            return False
        key = Key(request.tenant, request.conversation)
        checkpoint, fields = await self._heads.fields(
            request.generation, request.partition, key, [HEAD]
        )
        if checkpoint is None or checkpoint.heals(key):
            raise Healing(
                f"partition {request.partition} is being brought back from the log: {key} asks"
                " again when it is back"
            )
        if self._known is None and self._ends is not None:
            self._known = await self._ends()
        end = 0 if self._known is None else self._known.get(request.partition, 0)
        if not checkpoint.includes(end - 1, key):
            raise Healing(
                f"{key} of partition {request.partition} is not applied up to where that ended when"
                " its requests came here"
            )
        if HEAD not in fields:
            return False
        with stored_form(key):
            head = decode_head(fields[HEAD])
        due = head.due
        asked = (request.first, request.last, request.kept)
        # A rollback since then does not matter: the window takes what covers these events.
        return due is not None and (due.first, due.last, delta(list(due.kept))) == asked
