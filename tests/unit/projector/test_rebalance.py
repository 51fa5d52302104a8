"""A rebalance that ends while the projector prepares what the one before brought."""

from __future__ import annotations

import asyncio

from aiokafka import TopicPartition

from streams.control.follower import Control
from streams.projector.projector import Projector
from streams.settings.settings import Settings
from threadfold.testing import MemoryLog, MemoryStore


class Assignment:
    """Just the consumer's answer to what is assigned now."""

    def __init__(self, *numbers: int) -> None:
        self.numbers = numbers

    def assignment(self) -> set[TopicPartition]:
        return {TopicPartition("events", number) for number in self.numbers}


async def test_a_partition_assigned_while_others_are_prepared_is_prepared_in_the_next_round(
    monkeypatch,
) -> None:  # type: ignore[no-untyped-def]
    settings = Settings(kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    projector = Projector(settings, Control(settings), MemoryLog(2), MemoryStore())
    consumer = Assignment(0)
    prepared: list[int] = []

    async def prepare(_: object, number: int) -> bool:
        prepared.append(number)
        if consumer.numbers == (0,):
            consumer.numbers = (0, 1)
            projector.revoked([0])
            projector.assigned([0, 1])
        return True

    monkeypatch.setattr(projector, "_prepare", prepare)
    projector.assigned([0])
    projector._prepare_all(consumer)  # type: ignore[arg-type]
    await asyncio.gather(*projector._preparing.values())
    projector._prepare_all(consumer)  # type: ignore[arg-type]
    await asyncio.gather(*projector._preparing.values())
    assert prepared == [0, 1]
