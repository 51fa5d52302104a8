"""Redis or Valkey servers of a test's own, one process each: started with any configuration,
killed, frozen, asked.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import redis as sync_redis

from tests.support.ports import own_port
from tests.support.processes import freeze
from threadfold.embedded.ports import HOST
from threadfold.embedded.probe import redis_pid
from threadfold.embedded.process import GuardedProcess
from threadfold.embedded.redis import find_server

REPLICATOR = "replicator"
"""The user that replicas log in as, so that a link can be cut and kept from coming back."""


class Server:
    """One server process on 127.0.0.1; ``options`` are added to its configuration, and kept when it
    is started again.
    """

    def __init__(self, folder: Path, **options: object) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = own_port()
        self.options = {name.replace("_", "-"): str(value) for name, value in options.items()}
        self._process: GuardedProcess | None = None
        self._frozen = False

    @property
    def place(self) -> str:
        return f"{HOST}:{self.port}"

    @property
    def url(self) -> str:
        return f"redis://{self.place}/0"

    def start(self) -> None:
        settings = {
            "port": str(self.port),
            "bind": HOST,
            "save": "",
            "appendonly": "no",
            "maxmemory-policy": "noeviction",
            "repl-diskless-sync-delay": "0",
            "user": "default on nopass ~* &* +@all",
            **self.options,
        }
        self._run(find_server(), settings)

    def _run(self, server: Path, settings: dict[str, str], *flags: str) -> None:
        config = self.folder / "server.conf"
        if not flags or not config.exists():  # a sentinel keeps its own notes there
            lines = [
                f'{name} "{value}"' if value == "" else f"{name} {value}"
                for name, value in settings.items()
            ]
            lines.append(f"user {REPLICATOR} on nopass +psync +replconf +ping")
            config.write_text("\n".join(lines if not flags else lines[:-1]) + "\n")
        process = GuardedProcess([server, config, *flags], log=self.folder / "log", cwd=self.folder)
        process.start()
        self._process = process
        until(
            lambda: redis_pid(HOST, self.port) == process.pid,
            what=f"the server at {self.place} answers",
        )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def kill(self) -> None:
        """SIGKILL."""
        assert self._process is not None
        self._frozen = False
        self._process.kill()

    def stop(self) -> None:
        if self._process is not None:
            self.thaw()
            self._process.stop(2.0)

    def freeze(self) -> None:
        freeze(self.pid)
        self._frozen = True

    def thaw(self) -> None:
        if self._frozen:
            self._frozen = False
            os.kill(self.pid, signal.SIGCONT)

    def ask(self, *command: object) -> Any:
        """One command, as text; raises what redis-py raises."""
        with sync_redis.Redis(port=self.port, decode_responses=True, socket_timeout=5) as client:
            return client.execute_command(*command)

    def info(self, section: str) -> dict[str, Any]:
        with sync_redis.Redis(port=self.port, decode_responses=True, socket_timeout=5) as client:
            return dict(client.info(section))

    def cut_replicas(self) -> None:
        """Nothing more of what is written here reaches a replica, however often it tries."""
        self.ask("ACL", "SETUSER", REPLICATOR, "off")
        self.ask("CLIENT", "KILL", "TYPE", "replica")


def until(
    condition: Callable[[], bool], seconds: float = 30.0, what: str = "the condition"
) -> None:
    """Wait for a condition that may raise a client's errors meanwhile."""
    deadline = time.monotonic() + seconds
    last: BaseException | None = None
    while True:
        try:
            if condition():
                return
        except (sync_redis.RedisError, OSError) as error:
            last = error
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s ({last})"
        time.sleep(0.02)
