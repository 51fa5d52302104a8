"""The consumer group of whoever folds the log: the offsets it commits, for lag tools and to know
how far effects were announced, and the partitions it is assigned.

Where a partition goes on is the checkpoint beside its windows. Losing one costs repeated
announcements, never an event.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Protocol

from aiokafka import AIOKafkaConsumer, ConsumerRebalanceListener, TopicPartition
from aiokafka.errors import (
    CommitFailedError,
    GroupCoordinatorNotAvailableError,
    IllegalStateError,
    KafkaError,
)
from aiokafka.protocol.admin import (
    DescribeGroupsRequest_v0,
    DescribeGroupsRequest_v1,
    DescribeGroupsRequest_v2,
)
from aiokafka.protocol.api import Request

from streams.log.clients import CLOSE_LIMIT, admin_client
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)


class Commits:
    """What one process has committed of a topic to its group; ``known`` is the next offset of each
    partition.
    """

    def __init__(self, settings: Settings, topic: str) -> None:
        self._settings = settings
        self._topic = topic
        self.known: dict[int, int] = {}

    async def commit(self, consumer: AIOKafkaConsumer, done: Mapping[int, int]) -> None:
        """Commit partitions that are done up to these offsets; nothing is raised."""
        offsets = {
            TopicPartition(self._topic, number): offset + 1
            for number, offset in done.items()
            if offset >= self.known.get(number, 0)
        }
        if not offsets:
            return
        try:
            await consumer.commit(offsets)
        except (CommitFailedError, IllegalStateError) as error:
            logger.info("commit left to the partitions' new owner: %s", error)
            return
        except KafkaError as error:
            logger.warning("commit failed: %s", error)
            return
        except asyncio.CancelledError:
            _look_at_commits()
            raise
        self.known.update({tp.partition: offset for tp, offset in offsets.items()})

    async def last(self, consumer: AIOKafkaConsumer, done: Mapping[int, int]) -> None:
        """Commit once more, in bounded time: aiokafka tries for as long as the brokers are away."""
        try:
            async with asyncio.timeout(min(CLOSE_LIMIT, self._settings.append_timeout)):
                await self.commit(consumer, done)
        except TimeoutError:
            logger.warning(
                "the last commit is left out: Kafka at %s does not answer", self._settings.kafka
            )


def _look_at_commits() -> None:
    """Look at the failures of commits that nobody waits for any more: aiokafka goes on with them,
    and asyncio would log a traceback.
    """
    for task in asyncio.all_tasks():
        if getattr(task.get_coro(), "__qualname__", "").endswith("._do_commit_offsets"):
            task.add_done_callback(lambda ended: ended.cancelled() or ended.exception())


class Owner(Protocol):
    """Whoever owns the partitions that a group assigns."""

    async def commit(self) -> None:
        """Commit what is done."""

    def revoked(self, numbers: Iterable[int]) -> None:
        """Give partitions up."""

    def assigned(self, numbers: Iterable[int]) -> None:
        """Take partitions over."""


class Rebalances(ConsumerRebalanceListener):  # type: ignore[misc]
    """Hands aiokafka's assignments on to an owner."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner

    async def on_partitions_revoked(self, revoked: set[TopicPartition]) -> None:
        """Commit what is done, then let go."""
        await self._owner.commit()
        self._owner.revoked(tp.partition for tp in revoked)

    async def on_partitions_assigned(self, assigned: set[TopicPartition]) -> None:
        """Take over; reading starts when the partition is prepared."""
        self._owner.assigned(tp.partition for tp in assigned)


_Versions = DescribeGroupsRequest_v0 | DescribeGroupsRequest_v1 | DescribeGroupsRequest_v2


class _DescribeGroups(Request[_Versions]):  # type: ignore[misc]
    """aiokafka 0.14 reads the answer of version 3 as one of version 2, and fails."""

    API_KEY = 15

    def __init__(self, groups: list[str]) -> None:
        self._groups = groups

    def build(self, request_struct_class: Any) -> Any:
        return request_struct_class(self._groups)


async def _coordinator(admin: Any, group: str, limit: float) -> Any:
    """The broker that coordinates a group; one that has had no group makes their topic first."""
    deadline = time.monotonic() + limit
    while True:
        try:
            return await admin.find_coordinator(group)
        except GroupCoordinatorNotAvailableError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.2)


async def members(settings: Settings, groups: Sequence[str] = ()) -> int:
    """How many members these groups have now; by default those of the workers: who folds, and who
    summarises. A worker that does both is a member of both.

    Raises:
        KafkaUnavailable: the brokers do not answer.
    """
    found = 0
    async with admin_client(settings) as admin:
        for group in groups or (settings.group, f"{settings.group}.agents"):
            coordinator = await _coordinator(admin, group, settings.append_timeout)
            answer = await admin._send_request(_DescribeGroups([group]), coordinator)
            found += sum(len(one["members"]) for one in answer.to_object()["groups"])
    return found
