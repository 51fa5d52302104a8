"""``summaries``: the summaries topic as JSON lines of CloudEvents, decrypted."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from projections.events.codec import full_type
from projections.events.untrusted import Undecodable, json_decoder
from projections.names import check_name, parse_key
from streams.control.key_ring import KeyRing
from streams.encryption.payload_cipher import NotAuthentic, PayloadCipher, open_value
from streams.log.clients import (
    AIOKafkaConsumer,
    TopicPartition,
    kafka_errors,
    make_consumer,
    start_client,
)
from streams.log.topics import lost_summaries, partition_count
from streams.settings.settings import Settings
from threadfold.cli.common import data_option, flush, load_settings, print_line, run, say


class _Typed(msgspec.Struct):
    type: str


_typed = json_decoder(_Typed)
_SUMMARY = full_type("summary")


@click.command()
@click.option("--tenant", metavar="T", help="Print only this tenant's.")
@click.option("--follow", is_flag=True, help="Print new summaries as they arrive, until Ctrl-C.")
@click.option(
    "--from-beginning", is_flag=True, help="With --follow: begin with the oldest summary."
)
@data_option
def summaries(tenant: str | None, follow: bool, from_beginning: bool, data: Path | None) -> None:
    """Print accepted summaries, voidings and erasures as JSON lines. Summaries of erased
    conversations are left out.

    Without --follow it prints all existing records, oldest first. If the topic has lost its first
    records, a line on stderr says so. Delivery is at least once: dedupe on summary_id. Only the
    order within a conversation is guaranteed.
    """
    if tenant is not None:
        check_name("tenant", tenant)
    run(_print(load_settings(data), tenant, follow, from_beginning or not follow))


async def _print(
    settings: Settings, tenant: str | None, follow: bool, from_beginning: bool
) -> None:
    topic = settings.topic("summaries")
    partitions = [
        TopicPartition(topic, p) for p in range(await partition_count(settings, "summaries"))
    ]
    if from_beginning and (lost := await lost_summaries(settings)):
        say(lost)
    consumer, keys = make_consumer(settings), KeyRing(settings, lambda _: False)
    async with kafka_errors(settings, "reading summaries"):
        await start_client(consumer, settings)
        try:
            await keys.start()
            consumer.assign(partitions)
            ends = await consumer.end_offsets(partitions)
            if from_beginning:
                await consumer.seek_to_beginning()
            else:
                for tp, offset in ends.items():
                    consumer.seek(tp, offset)
            while follow or await _behind(consumer, ends):
                batches = await consumer.getmany(timeout_ms=200)
                for rows in batches.values():
                    await keys.ready(rows)
                for record in (record for batch in batches.values() for record in batch):
                    key = parse_key(record.key or b"")
                    if record.value and (
                        tenant is None or (key is not None and key.tenant == tenant)
                    ):
                        shown = line_of(keys, record.key, record.value)
                        if shown is not None:
                            print_line(shown)
                flush()
        finally:
            await keys.stop()
            await consumer.stop()


def line_of(keys: PayloadCipher, conversation: bytes, value: bytes) -> bytes | None:
    """The line of a record, opened; None for a summary of a conversation that is erased by now, and
    for another producer's record that is no event: it may hold anything, and is no line of JSON.
    """
    try:
        kind = _typed(value).type
    except Undecodable:
        return None
    if kind == _SUMMARY and keys.is_erased(conversation):
        return None
    try:
        return open_value(keys, conversation, value) or value
    except NotAuthentic:
        return value


async def _behind(consumer: AIOKafkaConsumer, ends: dict[TopicPartition, int]) -> bool:
    for tp, end in ends.items():
        if await consumer.position(tp) < end:
            return True
    return False
