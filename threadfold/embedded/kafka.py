"""A real single-node Kafka (KRaft, broker and controller in one) for laptops, demos and tests."""

from __future__ import annotations

import base64
import math
import os
import re
import uuid
from collections.abc import Sequence
from pathlib import Path

from projections.errors import EmbeddedUnavailable
from threadfold.embedded.archive import ClassArchive
from threadfold.embedded.folder import write_private
from threadfold.embedded.jars import kafka_jars
from threadfold.embedded.java import Java, find_java, require
from threadfold.embedded.ports import HOST, free_ports
from threadfold.embedded.probe import kafka_cluster
from threadfold.embedded.process import GuardedProcess
from threadfold.embedded.server import EmbeddedServer

MAX_MESSAGE_BYTES = 16 << 20
"""The largest record batch: above the largest tool result (8 MiB) with its envelope."""

SESSION_TIMEOUT_MS = 4000
"""How long a killed broker counts as alive; the next start waits (Kafka's default: 9 s)."""

FORMAT_TIMEOUT = 60.0
TRAINING_GRACE = 60.0
"""Seconds for a stop that writes the class archive: once per Java and cache folder."""

USER = "threadfold"
"""Who logs in where a password is asked for."""
_SASL = "PLAIN"
_OWN_CLIENTS = ("inter.broker", "controller")

CLUSTER_FILE = "cluster.id"
_CONFIG_FILE = "server.properties"
_LOGGING_FILE = "log4j2.properties"
# relative to the data folder, the JVM's working folder: a comma in the folder's path cannot split
# log.dirs
_STORAGE = "log"
_DAMAGED = re.compile(r"CorruptRecordException: (.*) in file (\S*)\.(?=\s|$)")

_LOGGING = """\
status = warn
appender.out.type = Console
appender.out.name = out
appender.out.layout.type = PatternLayout
appender.out.layout.pattern = %d{ISO8601} %p %c{1}: %m%n
rootLogger.level = warn
rootLogger.appenderRef.out.ref = out
"""


