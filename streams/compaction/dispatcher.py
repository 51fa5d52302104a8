"""Who is answered when: requests wait for what they need, an endpoint or a processor, and for
nothing else.

Each summariser has a line of its own, in which tenants take turns. So a slow endpoint holds up no
other summariser, and a tenant with a long backlog no other tenant. A request is done when its
summary is in the log, when nobody asks for it any more, or when it can never be answered; while
Kafka or Redis is away it is tried again.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any, Protocol

import msgspec

from projections.errors import Healing, KafkaUnavailable, RedisUnavailable, ThreadfoldError
from projections.events.untrusted import Undecodable, json_decoder
from projections.names import Key, Position
from streams.compaction.summarizers.endpoint_limits import EndpointLimits
from streams.compaction.summarizers.failures import CallNotAllowed
from streams.compaction.summarizers.guarded import count_fallback
from streams.metrics.declared import WAITING, Metric
from streams.metrics.metrics import Metrics
from streams.runtime.fair_limit import FairLimit
from streams.runtime.log_fields import about
from streams.runtime.process_pool import cores
from streams.runtime.spare_time import SpareTime
from streams.runtime.tasks import end_tasks

logger = logging.getLogger(__name__)
unreadable = logging.getLogger(f"{__name__}.unreadable")
"""Of records that anybody may have written: throttled."""

MAX_HELD = 50_000
MAX_BYTES = 64 << 20
"""Requests that a worker holds at most, and their bytes; further ones stay on their topic. Each
takes 20 KB: 1 GB in all. Three tenants with :data:`MOST_LEARNING` leave room for others' windows;
of those few are on the topic (``streams.projector.request_turns``).
"""
MOST_LEARNING = 15_000
"""Of those, a tenant's to learn. Further ones are passed over: on their topic, all that comes after
them would wait for them, and others' windows for their summaries.
"""
AHEAD = 2
"""Spans that are read beside those that the processors work on."""
TRIES = 3
"""Times that a request is tried which fails for no cause outside of it."""
PAUSE = 0.5
LONGEST_PAUSE = 15.0
"""Seconds until a request is tried again, at first and at most."""
COMPACTION, EXTRACTION = "compaction", "extraction"
"""Kinds of requests."""
EXTRACTIONS_AT_ONCE = 32
"""Spans that are learnt from at once without a model: most of their time they wait for the fold."""


class Answering(Protocol):
    """Answers one kind of requests; see :class:`streams.compaction.compactor.Compactor`.

    ``what`` and ``failed`` say of a conversation what is done, and that it failed.
    ``fallback`` answers where an endpoint is not to be called; ``fallbacks`` is the metric of that.
    ``counted`` is the metric of what becomes of requests, by reason, who answers and outcome.
    """

    what: str
    failed: str
    fallback: str
    fallbacks: Metric
    counted: Metric

    def read(self, value: bytes) -> Any:
        """The request of a record of their topic, None where it is none."""

    async def answer_if_due(
        self, request: Any, allowed: Callable[[], Awaitable[None]] | None = None
    ) -> Position | None:
        """Answer it; None where there is nothing to answer. ``allowed`` is awaited before a model
        is called.
        """


class _Asked(msgspec.Struct):
    """What has to be known of a request that waits; the rest stays as it came, which is smaller."""

    request_id: str
    tenant: str
    conversation: str
    summarizer: str
    reason: str = ""
    kind: str = COMPACTION

    @property
    def key(self) -> Key:
        return Key(self.tenant, self.conversation)

    @property
    def learner(self) -> str | None:
        """The tenant whose memory is to learn; None for any other request."""
        return self.tenant if self.kind == EXTRACTION else None


_asked = json_decoder(_Asked)


class _HandedOver(Exception):
    """A request is another worker's now."""


