"""The codec of the topic of summaries, which clients of any kind read."""

from __future__ import annotations

import aiokafka.codec
import pytest
from aiokafka import AIOKafkaConsumer, TopicPartition

from projections.errors import InvalidSettings
from projections.names import Key
from streams.log.login import connection
from streams.partition.effects import Effects
from streams.projector.effect_sink import Publisher
from streams.settings.settings import Settings
from threadfold.testing.memory_log import MemoryLog

KEY = Key("acme", "c")


async def test_summaries_reach_a_client_that_knows_gzip_alone(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    publisher = Publisher(settings, MemoryLog(settings.partitions))
    try:
        await publisher.publish(0, Effects(voided=[(KEY, 3, "other")]), [])
    finally:
        await publisher.stop()
    for codec in ("snappy", "lz4", "zstd"):
        monkeypatch.setattr(aiokafka.codec, f"has_{codec}", lambda: False)
    topic = settings.topic("summaries")
    async with AIOKafkaConsumer(
        topic, **connection(settings), auto_offset_reset="earliest"
    ) as client:
        ends = await client.end_offsets(
            [TopicPartition(topic, p) for p in range(settings.partitions)]
        )
        assert sum(ends.values()) == 1
        record = await client.getone()
    assert record.key == str(KEY).encode()
    assert b"summary.voided" in record.value


def test_codec_that_kafka_does_not_have_is_refused_by_name() -> None:
    with pytest.raises(InvalidSettings, match="'public_codec' is 'brotli': it must be one of none"):
        Settings.load({}, public_codec="brotli")
