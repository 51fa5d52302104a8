"""What an attack on the new storage, fold and append paths found."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from aiokafka.cluster import ClusterMetadata

from projections.errors import CorruptWindow, InvalidEvent
from projections.events import types as events
from projections.events.validation import make_record
from projections.formats.context_document import context_document, stored_context
from projections.policy.policy import Rules
from projections.render.render import render_openai
from projections.storage.protocol import NOTHING, Stored, write_of
from streams.log.appender import Appender
from tests.support.histories import KEY, PARTITION, RULES, Writer, random_log


def _stored(writer: Writer) -> Stored:
    write = write_of(writer.window, NOTHING)
    return Stored(dict(write.put), dict(write.recents_put))


@pytest.mark.parametrize("limit", [0, 5, 10])
def test_a_system_text_that_was_cut_to_the_same_tokens_is_not_read_uncut(limit: int) -> None:
    writer = Writer(random.Random(1), Rules({"pinned_max_tokens": limit}))
    writer.append(events.Message("system", "Be brief, please and always polite."), tokens=11)
    found = stored_context(PARTITION, _stored(writer).fields)
    assert found in (None, context_document(writer.window, render_openai(writer.window)))


def test_a_suspension_that_left_the_tail_does_not_keep_the_window_from_compaction() -> None:
    writer = Writer(random.Random(1), RULES)
    writer.append(events.Suspension("s", "approval"))
    for _ in range(60):
        writer.append(events.Message("user", "word " * 30), tokens=34)
    assert writer.window.lanes.suspensions, "still open"
    assert writer.window.held_tokens, "and out of the tail"
    assert writer.window.meta.due is not None


@pytest.mark.parametrize("calls", [(), ({"id": "a", "name": "b", "arguments": "{}"},)])
def test_a_tuple_of_calls_is_refused_by_the_quick_check_too(
    calls: tuple[dict[str, str], ...],
) -> None:
    flat = {"type": "message", "role": "assistant", "content": "hi", "tool_calls": calls}
    with pytest.raises(InvalidEvent, match="a tuple is not JSON"):
        make_record(KEY, flat, where="event 1", now="2026-01-31T12:00:00Z", new_id="x")


@pytest.mark.parametrize("name", [1, b"x"])
def test_a_field_whose_name_is_no_text_is_named_in_a_plain_error(name: object) -> None:
    flat: dict[Any, object] = {"type": "message", "role": "user", "content": "hi", name: 1}
    with pytest.raises(InvalidEvent, match="field"):
        make_record(KEY, flat, where="event 1", now="2026-01-31T12:00:00Z", new_id="x")


def test_recent_ids_with_impossible_positions_are_a_corrupt_window() -> None:
    writer = random_log(5, 20)
    stored = _stored(writer)
    stored.recents[b"0"] = msgspec.msgpack.encode((bytes(8), [-5]))
    with pytest.raises(CorruptWindow):
        stored.recent_ids(KEY)


class _Batch:
    def append(self, **record: object) -> object:
        return record

    def close(self) -> None:
        return None


class _Away:
    """A producer whose broker is away: aiokafka's idempotent one never gives a batch up."""

    client = SimpleNamespace(cluster=ClusterMetadata())

    def __init__(self) -> None:
        self.sent = asyncio.Event()

    def create_batch(self) -> _Batch:
        return _Batch()

    async def send_batch(self, batch: object, topic: str, *, partition: int) -> asyncio.Future[Any]:
        self.sent.set()
        return asyncio.get_running_loop().create_future()


async def test_rows_of_callers_that_gave_up_while_kafka_is_away_do_not_pile_up() -> None:
    appender, away = Appender("events", 0), _Away()
    producer: Any = away
    first = asyncio.create_task(appender.append(producer, [(b"k", b"v")]))
    await away.sent.wait()
    for _ in range(50):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await appender.append(producer, [(b"k", bytes(1000))])
    assert len(appender._jobs) == 0
    first.cancel()
    await asyncio.gather(first, return_exceptions=True)
    await appender.stop()