class _Held:
    """A request with all its deliveries that are not done yet."""

    def __init__(self, asked: _Asked, value: bytes, until: float) -> None:
        self.asked = asked
        self.value = value
        self.until = until
        self.done: list[Callable[[], None]] = []
        self.current: list[Callable[[], bool]] = []

    def check(self) -> None:
        """Raise where the request went to another worker: it would be paid for twice."""
        if not any(current() for current in self.current):
            raise _HandedOver


class Dispatcher:
    """Has requests answered, as many at once as their summarisers take. For one event loop."""

    def __init__(
        self,
        compactor: Answering,
        limits: Mapping[str, EndpointLimits],
        processes: int = 0,
        weight: Callable[[str], float] = lambda tenant: 1.0,
        metrics: Metrics | None = None,
        encoder: Answering | None = None,
    ) -> None:
        """Args:
        limits: those of each endpoint.
        processes: how many extractive summaries are made at once, 0: one a core.
        weight: a tenant's share.
        encoder: who learns from spans; None: nobody, such requests are passed over.
        """
        self.finished = 0
        """Requests that are done."""
        self._waits = 0
        self._answering = {COMPACTION: compactor}
        if encoder is not None:
            self._answering[EXTRACTION] = encoder
        self._limits = limits
        self._places = {
            COMPACTION: FairLimit((processes or cores()) + AHEAD, weight),
            EXTRACTION: FairLimit(EXTRACTIONS_AT_ONCE, weight),
        }
        self._spare = SpareTime(lambda: not self._places[COMPACTION].free)
        self._held: dict[str, _Held] = {}
        self._learning: Counter[str | None] = Counter()
        """Requests to learn that are held, by tenant."""
        self._metrics = metrics or Metrics()
        self._metrics.read(WAITING, self._waiting)
        self._bytes = 0
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        """How many requests are held."""
        return len(self._held)

    @property
    def progress(self) -> tuple[int, int]:
        """Changes whenever something was done, or waits for a cause outside of this worker."""
        return self.finished, self._waits + sum(limits.waits for limits in self._limits.values())

    async def take(
        self,
        value: bytes | None,
        done: Callable[[], None],
        current: Callable[[], bool] = lambda: True,
    ) -> None:
        """Take a request; ``done`` is called once it is. Waits while too many are held.

        ``current`` returns whether it is still this worker's to answer; one that is not is let go
        without ``done``.
        """
        try:
            asked = _asked(value)
        except Undecodable:
            asked = None
        if asked is None or asked.kind not in self._answering:
            unreadable.warning("skipped a compaction request that cannot be read")
            done()
            return
        held = self._held.get(asked.request_id)
        if held is None and self._learning[asked.learner] >= MOST_LEARNING:
            self._pass_over(asked)
            done()
            return
        if held is None:
            while len(self._held) >= MAX_HELD or self._bytes >= MAX_BYTES:
                self._room.clear()
                await self._room.wait()
            held = self._hold(asked, value or b"")
        held.done.append(done)
        held.current.append(current)

    async def idle(self) -> None:
        """Wait until no request is held."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def close(self) -> None:
        """Drop all requests; those under way are cancelled."""
        await end_tasks(self._tasks)

    # -- parts
    # ------------------------------------------------------------------------------------------

    def _hold(self, asked: _Asked, value: bytes) -> _Held:
        limits = self._limits.get(asked.summarizer)
        now = asyncio.get_running_loop().time()
        held = _Held(asked, value, now + (limits.options.max_wait if limits else 0.0))
        self._held[asked.request_id] = held
        if asked.learner is not None:
            self._learning[asked.learner] += 1
        self._bytes += len(value)
        task = asyncio.create_task(self._handle(held), name=f"compaction of {asked.key}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return held

    async def _handle(self, held: _Held) -> None:
        try:
            over = await self._until_over(held)
        finally:
            self._held.pop(held.asked.request_id, None)
            self._forget_learner(held.asked.learner)
            self._bytes -= len(held.value)
            self._room.set()
        if over:
            self.finished += 1
            for done in held.done:
                done()

    async def _until_over(self, held: _Held) -> bool:
        """Try until it is done; False where it is not this worker's any more."""
        key, tries, pause = held.asked.key, 0, PAUSE
        answering = self._answering[held.asked.kind]
        while True:
            try:
                held.check()
                await self._try(held)
                return True
            except _HandedOver:
                return False
            except (KafkaUnavailable, RedisUnavailable, Healing) as error:
                self._waits += 1
                level = logging.INFO if isinstance(error, Healing) else logging.WARNING
                logger.log(
                    level, "%s waits: %s", answering.what % str(key), error, extra=about(key)
                )
            except ThreadfoldError as error:
                self._failed(held, str(error))
                return True
            except TimeoutError:
                tries += 1
                self._failed(held, "it took too long")
            except Exception:
                tries += 1
                self._count_failure(held)
                logger.exception(answering.failed, key, extra=about(key))
            if tries >= TRIES:
                return True
            await asyncio.sleep(pause)
            pause = min(2 * pause, LONGEST_PAUSE)

    async def _try(self, held: _Held) -> None:
        tenant, limits = held.asked.tenant, self._limits.get(held.asked.summarizer)
        places, answering = self._places[held.asked.kind], self._answering[held.asked.kind]
        if limits is None:
            async with places.of(tenant), self._turn(held.asked.kind):
                await self._answer(held, None)
            return
        try:
            async with limits.place(tenant, held.until):
                await self._answer(held, limits)
        except CallNotAllowed as error:
            async with places.of(tenant), self._turn(held.asked.kind):
                if await self._answer(held, None) is None:
                    return  # not due any more
            count_fallback(self._metrics, answering.fallbacks, limits.name, tenant, error)
            logger.warning(
                "%s; %s answered instead", error, answering.fallback, extra=about(held.asked.key)
            )

    def _turn(self, kind: str) -> AbstractAsyncContextManager[None]:
        """Windows wait for their summaries; what is learnt can wait for the processors."""
        return self._spare.turn() if kind == EXTRACTION else nullcontext()

    async def _answer(self, held: _Held, limits: EndpointLimits | None) -> Position | None:
        held.check()
        answering = self._answering[held.asked.kind]
        request = answering.read(held.value)
        if request is None:
            unreadable.warning("skipped a compaction request that cannot be read")
            return None
        if limits is None:
            if request.summarizer in self._limits:
                request = msgspec.structs.replace(request, summarizer=answering.fallback)
            return await answering.answer_if_due(request)

        async def allowed() -> None:
            await limits.take(held.asked.tenant, held.until)
            held.check()

        return await answering.answer_if_due(request, allowed)

    def _forget_learner(self, tenant: str | None) -> None:
        if tenant is not None:
            self._learning[tenant] -= 1
            if not self._learning[tenant]:
                del self._learning[tenant]

    def _pass_over(self, asked: _Asked) -> None:
        self._metrics.add(
            self._answering[EXTRACTION].counted, asked.reason, asked.summarizer, "passed_over"
        )
        logger.warning(
            "tenant %s has %d spans that the memory has not learnt from yet: further ones are"
            " passed over",
            asked.tenant,
            MOST_LEARNING,
            extra=about(asked.key),
        )

    def _failed(self, held: _Held, why: str) -> None:
        key = held.asked.key
        self._count_failure(held)
        failed = self._answering[held.asked.kind].failed
        logger.warning(failed + ": %s", key, why, extra=about(key))

    def _count_failure(self, held: _Held) -> None:
        counted = self._answering[held.asked.kind].counted
        self._metrics.add(counted, held.asked.reason, held.asked.summarizer, "failed")

    def _waiting(self) -> dict[tuple[str, ...], float]:
        return {**Counter((held.asked.summarizer,) for held in self._held.values())}