class EmbeddedKafka(EmbeddedServer):
    """Kafka 4.1 on 127.0.0.1 with its data, ``server.properties`` and ``kafka.log`` in ``data``.

    The storage is formatted on the first start; cluster id and records outlive restarts, also on
    another port. ``port``: a free one if None. ``java``: that executable, else as
    :func:`~threadfold.embedded.java.find_java`. ``heap``: the JVM's ``-Xmx``. Like any Kafka it
    does not sync to disk on each write: a killed process loses nothing, a power cut may.
    ``archive``: use and, if missing, write the class archive that makes starts faster.
    """

    name = "kafka"

    def __init__(
        self,
        data: Path,
        *,
        port: int | None = None,
        java: Path | None = None,
        heap: str = "384m",
        skip_system: bool = False,
        hold: Sequence[int] = (),
        timeout: float = 90.0,
        cache: Path | None = None,
        archive: bool = True,
        password: str = "",
    ) -> None:
        super().__init__(data, port=port, hold=hold, timeout=timeout, password=password)
        self.java = java
        self.heap = heap
        self.skip_system = skip_system
        self.cache = cache
        self._use_archive = archive
        self._archive: ClassArchive | None = None
        self.runtime: Java | None = None
        """The Java it runs on, known once it was started."""
        self._cluster: str | None = None

    @property
    def cluster_id(self) -> str:
        """The cluster's id, the same over all restarts on this data folder; raises RuntimeError
        before the first start.
        """
        if self._cluster is None:
            raise RuntimeError("the embedded kafka was not started")
        return self._cluster

    def start(self) -> None:
        """Start Kafka; returns when a client could use it. See :meth:`EmbeddedServer.start` for
        what it raises.
        """
        try:
            super().start()
        except BaseException:
            self._settle(tidy=False)
            raise

    def stop(self, within: float = math.inf) -> None:
        """Stop Kafka in about half a second; the first time it also writes the class archive. See
        :meth:`EmbeddedServer.stop`.
        """
        training = self._archive is not None and self._archive.is_training
        self.grace = TRAINING_GRACE if training and self.poll() is None else type(self).grace
        super().stop(within)
        self._settle(tidy=self.poll() in (0, 143))  # 143: ended by SIGTERM, as the JVM says it

    def kill(self) -> None:
        """End Kafka with SIGKILL; the next start takes up to four seconds more, until the broker's
        session has expired.
        """
        super().kill()
        self._settle(tidy=False)

    def _settle(self, *, tidy: bool) -> None:
        if self._archive is not None:
            self._archive.finish(tidy=tidy)

    def _launch(self, port: int | None) -> tuple[int, GuardedProcess]:
        own, controller = free_ports(2)
        chosen = own if port is None else port
        java = (
            find_java(skip_system=self.skip_system)
            if self.java is None
            else require(self.java, "java")
        )
        self.runtime = java
        jars = kafka_jars(self.cache)
        self._cluster = self._stable_cluster_id()
        properties = self.properties(chosen, controller).items()
        write_private(self.data / _CONFIG_FILE, "".join(f"{k}={v}\n" for k, v in properties))
        (self.data / _LOGGING_FILE).write_text(_LOGGING)
        self._settle(tidy=False)  # of an earlier try
        self._archive = ClassArchive(java, jars) if self._use_archive else None
        if not (self.data / _STORAGE / "meta.properties").exists():
            self._format(java, jars)
        flags = self._archive.flags() if self._archive is not None else []
        return chosen, self._run(java, jars, flags, ["kafka.Kafka", _CONFIG_FILE])

    def properties(self, port: int, controller: int) -> dict[str, object]:
        """``server.properties`` of one node: small internal topics, none created by accident, no
        waiting for peers.
        """
        return {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@{HOST}:{controller}",
            "listeners": f"BROKER://{HOST}:{port},CONTROLLER://{HOST}:{controller}",
            "advertised.listeners": f"BROKER://{HOST}:{port}",
            **self._access(),
            "inter.broker.listener.name": "BROKER",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": _STORAGE,
            "auto.create.topics.enable": "false",
            "message.max.bytes": MAX_MESSAGE_BYTES,
            "replica.fetch.max.bytes": MAX_MESSAGE_BYTES,
            "offsets.topic.replication.factor": 1,
            "offsets.topic.num.partitions": 8,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": 1,
            "share.coordinator.state.topic.min.isr": 1,
            "share.coordinator.state.topic.num.partitions": 1,
            "group.initial.rebalance.delay.ms": 0,
            "group.min.session.timeout.ms": 1000,
            "broker.session.timeout.ms": SESSION_TIMEOUT_MS,
            "broker.heartbeat.interval.ms": 500,
            "num.network.threads": 2,
            "num.io.threads": 4,
            # Kafka's default, 128 MiB, is a third of the heap.
            "log.cleaner.dedupe.buffer.size": 16 << 20,
        }

    def _access(self) -> dict[str, object]:
        """Who may connect, to the controller as well: with a password those who log in with it by
        SASL/PLAIN, else everybody.
        """
        listeners = ("BROKER", "CONTROLLER")
        protocol = "SASL_PLAINTEXT" if self.password else "PLAINTEXT"
        access = {
            "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name in listeners)
        }
        if self.password:
            login = (
                "org.apache.kafka.common.security.plain.PlainLoginModule required"
                f' username="{USER}" password="{self.password}" user_{USER}="{self.password}";'
            )
            access |= {f"sasl.mechanism.{use}.protocol": _SASL for use in _OWN_CLIENTS}
            for name in map(str.lower, listeners):
                access[f"listener.name.{name}.sasl.enabled.mechanisms"] = _SASL
                access[f"listener.name.{name}.plain.sasl.jaas.config"] = login
        return dict(access)

    def _remedy(self, said: str) -> str:
        damaged = _DAMAGED.search(said)
        if damaged is None:
            return ""
        # A Kafka that ended in order does not check its files at the next start, but at the one
        # after that.
        return (
            f"Its file {damaged[2]} is damaged ({damaged[1]}): if you have a backup of the data"
            " folder, bring it back now; the next start checks all files and cuts off what it"
            " cannot read, for good. "
        )

    def _run(
        self, java: Java, jars: list[Path], flags: list[str], main: list[str]
    ) -> GuardedProcess:
        # With its second compiler the JVM takes twice the processor for its start, and for each of
        # the first 30,000 appends; few stacks on a laptop live long enough to earn that back.
        jit = "-XX:TieredStopAtLevel=1"
        options = [f"-Xmx{self.heap}", "-XX:+UseSerialGC", jit, "-Djava.awt.headless=true", *flags]
        options += [f"-Dlog4j2.configurationFile={_LOGGING_FILE}"]
        command = [str(java.path.absolute()), *options, "-cp", os.pathsep.join(map(str, jars))]
        process = GuardedProcess([*command, *main], log=self.log, cwd=self.data, pass_fds=self.hold)
        process.start()
        return process

    def _format(self, java: Java, jars: list[Path]) -> None:
        """Write the storage's first records; meta.properties comes last, so a format that was cut
        off is done again.
        """
        tool = ["kafka.tools.StorageTool", "format", "--ignore-formatted"]
        tool += ["-t", self.cluster_id, "-c", _CONFIG_FILE]
        there = self._archive is not None and self._archive.path.exists()
        use = self._archive.flags() if self._archive is not None and there else []
        process = self._run(java, jars, use, tool)
        try:
            code = process.wait(FORMAT_TIMEOUT)
        except TimeoutError as error:
            raise EmbeddedUnavailable(
                f"Formatting Kafka's storage took over {FORMAT_TIMEOUT:g} s. {self._tail()}"
            ) from error
        finally:
            process.stop(0.0)
        if code != 0:
            raise EmbeddedUnavailable(
                f"Kafka's storage in {self.data} could not be formatted. {self._tail()}"
            )

    def _stable_cluster_id(self) -> str:
        file = self.data / CLUSTER_FILE
        if not file.exists():
            part = file.with_suffix(".part")
            part.write_text(new_cluster_id())
            part.replace(file)
        return file.read_text().strip()

    def _answers(self, port: int, process: GuardedProcess) -> bool:
        login = (USER, self.password) if self.password else None
        return kafka_cluster(HOST, port, login) == self._cluster


def new_cluster_id() -> str:
    """Return a random UUID as Kafka writes them: 22 characters of URL-safe base64, no dash in front
    (it would be an option).
    """
    while True:
        text = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        if not text.startswith("-"):
            return text
