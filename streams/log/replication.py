"""Replicas: which partitions are short of them, as the brokers tell, in sentences that say what to
do.

Kafka acknowledges an append when all in-sync replicas have it, and refuses it while there are fewer
of them than ``min.insync.replicas``. aiokafka tries such an append again and again without a word
to its caller, so why it takes so long has to be asked for.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Collection, Sequence
from typing import Any

from aiokafka.admin.config_resource import ConfigResource, ConfigResourceType

from projections.errors import ThreadfoldError
from streams.log.clients import admin_client
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)

ASK_AGAIN = 2.0
"""Seconds for which an answer is good: under load many appends fail together."""


async def config_of(admin: Any, topic: str) -> dict[str, str]:
    """The brokers' configuration of a topic."""
    answers = await admin.describe_configs([ConfigResource(ConfigResourceType.TOPIC, topic)])
    return {
        entry[0]: entry[1]
        for answer in answers
        for resource in answer.resources
        for entry in resource[4]
    }


async def short_of_replicas(admin: Any, topics: Sequence[str]) -> list[str]:
    """What is wrong with the replicas of these topics (which exist), one sentence for each topic
    and fault.
    """
    living = {broker["node_id"] for broker in (await admin.describe_cluster())["brokers"]}
    wrong: list[str] = []
    for topic in sorted(
        await admin.describe_topics(list(topics)), key=lambda found: str(found["topic"])
    ):
        wrong += [sentence for sentence, _ in await _faults(admin, topic, living)]
    return wrong


async def _faults(
    admin: Any, topic: dict[str, Any], living: Collection[int]
) -> list[tuple[str, set[int]]]:
    if not any(_is_short(p) for p in topic["partitions"]):
        return []
    return faults_of(
        topic, int((await config_of(admin, topic["topic"])).get("min.insync.replicas") or 1), living
    )


def faults_of(
    topic: dict[str, Any], least: int, living: Collection[int]
) -> list[tuple[str, set[int]]]:
    """What is wrong with the replicas of one topic, the gravest first, each with its partitions.

    Args:
        topic: its description by aiokafka's admin client.
        least: its ``min.insync.replicas``.
        living: the ids of the brokers that answer.
    """
    name, short = topic["topic"], [p for p in topic["partitions"] if _is_short(p)]
    down = sorted({node for p in short for node in p["replicas"]} - set(living))
    what = ": check the brokers' disks and logs"
    if down:
        what = (
            f": broker{'s' if len(down) > 1 else ''} {', '.join(map(str, down))}"
            f" {'are' if len(down) > 1 else 'is'} down, to be started"
        )
    offline = [p for p in short if p["leader"] < 0]
    below = [p for p in short if p["leader"] >= 0 and len(p["isr"]) < least]
    lagging = [p for p in short if p["leader"] >= 0 and len(p["isr"]) >= least]
    found = []
    if offline:
        found.append(
            (
                (
                    f"{_named(name, offline)} offline, without a leader: nothing can be read or"
                    f" appended{what}"
                ),
                offline,
            )
        )
    if below:
        said = (
            f"fewer than min.insync.replicas={least} brokers in sync: nothing can be appended{what}"
        )
        found.append((f"{_named(name, below)} held by {said}", below))
    if lagging:
        found.append(
            (
                f"{_named(name, lagging)} under-replicated, one more failure may stop"
                f" appends{what}",
                lagging,
            )
        )
    return [(sentence, {p["partition"] for p in those}) for sentence, those in found]


def _is_short(partition: dict[str, Any]) -> bool:
    return partition["leader"] < 0 or len(partition["isr"]) < len(partition["replicas"])


def _named(topic: str, partitions: Sequence[dict[str, Any]]) -> str:
    numbers = sorted(p["partition"] for p in partitions)
    shown = ", ".join(map(str, numbers[:8])) + (
        f" and {len(numbers) - 8} more" if len(numbers) > 8 else ""
    )
    return (
        f"topic {topic}: partitions {shown} are"
        if len(numbers) > 1
        else f"topic {topic}: partition {shown} is"
    )


class Replicas:
    """Tells why appends to one topic are not acknowledged; used within one event loop."""

    def __init__(self, settings: Settings, topic: str = "events") -> None:
        self._settings = settings
        self._topic = settings.topic(topic)
        self._asking: asyncio.Task[list[tuple[str, set[int]]]] | None = None
        self._asked_at = 0.0

    async def why(self, partitions: Collection[int], limit: float) -> str | None:
        """What keeps these partitions from taking appends, None where their replicas are well, or
        there is no answer in ``limit`` seconds.
        """
        now = time.monotonic()
        if self._asking is None or (self._asking.done() and now - self._asked_at > ASK_AGAIN):
            self._asking, self._asked_at = asyncio.create_task(self._ask(), name="replicas"), now
        done, _ = await asyncio.wait({self._asking}, timeout=limit)
        if not done or self._asking.cancelled():
            return None
        return next(
            (sentence for sentence, those in self._asking.result() if those & set(partitions)), None
        )

    async def stop(self) -> None:
        """Ask no more."""
        await end_tasks([self._asking])

    async def _ask(self) -> list[tuple[str, set[int]]]:
        try:
            async with admin_client(self._settings) as admin:
                living = {
                    broker["node_id"] for broker in (await admin.describe_cluster())["brokers"]
                }
                found: list[tuple[str, set[int]]] = []
                for topic in await admin.describe_topics([self._topic]):
                    found += await _faults(admin, topic, living)
                return found
        except ThreadfoldError as error:
            logger.info("why an append was not acknowledged is unknown: %s", error)
            return []
