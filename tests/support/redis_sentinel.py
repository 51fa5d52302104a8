"""A master, a replica and three sentinels as local processes; the master can die with its last
writes lost.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.redis_servers import REPLICATOR, Server, until
from threadfold.embedded.ports import HOST
from threadfold.embedded.redis import find_server

SERVICE = "windows"
DOWN_AFTER_MS = 500


class _Sentinel(Server):
    """The same program with ``--sentinel``: it keeps its configuration itself."""

    def __init__(self, folder: Path, master: Server) -> None:
        super().__init__(folder)
        self._master = master

    def start(self) -> None:
        settings = {
            "port": str(self.port),
            "bind": HOST,
            "sentinel monitor": f"{SERVICE} {HOST} {self._master.port} 2",
            "sentinel down-after-milliseconds": f"{SERVICE} {DOWN_AFTER_MS}",
            "sentinel failover-timeout": f"{SERVICE} 3000",
            "sentinel parallel-syncs": f"{SERVICE} 1",
        }
        self._run(find_server(), settings, "--sentinel")


class RedisSentinel:
    """One master, one replica, three sentinels that need two to agree."""

    def __init__(self, folder: Path) -> None:
        self.master = Server(folder / "master", masteruser=REPLICATOR, masterauth="x")
        self.replica = Server(
            folder / "replica",
            masteruser=REPLICATOR,
            masterauth="x",
            replicaof=f"{HOST} {self.master.port}",
        )
        self.sentinels = [_Sentinel(folder / f"sentinel{i}", self.master) for i in range(3)]

    @property
    def url(self) -> str:
        return (
            f"redis+sentinel://{','.join(sentinel.place for sentinel in self.sentinels)}/{SERVICE}"
        )

    def start(self) -> None:
        self.master.start()
        self.replica.start()
        until(
            lambda: self.replica.info("replication")["master_link_status"] == "up",
            what="the replica follows",
        )
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(_Sentinel.start, self.sentinels))
        until(
            lambda: all(self._sees(sentinel) for sentinel in self.sentinels),
            what="the sentinels see the replica and each other",
        )

    @staticmethod
    def _sees(sentinel: Server) -> bool:
        flat = sentinel.ask("SENTINEL", "MASTER", SERVICE)
        state = flat if isinstance(flat, dict) else dict(zip(flat[::2], flat[1::2], strict=True))
        return int(state["num-slaves"]) == 1 and int(state["num-other-sentinels"]) == 2

    def fail_over(self) -> None:
        """Kill the master; returns once the replica is the master."""
        self.master.kill()
        until(
            lambda: self.replica.info("replication")["role"] == "master",
            what="the sentinels promote the replica",
        )

    def stop(self) -> None:
        with ThreadPoolExecutor(5) as pool:
            list(
                pool.map(lambda server: server.stop(), [*self.sentinels, self.replica, self.master])
            )

    def __enter__(self) -> RedisSentinel:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
