"""A cluster of three masters, some with a replica, as local processes; one shard can be failed over
with its last writes lost.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from redis.crc import key_slot

from tests.support.ports import own_port
from tests.support.redis_servers import REPLICATOR, Server, until
from threadfold.embedded.ports import HOST

MASTERS = 3
NODE_TIMEOUT_MS = 1000
RANGES = [(0, 5460), (5461, 10922), (10923, 16383)]


class RedisCluster:
    """Three masters; the first ``replicas`` of them have a replica each. While one shard is away
    the others serve.
    """

    def __init__(self, folder: Path, replicas: int = 0) -> None:
        self.masters = [self._server(folder / f"master{i}") for i in range(MASTERS)]
        self.replicas = [self._server(folder / f"replica{i}") for i in range(replicas)]

    @staticmethod
    def _server(folder: Path) -> Server:
        return Server(
            folder,
            cluster_enabled="yes",
            cluster_port=own_port(),
            cluster_config_file="nodes.conf",
            cluster_node_timeout=NODE_TIMEOUT_MS,
            cluster_require_full_coverage="no",
            cluster_replica_validity_factor=0,
            masteruser=REPLICATOR,
            masterauth="x",
        )

    @property
    def servers(self) -> list[Server]:
        return [*self.masters, *self.replicas]

    @property
    def url(self) -> str:
        return f"redis+cluster://{','.join(server.place for server in self.masters)}"

    def shard_of(self, key: str) -> int:
        """Which of the three shards keeps a key."""
        slot = key_slot(key.encode())
        return next(i for i, (first, last) in enumerate(RANGES) if first <= slot <= last)

    def start(self) -> None:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(Server.start, self.servers))
        first = self.masters[0]
        for i, master in enumerate(self.masters):
            master.ask("CLUSTER", "SET-CONFIG-EPOCH", i + 1)
            master.ask("CLUSTER", "ADDSLOTSRANGE", *RANGES[i])
        for other in self.servers[1:]:
            first.ask("CLUSTER", "MEET", HOST, other.port, other.options["cluster-port"])
        until(
            lambda: all(_known(server) == len(self.servers) for server in self.servers),
            what="all nodes know each other",
        )
        for master, replica in zip(self.masters, self.replicas, strict=False):
            replica.ask("CLUSTER", "REPLICATE", master.ask("CLUSTER", "MYID"))
        until(
            lambda: all(_fine(server) for server in self.servers), what="the cluster's state is ok"
        )
        for replica in self.replicas:
            until(
                lambda replica=replica: replica.info("replication")["master_link_status"] == "up",
                what="the replica follows",
            )

    def fail_over(self, shard: int) -> None:
        """Kill a shard's master; returns once its replica is the master."""
        replica = self.replicas[shard]
        self.masters[shard].kill()
        until(
            lambda: replica.info("replication")["role"] == "master", what="the replica takes over"
        )

    def stop(self) -> None:
        with ThreadPoolExecutor(6) as pool:
            list(pool.map(Server.stop, self.servers))

    def __enter__(self) -> RedisCluster:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()


def _known(server: Server) -> int:
    return sum(
        "handshake" not in line
        for line in str(server.ask("CLUSTER", "NODES")).splitlines()
        if line.strip()
    )


def _fine(server: Server) -> bool:
    return "cluster_state:ok" in str(server.ask("CLUSTER", "INFO"))
