"""How often a summary is asked for, and whether an answer is still due: what keeps a slow
summariser from drowning in repeats.

Requests are sent again until a summary is accepted, and wait on their topic while summarisers are
slow or fail. So the pause before each repeat is longer than the one before, and whoever takes a
request from the topic first looks whether its window still asks for just that: of a queue of
repeats one is answered, and paid for, and the others cost one look.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

from projections.errors import Healing
from projections.events.types import delta
from projections.names import Key
from projections.storage.layout import HEAD, decode_head
from projections.storage.protocol import WaitingWork, WindowReader
from projections.storage.records import stored_form
from projections.window.window import Window
from streams.compaction.requests import CompactionRequest, request_for
from streams.partition.partition import Partition
from streams.projector.effect_sink import Publisher

GROWTH = 2
LONGEST = 16
"""Each pause is so many times the one before, up to so many times the first."""
MAX_KNOWN = 50_000
"""Conversations whose number of requests is remembered; beyond, all begin anew."""


class Patience:
    """How long each conversation's next request has to wait. In memory only: who takes over begins
    with the shortest pause.
    """

    def __init__(self, first: float) -> None:
        """Args: ``first`` is the pause after a first request, in seconds: a summariser's total time
        cap.
        """
        self._first = first
        self._times: dict[Key, int] = {}

    def pauses(self, keys: Iterable[Key], *, again: bool) -> dict[float, list[Key]]:
        """The conversations by the seconds until they may ask once more; not ``again``: what they
        ask for is new.
        """
        if len(self._times) >= MAX_KNOWN:
            self._times.clear()
        pauses: dict[float, list[Key]] = {}
        for key in keys:
            times = min(self._times[key] * GROWTH, LONGEST) if again and key in self._times else 1
            self._times[key] = times
            pauses.setdefault(self._first * times, []).append(key)
        return pauses


class CompactionScheduler:
    """Sends the requests of due windows, for one projector, and notes when to send them again."""

    def __init__(self, publisher: Publisher, store: WaitingWork, first_pause: float) -> None:
        self._publisher = publisher
        self._store = store
        self._patience = Patience(first_pause)

    async def ask(
        self, partition: Partition, windows: Sequence[Window], *, again: bool = False
    ) -> None:
        """Ask for what these windows are due for; raises KafkaUnavailable, RedisUnavailable, and
        comes up again then.
        """
        if not windows or partition.checkpoint.healing:
            return
        requests = [
            request
            for window in windows
            if (request := request_for(window, partition.generation)) is not None
        ]
        await self._publisher.request(requests)
        for pause, keys in self._patience.pauses(
            [window.key for window in windows], again=again
        ).items():
            at_ms = int((time.time() + pause) * 1000)
            await self._store.requested(partition.generation, partition.number, keys, at_ms)


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
        if checkpoint is None or checkpoint.healing:
            raise Healing(
                f"partition {request.partition} is being brought back from the log: {key} asks"
                " again when it is back"
            )
        if self._known is None and self._ends is not None:
            self._known = await self._ends()
        if self._known is not None and checkpoint.offset + 1 < self._known.get(
            request.partition, 0
        ):
            raise Healing(
                f"partition {request.partition} is not applied up to where it ended when its"
                " requests came here"
            )
        if HEAD not in fields:
            return False
        with stored_form(key):
            head = decode_head(fields[HEAD])
        due = head.due
        asked = (request.first, request.last, request.kept)
        # A rollback since then does not matter: the window takes what covers these events.
        return due is not None and (due.first, due.last, delta(list(due.kept))) == asked
