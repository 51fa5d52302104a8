"""The parts of a worker: projector and compactor, with what they run on. Faust around them:
:mod:`streams.worker`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

from projections.errors import InvalidSettings, ThreadfoldError, TopicMismatch
from projections.redis.daily_counts import DailyCounts
from projections.redis.shared_buckets import SharedBuckets
from projections.redis.store import RedisStore
from streams.compaction.compactor import Compactor
from streams.compaction.dispatcher import Dispatcher
from streams.compaction.summarizers.budgets import Budgets
from streams.compaction.summarizers.registry import Summarizers, prepare
from streams.control.control_topic import Control
from streams.control.key_ring import KeyRing, encrypting
from streams.embeddings.registry import Embeddings
from streams.log.kafka_log import KafkaLog
from streams.log.topics import partition_count
from streams.memory.encoder import Encoder
from streams.memory.fusion_judge import FusionJudge
from streams.memory.model_extraction import SpanExtraction
from streams.memory.neighbours import OwnNeighbours
from streams.metrics.declared import WORKER_CERTIFICATES
from streams.metrics.metrics import Metrics
from streams.metrics.reports import WORKERS, Reporter
from streams.metrics.server import MetricsServer
from streams.projector.compaction_scheduler import StillDue, answered_requests
from streams.projector.progress import AnswerProgress, FoldProgress
from streams.projector.projector import Projector
from streams.recovery.hydrating_reader import HydratingReader
from streams.recovery.revival import Revival, rules_of
from streams.recovery.snapshot_topic import KafkaSnapshots
from streams.runtime.processor import Processes, Processor
from streams.runtime.watchdog import Look, Probe, Watchdog
from streams.settings.certificates import known_ends
from streams.settings.quotas import Quota
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)

PARTS = frozenset(("projector", "compactor"))
"""What a worker may run; each alone scales apart."""
PROJECTOR_STOP = 6.0
"""Seconds of a worker's end for the projector to write the snapshots that are due and to leave its
group.
"""


class Runtime:
    """The parts a worker runs on, started and stopped together."""

    def __init__(
        self,
        settings: Settings,
        *,
        parts: frozenset[str] = PARTS,
        processor: Processor | None = None,
    ) -> None:
        """Args: ``parts`` are those that run; ``processor`` is where work is done that takes a core
        for long, None: in processes of its own.
        """
        self.settings = settings.require()
        self.parts = parts
        self.control = Control(settings)
        self.keys = KeyRing(settings, encrypting(self.control))
        self.store = RedisStore(settings.redis, settings.topic_prefix, compress=settings.compress)
        self.log: KafkaLog | None = None
        self.projector: Projector | None = None
        self.failure: ThreadfoldError | None = None
        """Why the projector ended, where that has a name."""
        self.compactor: Compactor | None = None
        self.dispatcher: Dispatcher | None = None
        self._dispatches = asyncio.Event()
        self.processes: Processes | None = None
        self._processor = processor
        self._default_quota = settings.quota()
        self.metrics = Metrics()
        self.metrics.read(WORKER_CERTIFICATES, lambda: known_ends(settings))
        self._served = MetricsServer(self.metrics)
        self._reporter = Reporter(self.metrics, settings, WORKERS)
        self._summarizers: Summarizers | None = None
        self._shared = SharedBuckets(settings.redis, settings.topic_prefix, timeout=5.0)
        self._counts = DailyCounts(settings.redis, settings.topic_prefix)
        self._neighbours: OwnNeighbours | None = None
        self._still_due: StillDue | None = None
        self._snapshots: KafkaSnapshots | None = None
        self._revival: Revival | None = None
        self.watchdog: Watchdog | None = None
        self._answered = answered_requests(settings)
        self._projecting: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Connect, and refuse to run over a log whose partition count is not the one its windows
        were built on.

        Raises:
            KafkaUnavailable, RedisUnavailable, TopicMismatch: as named.
            KeyUnusable: a master key that wraps keys is missing, or is another one.
        """
        partitions = await partition_count(self.settings)
        await self.control.start()
        generation = await self.control.ensure_generation(partitions)
        generation.check_partitions(self.settings.topic("events"), partitions)
        await self.keys.start()
        self.keys.check()
        server = await self.store.ping()
        if server["maxmemory_policy"] != "noeviction":
            raise TopicMismatch(
                f"Redis has maxmemory-policy {server['maxmemory_policy']}: set noeviction;"
                " otherwise Redis deletes windows without notice"
            )
        self.log = KafkaLog(self.settings, partitions, seals=self.keys)
        if "projector" in self.parts:
            self.projector = Projector(
                self.settings,
                self.control,
                self.log,
                self.store,
                self.metrics,
                self._answered.of,
            )
        if "compactor" in self.parts:
            self._make_compactor(self.log)

    def _make_compactor(self, log: KafkaLog) -> None:
        if self.projector is None:
            # A projector brings back windows that sleep itself.
            self._snapshots = KafkaSnapshots(self.settings, log.partitions)
            self._revival = Revival(self._snapshots, log, rules_of(self.control))
            self.store.reader = HydratingReader(self.store, self._revival)
        if self._processor is None:
            self._processor = self.processes = Processes(
                self.settings.compactor_processes, self._weight, prepare
            )
        budgets = Budgets(self._counts, self._quota_of)
        self._summarizers = Summarizers(
            self.settings,
            processor=self._processor,
            shared=self._shared,
            weight=self._weight,
            budgets=budgets,
            metrics=self.metrics,
        )
        self._still_due = StillDue(
            self.store, lambda: self.control.state.live_generation.number, log.last_records
        )
        self.compactor = Compactor(
            self.settings,
            log,
            self._summarizers.get,
            self._still_due,
            self.metrics,
            self._processor,
        )
        self.dispatcher = Dispatcher(
            self.compactor,
            self._summarizers.limits,
            self.settings.compactor_processes,
            self._weight,
            self.metrics,
            self._make_encoder(log, budgets),
        )
        self._dispatches.set()

    def _make_encoder(self, log: KafkaLog, budgets: Budgets) -> Encoder:
        embeddings: Embeddings | None = None
        try:
            embeddings = Embeddings(self.settings, shared=self._shared, budgets=budgets)
        except InvalidSettings as error:
            # A gateway needs the keys of endpoints; here words do, too.
            logger.warning("records are fused by their words alone: %s", error)
        self._neighbours = OwnNeighbours(self.settings, self.keys, embeddings)
        models = {} if self._summarizers is None else self._summarizers.models
        return Encoder(
            self.settings,
            log,
            lambda: self.store.reader,
            rules_of(self.control),
            lambda: self.control.state.live_generation.number,
            self._neighbours,
            self.metrics,
            SpanExtraction(models, 2 * self.settings.summary_time_cap, self.metrics),
            FusionJudge(models, self.metrics),
        )

    async def show_metrics(self) -> None:
        """Serve the metrics, and report them for gateways to show; raises InvalidSettings."""
        if self.settings.metrics_port:
            where = await self._served.start(self.settings.metrics_host, self.settings.metrics_port)
            logger.info("metrics are at %s", where)
        self._reporter.start()

    def _quota_of(self, tenant: str) -> Quota:
        return self.control.state.quota_of(tenant, self._default_quota)

    def _weight(self, tenant: str) -> float:
        return self._quota_of(tenant).summary_weight or 1.0

    async def dispatching(self) -> Dispatcher:
        """The dispatcher, once :meth:`start` made it."""
        await self._dispatches.wait()
        assert self.dispatcher is not None
        return self.dispatcher

    def handed_over(self) -> None:
        """Requests come that another worker may have answered just now."""
        if self._still_due is not None:
            self._still_due.handed_over()

    def watch(self, assigned: Callable[[], set[int]], end: Callable[[str], None]) -> None:
        """Begin to watch that partitions and requests move on; ``end`` is called when they do not
        (:mod:`streams.runtime.watchdog`).

        Args: ``assigned`` gives the partitions of requests that this process has.
        """
        if not self.settings.watchdog_seconds or self.log is None:
            return
        probes: list[Probe] = []
        if self.projector is not None:
            probes.append(FoldProgress(self.projector, self.log, self.store))
        if self.dispatcher is not None:
            dispatcher = self.dispatcher
            probes.append(AnswerProgress(self._answered.of, assigned, lambda: dispatcher.progress))

        async def looks() -> dict[str, Look]:
            return {name: look for probe in probes for name, look in (await probe()).items()}

        # A summary may take its whole time.
        self.watchdog = Watchdog(
            looks, max(self.settings.watchdog_seconds, 3 * self.settings.summary_time_cap), end
        )
        self.watchdog.start()

    async def project(self) -> None:
        """Run the projector, where this worker has one; raises what it does."""
        if self.projector is not None:
            self._projecting = asyncio.create_task(self.projector.run(), name="projector")
            try:
                await self._projecting
            except ThreadfoldError as error:
                self.failure = error
                raise

    async def stop_projecting(self) -> None:
        """Stop the watchdog and the projector, and wait for the projector's end.

        Faust cancels it a moment later. Cancelled in the middle of its end, what it began would go
        on with clients that are closed.
        """
        if self.watchdog is not None:
            self.watchdog.stop()
        if self.projector is not None:
            self.projector.stop()
        if self._projecting is not None:
            await asyncio.wait({self._projecting}, timeout=PROJECTOR_STOP)

    async def stop(self) -> None:
        """Stop the compactor and its processes, and the connections to Kafka and Redis."""
        await self._reporter.stop()
        await self._served.stop()
        if self.watchdog is not None:
            self.watchdog.stop()
        await self._answered.stop()
        if self.dispatcher is not None:
            await self.dispatcher.close()
        if self._neighbours is not None:
            await self._neighbours.stop()
        if self._summarizers is not None:
            await self._summarizers.close()
        if self.processes is not None:
            await self.processes.close()
        await self._shared.close()
        await self._counts.close()
        if self._revival is not None:
            await self._revival.stop()
        if self._snapshots is not None:
            await self._snapshots.stop()
        if self.log is not None:
            await self.log.stop()
        await self.keys.stop()
        await self.control.stop()
        await self.store.close()
