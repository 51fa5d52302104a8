"""The services that ``up`` runs: workers and gateway, guarded. They and the embedded servers are
started again when they end.
"""

from __future__ import annotations

import contextlib
import http.client
import os
import ssl
import sys
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from pathlib import Path

import msgspec

from projections.errors import EmbeddedUnavailable, ThreadfoldError
from streams.settings.settings import PREFIX, Settings
from threadfold.cli.common import CONFIG_FILE, say
from threadfold.cli.restarts import Kept, is_full
from threadfold.embedded.folder import make_private
from threadfold.embedded.process import GuardedProcess, rotate_log
from threadfold.embedded.server import EmbeddedServer

POLL = 0.1
SAY_EVERY = 20.0
"""Seconds between two lines that say why it is not ready."""
ATTEMPTS = 3
"""Ends of one service before the stack is ready at which ``up`` gives up."""
START_GRACE = 5.0
"""Seconds for a server to stop that has not answered yet."""
HEAD_START = 3.0
"""Seconds after which the workers are stopped although the gateway has not ended: it hangs, as with
Kafka, and all is to end soon.
"""


def status_of(url: str, seconds: float) -> int | None:
    """The status that a gateway answers there; None: it does not answer, or not in time."""
    return _answer_of(url, seconds)[0]


def _answer_of(url: str, seconds: float) -> tuple[int | None, bytes]:
    """The same with the answer's body, empty but for a status of success."""
    # Whom the certificate is for does not matter here: it is this stack's own gateway.
    unchecked = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    unchecked.check_hostname, unchecked.verify_mode = False, ssl.CERT_NONE
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=unchecked)
    )
    try:
        with opener.open(url, timeout=seconds) as answer:
            return int(answer.status), answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""
    except (urllib.error.URLError, OSError, ValueError, http.client.HTTPException):
        return None, b""


class ServiceDied(ThreadfoldError):
    """A service ends again and again; the message has the last line of its log."""


class Service:
    """One service of threadfold and its current process."""

    def __init__(
        self, name: str, command: list[str], data: Path, env: dict[str, str], hold: Sequence[int]
    ) -> None:
        self.name = name
        self.command = [sys.executable, "-m", "threadfold.cli", *command]
        self.log = data / "logs" / f"{name}.log"
        self.process: GuardedProcess | None = None
        self._data, self._env, self._hold = data, env, hold

    def launch(self) -> None:
        """Start it in the data folder, because Faust makes a folder where it runs."""
        self.process = GuardedProcess(
            self.command, env=self._env, log=self.log, cwd=self._data, pass_fds=self._hold
        )
        self.process.start()

    def poll(self) -> int | None:
        """None while it runs, else its exit code."""
        return None if self.process is None else self.process.poll()


