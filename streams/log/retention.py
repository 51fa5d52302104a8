"""A log that has lost its beginning: retention, deleted records or a restore from half a backup
took its first events.

A window is a fold from a conversation's first event. Where that event is missing, nothing that is
folded from what is left is sure to be the window: it is not served unless the operator accepts it.
Windows that were folded before, or that snapshots bring back, stay right.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Mapping

from aiokafka import TopicPartition

from projections.errors import LogTruncated
from streams.log.clients import kafka_errors, make_consumer, start_client, stop_client
from streams.log.log import Log
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)

WHAT_TO_DO = (
    "set retention.ms=-1, retention.bytes=-1 and cleanup.policy=delete on the topic so that it"
    " loses no more, and restore what is missing, or accept it with"
    " THREADFOLD_ACCEPT_TRUNCATED_LOG=true: conversations then begin with what is left"
)


def lost_beginnings(topic: str, begins: Mapping[int, int]) -> list[str]:
    """One sentence about the partitions whose first events are missing; empty where the log is
    whole.

    Args:
        begins: for each partition the offset of its first record.
    """
    gone = {partition: begin for partition, begin in sorted(begins.items()) if begin > 0}
    if not gone:
        return []
    shown = ", ".join(
        f"{partition} (begins at offset {begin})" for partition, begin in list(gone.items())[:8]
    )
    more = f" and {len(gone) - 8} more" if len(gone) > 8 else ""
    return [
        f"topic {topic} has lost its beginning, in partition{'s' if len(gone) > 1 else ''}"
        f" {shown}{more}: {WHAT_TO_DO}"
    ]


def check_beginning(
    topic: str, partition: int, offset: int, begin: int, *, accept: bool, what: str = "windows"
) -> None:
    """Check that the fold of a partition can go on after ``offset`` (-1: from its first event) in a
    log that begins at ``begin``.

    Missing events are logged, whether they matter or not. ``what`` is folded there.

    Raises:
        LogTruncated: events in between are missing, and that is not accepted.
    """
    if begin <= 0:
        return
    if begin <= offset + 1:
        logger.warning("partition %d: %s", partition, lost_beginnings(topic, {partition: begin})[0])
        return
    gone = (
        f"partition {partition} of {topic} begins at offset {begin}, its {what} were folded up to"
        f" {offset}: events in between are missing"
    )
    if not accept:
        raise LogTruncated(
            f"{gone}, so its {what} are not known and are not served (503): {WHAT_TO_DO}"
        )
    logger.warning("%s, which is accepted: conversations begin with what is left", gone)


async def check_whole(log: Log, topic: str, *, accept: bool) -> None:
    """Check that the log has all its events, for whoever folds it from the first one (a rebuild, a
    verify).

    Args:
        accept: the setting ``accept_truncated_log``: nothing is checked then.

    Raises:
        LogTruncated: the first events of a partition are missing; the message names all such
            partitions, and says what to do.
        KafkaUnavailable: it is unknown.
    """
    if not accept:
        for sentence in lost_beginnings(topic, await log.beginning_offsets()):
            raise LogTruncated(sentence)


async def topic_beginnings(
    settings: Settings, topic: str, partitions: Collection[int]
) -> dict[int, int]:
    """For each of these partitions of a topic the offset of its first record; opens and closes a
    client of its own.

    Raises:
        KafkaUnavailable: there was no answer within the append time-out.
    """
    consumer = make_consumer(settings)
    async with kafka_errors(settings, "where the log begins"):
        await start_client(consumer, settings)
        try:
            async with asyncio.timeout(settings.append_timeout):
                found = await consumer.beginning_offsets(
                    [TopicPartition(topic, number) for number in sorted(partitions)]
                )
        finally:
            await stop_client(consumer, settings)
    return {tp.partition: offset for tp, offset in found.items()}
