"""Kafka and Redis together: configured servers, or embedded ones."""

from __future__ import annotations

import math
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from pathlib import Path
from secrets import token_urlsafe
from typing import TypeVar

from threadfold.embedded.folder import DataFolder
from threadfold.embedded.kafka import USER, EmbeddedKafka
from threadfold.embedded.process import Lifecycle
from threadfold.embedded.redis import EmbeddedRedis
from threadfold.embedded.server import EmbeddedServer

Server = TypeVar("Server", bound=EmbeddedServer)


class EmbeddedStack(Lifecycle):
    """A Kafka and a Redis.

    ``data``: a folder that keeps their data across restarts, for one stack at a time; None: a
    temporary folder, which ``stop`` removes. ``kafka`` (host:port) and ``redis`` (URL): configured
    servers, which are neither started nor stopped here. ``passwords``: the embedded servers let in
    only who has the password in :attr:`addresses`, a new one for each stack. ``skip_system``: use
    the wheels' Java and Redis even if the system has its own. If the process that owns a stack
    dies, the guards end its servers, and the folder can be used again at once.
    """

    def __init__(
        self,
        data: Path | None = None,
        *,
        kafka: str | None = None,
        redis: str | None = None,
        skip_system: bool = False,
        passwords: bool = False,
    ) -> None:
        self.data = data
        self._passwords = passwords
        self._configured_kafka = kafka
        self._configured_redis = redis
        self._skip_system = skip_system
        self._folder: DataFolder | None = None
        self.embedded_kafka: EmbeddedKafka | None = None
        self.embedded_redis: EmbeddedRedis | None = None

    @property
    def kafka(self) -> str:
        """Kafka's address, ``host:port``; raises RuntimeError before the start."""
        return self._configured_kafka or _started(self.embedded_kafka).address

    @property
    def redis(self) -> str:
        """The URL of Redis; raises RuntimeError before the start."""
        return self._configured_redis or _started(self.embedded_redis).url

    @property
    def addresses(self) -> dict[str, str]:
        """What reaches both servers, by the names of :class:`~streams.settings.settings.Settings`:
        addresses, and the password of an embedded Kafka. Raises RuntimeError before the start.
        """
        found = {"kafka": self.kafka, "redis": self.redis}
        if self.embedded_kafka is not None and self.embedded_kafka.password:
            found |= {"kafka_user": USER, "kafka_password": self.embedded_kafka.password}
        return found

    @property
    def servers(self) -> list[EmbeddedServer]:
        """The embedded servers of this stack that were started."""
        return [each for each in (self.embedded_kafka, self.embedded_redis) if each is not None]

    def start(self) -> None:
        """Start what is not configured, side by side; returns when all answer.

        Raises EmbeddedUnavailable or DataFolderInUse, with nothing left running.
        """
        if self.servers or (self._configured_kafka and self._configured_redis):
            return
        self._folder = DataFolder.temporary() if self.data is None else DataFolder(self.data)
        try:
            self._folder.acquire()
            hold = (self._folder.descriptor,)
            root = self._folder.path
            if not self._configured_kafka:
                self.embedded_kafka = EmbeddedKafka(
                    root / "kafka",
                    skip_system=self._skip_system,
                    hold=hold,
                    password=self._new_password(),
                )
            if not self._configured_redis:
                persist = self.data is not None
                self.embedded_redis = EmbeddedRedis(
                    root / "redis",
                    skip_system=self._skip_system,
                    persist=persist,
                    hold=hold,
                    password=self._new_password(),
                )
            self._start_servers()
        except BaseException:
            self.stop()
            raise

    def _new_password(self) -> str:
        return token_urlsafe(24) if self._passwords else ""

    def _start_servers(self) -> None:
        servers = self.servers
        with ThreadPoolExecutor(len(servers)) as pool:
            tasks = [pool.submit(server.start) for server in servers]
            try:
                wait(tasks, return_when=FIRST_EXCEPTION)
                for task in tasks:
                    if task.done():
                        task.result()
            except BaseException:
                # A server that still starts gives up, so leaving the pool does not wait for it.
                for server in servers:
                    server.stop()
                raise

    def stop(self, within: float = math.inf) -> None:
        """Stop what was started here, after ``within`` seconds by force, and release the folder. It
        can be repeated.
        """
        try:
            servers = self.servers
            if servers:
                with ThreadPoolExecutor(len(servers)) as pool:
                    for task in [pool.submit(server.stop, within) for server in servers]:
                        task.result()
        finally:
            self.embedded_kafka = None
            self.embedded_redis = None
            if self._folder is not None:
                self._folder.release()
                self._folder = None


def _started(server: Server | None) -> Server:
    if server is None:
        raise RuntimeError("the stack was not started")
    return server
