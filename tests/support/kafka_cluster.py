"""Three real Kafka brokers as local processes, made of the embedded stack's parts; ended by their
pids.
"""

from __future__ import annotations

import os
import signal
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.support.ports import own_ports
from tests.support.processes import freeze
from threadfold.embedded.kafka import CLUSTER_FILE, EmbeddedKafka, new_cluster_id
from threadfold.embedded.ports import HOST

BROKERS = 3
HEAP = "256m"


class Broker(EmbeddedKafka):
    """One broker of a cluster, on a port that stays the same; the first ones are controllers,
    too.
    """

    def __init__(self, data: Path, node: int, port: int, controllers: dict[int, int]) -> None:
        super().__init__(data, port=port, heap=HEAP, timeout=120.0)
        self.node = node
        self.controllers = controllers

    def properties(self, port: int, controller: int) -> dict[str, object]:
        settings = super().properties(port, self.controllers.get(self.node, controller))
        voters = ",".join(f"{node}@{HOST}:{at}" for node, at in self.controllers.items())
        settings |= {
            "node.id": str(self.node),
            "controller.quorum.voters": voters,
            "offsets.topic.replication.factor": "3",
            "offsets.topic.num.partitions": "4",
            "transaction.state.log.replication.factor": "3",
            "transaction.state.log.min.isr": "2",
            "unclean.leader.election.enable": "false",
        }
        if self.node not in self.controllers:
            settings |= {"process.roles": "broker", "listeners": f"BROKER://{HOST}:{port}"}
        return settings


class KafkaCluster:
    """Starts three brokers side by side. ``controllers`` of them vote: with 1 (never to be killed
    then) the other two may die together.
    """

    def __init__(self, data: Path, controllers: int = 1) -> None:
        ports = own_ports(BROKERS + controllers)
        votes = {node: ports[BROKERS + node - 1] for node in range(1, controllers + 1)}
        self.brokers = {
            node: Broker(data / f"broker{node}", node, ports[node - 1], votes)
            for node in range(1, BROKERS + 1)
        }
        cluster = new_cluster_id()
        for broker in self.brokers.values():
            broker.data.mkdir(parents=True)
            (broker.data / CLUSTER_FILE).write_text(cluster)

    @property
    def address(self) -> str:
        """All brokers' addresses, as a client is given them."""
        return ",".join(f"{HOST}:{broker.wanted_port}" for broker in self.brokers.values())

    def __enter__(self) -> KafkaCluster:
        try:
            self.start(*self.brokers)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self, *nodes: int) -> None:
        """Start these brokers side by side; returns when each answers."""
        with ThreadPoolExecutor(len(nodes)) as pool:
            for task in [pool.submit(self.brokers[node].start) for node in nodes]:
                task.result()

    def kill(self, node: int) -> None:
        """End a broker with SIGKILL."""
        self.brokers[node].kill()

    def freeze(self, node: int) -> None:
        """Stop a broker in its tracks, with its connections open: as a machine that is gone looks
        from outside.
        """
        freeze(self.brokers[node].pid)

    def thaw(self, node: int) -> None:
        """Let a frozen broker go on."""
        os.kill(self.brokers[node].pid, signal.SIGCONT)

    def stop(self) -> None:
        """End all that run: at once, as nothing of them is kept."""
        for broker in self.brokers.values():
            if broker.poll() is None:
                broker.kill()
