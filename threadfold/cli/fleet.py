"""The services that ``up`` runs: workers and gateway, guarded and restarted when they end."""

from __future__ import annotations

import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from projections.errors import ThreadfoldError
from streams.settings.settings import PREFIX, Settings
from threadfold.cli.common import CONFIG_FILE, say
from threadfold.embedded.folder import make_private
from threadfold.embedded.process import GuardedProcess, last_lines, rotate_log
from threadfold.embedded.server import EmbeddedServer

POLL = 0.1
BACK_OFF = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)
"""Seconds before each restart in a row of one service; the last one repeats."""
STEADY = 60.0
"""Seconds of running after which the back-off begins anew."""
ATTEMPTS = 3
"""Ends of one service before the stack is ready at which ``up`` gives up."""
GRACE = 20.0
"""Seconds for a service to stop: a worker finishes its batch and leaves its consumer group."""
LONGEST_LINE = 600


class ServiceDied(ThreadfoldError):
    """A service ends again and again; the message has the last line of its log."""


@dataclass(slots=True)
class Service:
    """One service and its current process."""

    name: str
    command: list[str]
    log: Path
    process: GuardedProcess | None = None
    started: float = 0.0
    deaths: int = 0
    again_at: float | None = None


class Fleet:
    """Workers and gateway over running servers. For one thread; ``stop`` can be repeated."""

    def __init__(
        self,
        settings: Settings,
        data: Path,
        *,
        workers: int,
        servers: Sequence[EmbeddedServer] = (),
        hold: Sequence[int] = (),
    ) -> None:
        """Args: ``servers`` restart on their ports when they end; every service inherits the
        descriptors in ``hold``.
        """
        self.settings = settings
        self.servers = list(servers)
        self.hold = tuple(hold)
        self.data = data
        self.logs = data / "logs"
        # The file holds all settings, so no variable of the environment may override it.
        names = {PREFIX + name.upper() for name in Settings.__struct_fields__}
        self.env = {name: value for name, value in os.environ.items() if name not in names}
        self.env[PREFIX + "CONFIG"] = str(data / CONFIG_FILE)
        command = [sys.executable, "-m", "threadfold.cli"]
        self.gateway = Service("gateway", [*command, "gateway"], self.logs / "gateway.log")
        self.workers = [
            Service(name, [*command, "worker"], self.logs / f"{name}.log")
            for name in (f"worker-{number}" for number in range(1, workers + 1))
        ]

    def start(self) -> None:
        """Start all services, each with its log in ``DIR/logs``."""
        make_private(self.logs)
        for service in (*self.workers, self.gateway):
            rotate_log(service.log)
            self._launch(service)

    def _launch(self, service: Service) -> None:
        # In the data folder, because Faust makes a folder where it runs.
        service.process = GuardedProcess(
            service.command, env=self.env, log=service.log, cwd=self.data, pass_fds=self.hold
        )
        service.process.start()
        service.started, service.again_at = time.monotonic(), None

    def wait_ready(self, ready: Callable[[], None]) -> None:
        """Call ``ready`` once the gateway answers that it is ready.

        Raises:
            ServiceDied: a service ended :data:`ATTEMPTS` times.
        """
        begun = printed = time.monotonic()
        while not self._answers():
            self._look(give_up=True)
            if time.monotonic() - printed > 20:
                printed = time.monotonic()
                say(
                    f"not ready after {printed - begun:.0f} s: the workers still fold the log, see"
                    f" {self.logs}"
                )
            time.sleep(POLL)
        ready()

    def _answers(self) -> bool:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        try:
            with opener.open(f"{self.settings.gateway_url}/readyz", timeout=2) as answer:
                return bool(answer.status == 200)
        except (urllib.error.URLError, OSError, ValueError):
            return False  # not listening yet, or 503: not ready

    def watch(self) -> None:
        """Keep everything running until a signal, or until a server cannot be started."""
        while True:
            self._look(give_up=False)
            time.sleep(POLL)

    def _look(self, *, give_up: bool) -> None:
        for server in self.servers:
            code = server.poll()
            if code is not None:
                say(
                    f"{server.name} ended with exit code {code}: starting it again (see"
                    f" {server.log})"
                )
                server.wanted_port = server.port
                server.start()
        now = time.monotonic()
        for service in (*self.workers, self.gateway):
            if service.again_at is not None:
                if now >= service.again_at:
                    self._launch(service)
            elif service.process is not None and (code := service.process.poll()) is not None:
                self._note_death(service, code, now, give_up)

    def _note_death(self, service: Service, code: int, now: float, give_up: bool) -> None:
        service.deaths = 1 if now - service.started > STEADY else service.deaths + 1
        last = last_message(service.log)
        if give_up and service.deaths >= ATTEMPTS:
            raise ServiceDied(
                f"{service.name} ended {service.deaths} times (exit code {code}) and is given up:"
                f" {last}; see {service.log}"
            )
        pause = BACK_OFF[min(service.deaths, len(BACK_OFF)) - 1]
        service.again_at = now + pause
        say(
            f"{service.name} ended with exit code {code} ({last}): starting it again in {pause:g} s"
        )

    def stop(self) -> None:
        """Stop the gateway first, so that it accepts nothing more, then all workers at once."""
        for services in ([self.gateway], self.workers):
            running = [service.process for service in services if service.process is not None]
            if running:
                with ThreadPoolExecutor(len(running)) as pool:
                    for task in [pool.submit(process.stop, GRACE) for process in running]:
                        task.result()


def last_message(log: Path) -> str:
    """The last line of a log that has words."""
    for line in reversed(last_lines(log, 50)):
        if any(map(str.isalnum, line)):
            text = line.strip()
            return text if len(text) <= LONGEST_LINE else f"{text[:LONGEST_LINE]}…"
    return "its log is empty"
