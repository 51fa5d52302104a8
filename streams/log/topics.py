"""The topics: their shape, creating them, and checking that a running cluster has it.

Faust's own creation fails on Kafka 4, and a wrong retention would lose the log, so ``threadfold
topics create`` makes them all.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from aiokafka.admin import NewTopic
from aiokafka.errors import KafkaError, TopicAlreadyExistsError, for_code
from aiokafka.protocol.metadata import MetadataRequest

from projections.errors import TopicMismatch
from streams.log.clients import MAX_REQUEST, admin_client
from streams.log.replication import config_of, short_of_replicas
from streams.log.retention import lost_beginnings, topic_beginnings
from streams.settings.settings import Settings

TIMESTAMPS = "message.timestamp.type"
FOR_EVER = {"cleanup.policy": "delete", "retention.ms": "-1", "retention.bytes": "-1"}
COMPACTED = {"cleanup.policy": "compact"}
SNAPSHOTS = {
    **COMPACTED,
    "segment.bytes": str(16 << 20),
    "segment.ms": "3600000",
    "min.cleanable.dirty.ratio": "0.1",
}
"""Small segments, cleaned early: what healing reads is then little more than the latest snapshot of
each window.
"""
KEYS = {**COMPACTED, "segment.bytes": str(1 << 20), "min.cleanable.dirty.ratio": "0.01"}
"""Small segments, cleaned as soon as there is anything to clean; the setting ``key_compaction_lag``
adds until when at the latest.
"""
DAY_MS = 86_400_000
SHOW_UP = 10.0
"""Seconds in which a topic that was created must be there to be used."""


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """The shape a topic is to have; ``partitions`` None takes the setting. Backups have what is
    ``saved``: the other topics follow from that, or may be lost.
    """

    name: str
    config: dict[str, str]
    partitions: int | None = None
    saved: bool = False


SPECS = (
    TopicSpec("events", {**FOR_EVER, TIMESTAMPS: "LogAppendTime"}, saved=True),
    TopicSpec("summaries", FOR_EVER, saved=True),
    TopicSpec("memories", FOR_EVER, saved=True),
    TopicSpec("snapshots", SNAPSHOTS),
    TopicSpec("compactions", {"cleanup.policy": "delete", "retention.ms": str(7 * DAY_MS)}),
    TopicSpec("renders", {"cleanup.policy": "delete", "retention.ms": str(30 * DAY_MS)}),
    TopicSpec("control", COMPACTED, partitions=1, saved=True),
    TopicSpec("keys", KEYS, partitions=1, saved=True),
    TopicSpec("dead-letters", {"cleanup.policy": "delete", "retention.ms": str(28 * DAY_MS)}),
)
_TRUTH = ("events", "control")
"""Topics that were there from the first release on, and without which there is no window."""
_CHECKED = frozenset({"cleanup.policy", "retention.ms", "retention.bytes", TIMESTAMPS})


OWN_TIMES = {TIMESTAMPS: "CreateTime"}
"""Of a topic that takes the timestamps of who writes."""


async def create_topics(settings: Settings, filled: Collection[str] = ()) -> list[str]:
    """Create what is missing; returns the names created. Existing topics are left as they are
    (``check_topics`` judges them).

    Args: ``filled`` are topics that take the timestamps of who writes at first, until
    ``topic_copies.keep_timestamps`` ends that. To change it later is not enough: a broker answers
    before it does so, and stamps what comes meanwhile.
    """
    async with admin_client(settings) as admin:
        existing = set(await admin.list_topics())
        missing = [spec for spec in SPECS if settings.topic(spec.name) not in existing]
        if not missing:
            return []
        replication, min_isr = replication_for(
            settings, len((await admin.describe_cluster())["brokers"])
        )
        topics = [new_topic(settings, spec, replication, min_isr) for spec in missing]
        for spec, topic in zip(missing, topics, strict=True):
            if spec.name in filled:
                topic.topic_configs.update(OWN_TIMES)
        response = await admin.create_topics(topics)
        for name, code, *rest in response.topic_errors:
            error = for_code(code)
            if code and error is not TopicAlreadyExistsError:
                raise TopicMismatch(
                    f"topic {name} could not be created:"
                    f" {rest[0] if rest and rest[0] else error.__name__}"
                )
        names = [topic.name for topic in topics]
        await _shown(admin, set(names))
        return names


async def delete_topics(settings: Settings) -> list[str]:
    """Delete all topics of these settings' prefix; returns their names.

    Raises:
        TopicMismatch: the brokers refuse it.
    """
    async with admin_client(settings) as admin:
        own = {settings.topic(spec.name) for spec in SPECS}
        found = sorted(own & set(await admin.list_topics()))
        for name, code in (await admin.delete_topics(found)).topic_error_codes:
            if code:
                raise TopicMismatch(f"topic {name} is not deleted: {for_code(code).__name__}")
    return found


async def _shown(admin: Any, names: set[str]) -> None:
    """Wait until every broker knows the new topics: Kafka acknowledges them a moment before, and a
    client asks any of the brokers.
    """
    deadline = time.monotonic() + SHOW_UP
    for broker in (await admin.describe_cluster())["brokers"]:
        while not names <= await _topics_at(admin, broker["node_id"]):
            if time.monotonic() > deadline:
                raise TopicMismatch(
                    f"topics were created but broker {broker['node_id']} does not know them after"
                    f" {SHOW_UP:g} s: check the brokers, then run it again"
                )
            await asyncio.sleep(0.05)


async def _topics_at(admin: Any, node: int) -> set[str]:
    """The topics one broker knows; none where it does not answer."""
    try:
        # Not `list_topics`, which asks any broker.
        answer = await admin._send_request(MetadataRequest(None), node)
    except KafkaError:
        return set()
    return {topic["topic"] for topic in answer.to_object()["topics"]}


def replication_for(settings: Settings, brokers: int) -> tuple[int, int]:
    """Replication and min ISR of new topics: the settings, and for 0 as much as ``brokers`` allow,
    up to 3 and 2.
    """
    replication = settings.replication or max(1, min(3, brokers))
    return replication, settings.min_isr or (2 if replication >= 3 else 1)


def new_topic(settings: Settings, spec: TopicSpec, replication: int, min_isr: int) -> NewTopic:
    """What a broker is asked for to make a topic."""
    lag = (
        {"max.compaction.lag.ms": str(settings.key_compaction_lag * 1000)}
        if spec.name == "keys"
        else {}
    )
    config = {
        **spec.config,
        **lag,
        "max.message.bytes": str(MAX_REQUEST),
        "min.insync.replicas": str(min_isr),
    }
    return NewTopic(
        settings.topic(spec.name),
        spec.partitions or settings.partitions,
        replication,
        topic_configs=config,
    )


async def check_topics(settings: Settings) -> list[str]:
    """What is wrong with the topics, one sentence each: their shapes (:func:`check_shapes`), and
    events that are missing, if not accepted.
    """
    return await check_shapes(settings) + (
        [] if settings.accept_truncated_log else await lost_beginning(settings)
    )


async def lost_beginning(settings: Settings) -> list[str]:
    """A sentence where the events topic has lost its first events; empty where it is whole, or not
    there.
    """
    return lost_beginnings(settings.topic("events"), await _beginnings(settings, "events"))


async def lost_memories(settings: Settings) -> str | None:
    """A sentence if the topic of memories has lost its first records, and what to do; else None."""
    return await _lost(
        settings,
        "memories",
        "a store that is made from it lacks records. `threadfold memories rebuild --from-logs`"
        " publishes them again from the logs first",
    )


async def lost_summaries(settings: Settings) -> str | None:
    """A sentence if the topic of summaries has lost its first records, and what follows; else
    None.
    """
    return await _lost(
        settings,
        "summaries",
        "subscribers that begin or resume before that do not get all. Streams tell them with an"
        " event `missing`; `GET /v1/conversations/{c}/summaries` still lists each conversation's",
    )


async def _lost(settings: Settings, name: str, follows: str) -> str | None:
    """A sentence if a topic has lost its first records, with what follows from it; else None."""
    begins = await _beginnings(settings, name)
    gone = [
        f"{number} (begins at offset {begin})" for number, begin in sorted(begins.items()) if begin
    ]
    return (
        f"topic {settings.topic(name)} has lost its beginning, in partition"
        f" {', '.join(gone)}: {follows}"
        if gone
        else None
    )


async def _beginnings(settings: Settings, name: str) -> dict[int, int]:
    """The offset of the first record of each partition that has a leader; empty where there is no
    such topic.
    """
    topic = settings.topic(name)
    async with admin_client(settings) as admin:
        led = await _led(admin, topic) if topic in await admin.list_topics() else []
    return await topic_beginnings(settings, topic, led) if led else {}


async def check_shapes(settings: Settings) -> list[str]:
    """What is wrong with the shape of the topics, one sentence each; empty when all is well.

    Partition counts must agree among the topics keyed by conversation; that the count never changed
    is checked against the live generation's record.
    """
    async with admin_client(settings) as admin:
        existing = set(await admin.list_topics())
        wrong = [
            _missing(settings, s.name, existing)
            for s in SPECS
            if settings.topic(s.name) not in existing
        ]
        present = [spec for spec in SPECS if settings.topic(spec.name) in existing]
        for spec in present:
            topic = settings.topic(spec.name)
            config = await config_of(admin, topic)
            wrong += [
                f"topic {topic}: {name} is {config.get(name)}, it must be"
                f" {spec.config[name]}{_why_for_ever(spec, name)}"
                for name in sorted(_CHECKED & spec.config.keys())
                if config.get(name) != spec.config[name]
            ]
        wrong += await short_of_replicas(admin, [settings.topic(spec.name) for spec in present])
    return wrong


async def _led(admin: Any, topic: str) -> list[int]:
    """The partitions of a topic that have a leader to ask."""
    return [
        p["partition"]
        for found in await admin.describe_topics([topic])
        for p in found["partitions"]
        if p["leader"] >= 0
    ]


def _why_for_ever(spec: TopicSpec, name: str) -> str:
    """What comes of it where a topic that is kept for ever is not."""
    if spec.name != "events" or name == TIMESTAMPS:
        return ""
    return (
        ": Kafka would delete events, and no window could be folded from its beginning again"
        " (change it with kafka-configs.sh)"
    )


async def topic_configs(settings: Settings, names: Sequence[str]) -> dict[str, dict[str, str]]:
    """The brokers' configuration of some topics by short name; a topic that does not exist is left
    out.
    """
    async with admin_client(settings) as admin:
        existing = set(await admin.list_topics())
        return {
            name: await config_of(admin, settings.topic(name))
            for name in names
            if settings.topic(name) in existing
        }


async def partition_count(settings: Settings, name: str = "events") -> int:
    """How many partitions a topic has.

    Raises:
        TopicMismatch: the topic does not exist.
    """
    topic = settings.topic(name)
    async with admin_client(settings) as admin:
        found = [t for t in await admin.describe_topics([topic]) if not t.get("error_code")]
        if not found:
            raise TopicMismatch(_missing(settings, name, set(await admin.list_topics())))
        return len(found[0]["partitions"])


def _missing(settings: Settings, name: str, existing: set[str]) -> str:
    """What to do about a missing topic. If events or control alone are gone, their records are."""
    topic, there = settings.topic(name), {settings.topic(one) for one in _TRUTH} & existing
    if name in _TRUTH and there:
        return (
            f"topic {topic} is missing, and its records with it: restore a backup."
            " `threadfold topics create` makes an empty one"
        )
    return f"topic {topic} is missing: run `threadfold topics create`"
