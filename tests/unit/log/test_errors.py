"""Kafka's failures are named by cause, with what to do."""

from __future__ import annotations

import pytest
from aiokafka.errors import CorruptRecordException, KafkaConnectionError, KafkaError

from projections.errors import KafkaUnavailable
from streams.log.clients import kafka_errors
from streams.settings.settings import Settings


@pytest.mark.parametrize(
    ("error", "remedy"),
    [
        (CorruptRecordException("at 12"), "damaged there: bring them back from a replica"),
        (KafkaConnectionError("closed"), "check that it runs, and that it accepts kafka_user"),
    ],
)
async def test_a_failure_says_what_to_do_about_it(error: KafkaError, remedy: str) -> None:
    settings = Settings.load(env={}, kafka="127.0.0.1:1", kafka_user="a", kafka_password="b")
    with pytest.raises(KafkaUnavailable, match=remedy):
        async with kafka_errors(settings):
            raise error