class Fleet:
    """Workers and gateway over running servers. For one thread; ``stop`` can be repeated."""

    def __init__(
        self,
        settings: Settings,
        data: Path,
        *,
        workers: int,
        metrics_port: int | None = None,
        servers: Sequence[EmbeddedServer] = (),
        hold: Sequence[int] = (),
    ) -> None:
        """Args: ``metrics_port`` is the first worker's, the others have the next ones; ``servers``
        restart on their ports when they end; every service inherits the descriptors in ``hold``.
        """
        self.settings = settings
        self.data = data
        self.logs = data / "logs"
        # The file holds all settings, so no variable of the environment may override it.
        names = {PREFIX + name.upper() for name in Settings.__struct_fields__}
        env = {name: value for name, value in os.environ.items() if name not in names}
        env[PREFIX + "CONFIG"] = str(data / CONFIG_FILE)
        self.gateway = Service("gateway", ["gateway"], data, env, hold)
        self.workers = [
            Service(
                f"worker-{number}",
                ["worker", *_metrics_at(metrics_port and metrics_port + number - 1)],
                data,
                env,
                hold,
            )
            for number in range(1, workers + 1)
        ]
        self._services = [
            Kept(each.name, each.log, each.launch, each.poll)
            for each in (*self.workers, self.gateway)
        ]
        self._servers = {
            each: Kept(each.name, each.log, _on_its_port(each), each.poll) for each in servers
        }
        self._pool = ThreadPoolExecutor(thread_name_prefix="restart")

    def start(self) -> None:
        """Start all services, each with its log in ``DIR/logs``.

        Raises:
            EmbeddedUnavailable: that folder cannot be used.
        """
        try:
            make_private(self.logs)
        except OSError as error:
            raise EmbeddedUnavailable(
                f"the services' logs cannot be in {self.logs}: {error.strerror}: remove what is"
                " there, or choose another data folder"
            ) from None
        for service in (*self.workers, self.gateway):
            rotate_log(service.log)
            service.launch()

    def wait_ready(self, ready: Callable[[], None]) -> None:
        """Call ``ready`` once the gateway answers that it is ready, and that no conversation is
        still being restored.

        Raises:
            ServiceDied: a service ended :data:`ATTEMPTS` times, though all servers run and the disk
                has space: then no pause is likely to help.
        """
        begun = printed = time.monotonic()
        while (why_not := self._why_not_ready()) is not None:
            self._look()
            self._check_services()
            if time.monotonic() - printed > SAY_EVERY:
                printed = time.monotonic()
                say(f"not ready after {printed - begun:.0f} s: {why_not}")
            time.sleep(POLL)
        ready()

    def _why_not_ready(self) -> str | None:
        """What the gateway waits for before all windows can be read; None: nothing."""
        status, body = _answer_of(f"{self.settings.gateway_url}/readyz", 2.0)
        if status != 200:
            return f"the services still start, or the workers still fold the log, see {self.logs}"
        restoring = msgspec.json.decode(body).get("restoring", 0)
        if not restoring:
            return None
        return (
            f"for {restoring} conversations older events are still read from the log, the others"
            f" are served at {self.settings.gateway_url}"
        )

    def watch(self) -> None:
        """Keep everything running until a signal."""
        while True:
            self._look()
            time.sleep(POLL)

    def _look(self) -> None:
        for kept in (*self._servers.values(), *self._services):
            sentence = kept.look(self._pool)
            if sentence is not None:
                with contextlib.suppress(OSError):  # stderr may be a file on a full disk
                    say(sentence)

    def _check_services(self) -> None:
        if is_full(self.data) or any(server.is_down for server in self._servers.values()):
            return
        for kept in self._services:
            if kept.deaths >= ATTEMPTS:
                raise ServiceDied(
                    f"{kept.name} ended {kept.deaths} times (exit code {kept.code}) and is given"
                    f" up: {kept.cause}"
                )

    def stop(self, within: float) -> None:
        """Stop the gateway first, so that it accepts nothing more; all workers at once when it has
        ended, or does not end soon. A worker finishes its batch and leaves its consumer group. What
        still runs after ``within`` seconds is killed.
        """
        end = time.monotonic() + within
        self._end_starts()
        with ThreadPoolExecutor(1 + len(self.workers)) as pool:
            tasks = _stopped([self.gateway], pool, end)
            wait(tasks, min(HEAD_START, within))
            for task in [*tasks, *_stopped(self.workers, pool, end)]:
                task.result()

    def _end_starts(self) -> None:
        """Let nothing be started any more; a server that just starts is stopped."""
        ending = threading.Thread(
            target=self._pool.shutdown, kwargs={"cancel_futures": True}, daemon=True
        )
        ending.start()
        while ending.is_alive():
            for server, kept in self._servers.items():
                if kept.is_starting:
                    server.stop(START_GRACE)
            ending.join(POLL)


def _stopped(services: Sequence[Service], pool: Executor, end: float) -> list[Future[int | None]]:
    """Begin to stop those that run; they have until ``end``, of ``time.monotonic``."""
    processes = [service.process for service in services if service.process is not None]
    grace = max(0.0, end - time.monotonic())
    return [pool.submit(process.stop, grace) for process in processes]


def _metrics_at(port: int | None) -> list[str]:
    return ["--metrics-port", str(port)] if port else []


def _on_its_port(server: EmbeddedServer) -> Callable[[], str]:
    def start() -> str:
        server.wanted_port = server.port
        server.start()
        return server.note

    return start
