"""A log line that is about a conversation carries it as fields."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import msgspec
import pytest

from projections.errors import KafkaUnavailable
from projections.names import Key, Position
from streams.compaction.compactor import Compactor
from streams.compaction.dispatcher import Dispatcher
from streams.compaction.requests import CompactionRequest
from streams.runtime.log_fields import about
from streams.settings.settings import Settings
from tests.support.own_lines import own_lines
from tests.support.worker import until
from threadfold.testing.memory_log import MemoryLog


class Failing(Compactor):
    """A compactor that answers no request."""

    def __init__(self, error: Exception) -> None:
        super().__init__(Settings.load(env={}), MemoryLog(1))
        self.error = error

    async def answer_if_due(self, request: CompactionRequest, allowed: Any = None) -> None:
        raise self.error


def test_the_position_is_left_out_where_it_is_not_known() -> None:
    key = Key("acme", "c1")
    assert about(key) == {"tenant": "acme", "conversation": "c1"}
    assert about(key, Position(3, 17)) == {
        "tenant": "acme",
        "conversation": "c1",
        "position": "3-17",
    }


@pytest.mark.parametrize("error", [KafkaUnavailable("it is away"), RuntimeError("unexpected")])
async def test_a_compaction_that_fails_names_its_conversation_in_fields(
    error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    request = CompactionRequest(
        "r1", "acme", "c1", 1, 0, 0, 9, [], "budget", "extractive", 100, "o200k_base", "p"
    )
    compactor: Any = Failing(error)
    dispatcher = Dispatcher(compactor, {})
    with caplog.at_level(logging.WARNING):
        await dispatcher.take(msgspec.json.encode(request), lambda: None)
        await until(lambda: asyncio.sleep(0, own_lines(caplog, logging.WARNING)))
    await dispatcher.close()
    record = own_lines(caplog, logging.WARNING)[0]
    assert (record.__dict__["tenant"], record.__dict__["conversation"]) == ("acme", "c1")
    assert record.getMessage().startswith("compaction of acme/c1 ")
