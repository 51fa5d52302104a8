"""The pure parts of streams: frames, a reader's bounds, cursors, and a record as subscribers get it."""

from __future__ import annotations

import asyncio
import json

import pytest

from projections.errors import InvalidPosition
from projections.events.validation import make_record
from projections.names import Key, Position
from streams.encryption.payload_cipher import Unsealed
from streams.log.log import Raw
from streams.runtime.keyed_limit import KeyedLimit
from threadfold.cli.summaries import line_of
from threadfold.service.pages import flat_event
from threadfold.streaming.cursor import read_cursor, write_cursor
from threadfold.streaming.decoding import decode_record, decode_summary
from threadfold.streaming.reader import SLOW, Reader
from threadfold.streaming.sse_event import HEARTBEAT, SseEvent, comment
from threadfold.streaming.unsent import TenantStreams

KEY = Key("acme", "c1")
PLAIN = Unsealed()


def raw(flat: dict[str, object] | None = None, value: bytes | None = None, offset: int = 7) -> Raw:
    if flat is not None:
        value = make_record(
            KEY, flat, where="e", now="2026-01-01T00:00:00Z", new_id="e1", operator=True
        ).value
    return Raw(Position(2, offset), b"acme/c1", value, 0)


def test_frames_stand_as_the_standard_says() -> None:
    assert SseEvent("event", "2-7", b"{}").frame == b"event: event\nid: 2-7\ndata: {}\n\n"
    assert SseEvent("state", None, b"{}").frame == b"event: state\ndata: {}\n\n"
    assert comment("bye").frame == b": bye\n\n"


@pytest.mark.parametrize(
    "flat",
    [
        {"type": "message", "role": "user", "content": "héllo\nthere\r\n"},
        {
            "type": "message",
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "1", "name": "f", "arguments": "{}"}],
        },
        {"type": "event.dropped", "position": "2-3"},
        {"type": "session.closed", "reason": "explicit"},
        {"type": "conversation.erased"},
        {"type": "acme.note.v1", "any": {"thing": [1, 2]}},
    ],
)
def test_subscribers_get_the_flat_event_that_history_gives(flat: dict[str, object]) -> None:
    row = raw(flat)
    found = decode_record(row, 2, KEY, PLAIN)
    assert found is not None
    assert json.loads(found.sse.data) == flat_event(row, KEY, PLAIN)
    assert b"\n" not in found.sse.data
    assert found.sse.id == "2-7"
    assert found.last == (flat["type"] == "conversation.erased")
    assert found.ends == ("complete" if flat.get("role") == "assistant" else None)


def test_another_producers_line_ends_do_not_break_a_frame() -> None:
    value = json.dumps(
        json.loads(raw({"type": "message", "role": "user", "content": "x"}).value or b""), indent=1
    ).encode()
    found = decode_record(raw(value=value), 2, KEY, PLAIN)
    assert found is not None
    assert b"\n" not in found.sse.data
    assert json.loads(found.sse.data)["content"] == "x"


def test_subscribers_get_nothing_of_another_conversation_garbage_or_a_piece_of_a_result() -> None:
    row = raw({"type": "message", "role": "user", "content": "x"})
    assert decode_record(row._replace(key=b"acme/c2"), 2, KEY, PLAIN) is None
    assert decode_record(raw(value=b"{"), 2, KEY, PLAIN) is None
    assert decode_record(raw(value=None), 2, KEY, PLAIN) is None
    assert (
        decode_record(
            raw(
                {
                    "type": "tool.result.chunk",
                    "spill_id": "s",
                    "index": 0,
                    "count": 1,
                    "content": "x",
                }
            ),
            2,
            KEY,
            PLAIN,
        )
        is None
    )
    assert decode_summary(raw(value=b"["), 2, KEY, PLAIN) is None
    assert decode_summary(row, 2, KEY, PLAIN) is None


class Erased(Unsealed):
    """The keys of a deployment that erased the conversation."""

    def is_erased(self, conversation: bytes) -> bool:
        return conversation == b"acme/c1"


def cloud_event(kind: str, **data: object) -> bytes:
    source = "/tenants/acme/conversations/c1"
    event = {"specversion": "1.0", "id": "s1", "type": kind, "source": source, "data": data}
    return json.dumps(event).encode()


def test_summaries_of_an_erased_conversation_are_neither_served_nor_printed() -> None:
    summary = cloud_event("threadfold.summary.v1", summary_id="s1", text="order 4711")
    voided = cloud_event("threadfold.summary.voided.v1", summary_id="s1", by="3-1")
    erased = cloud_event("threadfold.conversation.erased.v1")
    assert decode_summary(raw(value=summary), 2, KEY, PLAIN) is not None
    assert line_of(PLAIN, b"acme/c1", summary) == summary
    assert line_of(PLAIN, b"acme/c1", b"\xff\n") is None, "it is no line of JSON"
    assert decode_summary(raw(value=summary), 2, KEY, Erased()) is None
    assert line_of(Erased(), b"acme/c1", summary) is None
    assert line_of(Erased(), b"acme/c1", b"order 4711") is None
    for value in (voided, erased):
        assert decode_summary(raw(value=value), 2, KEY, Erased()) is not None
        assert line_of(Erased(), b"acme/c1", value) == value


def test_cursors_are_read_back_and_those_of_others_refused() -> None:
    offsets = [0, 1, 127, 128, 300_000, 1 << 40]
    cursor = write_cursor("t.summaries", "acme", offsets)
    assert read_cursor("t.summaries", "acme", 6, cursor) == offsets
    for topic, tenant, count, given in (
        ("t.summaries", "rival", 6, cursor),
        ("u.summaries", "acme", 6, cursor),
        ("t.summaries", "acme", 5, cursor),
        ("t.summaries", "acme", 6, cursor[:-2]),
        ("t.summaries", "acme", 6, ""),
        ("t.summaries", "acme", 6, "é"),
    ):
        with pytest.raises(InvalidPosition):
            read_cursor(topic, tenant, count, given)


async def test_a_reader_that_falls_behind_ends_with_the_reason_and_nothing_else() -> None:
    for most, most_bytes in ((3, 1 << 20), (100, 25)):
        reader = Reader(most, most_bytes)
        reader.join(-1)
        reader.joining = False
        for _ in range(4):
            reader.put(SseEvent("event", "1-1", b"0123456789"))
        assert reader.ended == SLOW
        assert await reader.take() == []


async def test_one_message_of_any_size_may_wait_and_joining_readers_overflow_instead() -> None:
    reader = Reader(2, 10)
    reader.join(-1)
    reader.put(SseEvent("event", "1-1", b"x" * 100))
    assert not reader.overflowed
    reader.put(SseEvent("event", "1-2", b"x"))
    assert reader.overflowed
    assert reader.ended is None
    reader.join(5)
    reader.put(SseEvent("event", "1-3", b"y"))
    assert [sent.id for sent in await reader.take()] == ["1-3"]


async def test_a_heart_beat_comes_only_in_silence_and_what_waits_comes_before_the_end() -> None:
    reader = Reader()
    reader.joining = False
    reader.beat(1.0, 5.0)
    reader.put(SseEvent("event", "1-1", b"{}"))
    reader.beat(6.5, 5.0)
    reader.end("bye")
    assert [sent.id for sent in await reader.take()] == ["1-1"]
    assert await reader.take() == []
    silent = Reader()
    silent.beat(6.5, 5.0)
    async with asyncio.timeout(1):
        assert await silent.take() == [HEARTBEAT]


async def test_of_a_reader_that_ends_at_once_or_before_its_past_is_sent_nothing_that_waits_comes() -> (
    None
):
    last = SseEvent("event", "1-2", b"{}")
    amid, now, erased = Reader(), Reader(), Reader()
    erased.join(-1)
    erased.overflowed = True
    for reader in (amid, now, erased):
        reader.put(SseEvent("event", "1-1", b"{}"))
    now.joining = False
    amid.end("the gateway stops")
    now.end_now("not allowed")
    erased.end_now("erased", last)
    erased.put(SseEvent("event", "1-3", b"{}"))
    erased.mute()
    assert [await reader.take() for reader in (amid, now, erased)] == [[], [], [last]]
    assert await erased.take() == []
    assert [r.ended for r in (amid, now, erased)] == ["the gateway stops", "not allowed", "erased"]


async def test_a_reader_that_is_muted_sends_nothing_but_signs_of_life_and_what_ends_it() -> None:
    reader, last = Reader(), SseEvent("event", "1-3", b"{}")
    reader.joining = False
    reader.put(SseEvent("event", "1-1", b"{}"))
    reader.mute()
    reader.put(SseEvent("event", "1-2", b"{}"))
    reader.put(HEARTBEAT)
    assert not reader.sends
    assert await reader.take() == [HEARTBEAT]
    reader.end_now("erased", last)
    reader.mute()
    assert await reader.take() == [last]
    assert await reader.take() == []


async def test_what_waits_of_an_erased_conversation_is_not_sent() -> None:
    erased, shared = set[bytes](), TenantStreams("acme", KeyedLimit(1))
    reader = Reader(tenant=shared, is_erased=erased.__contains__)
    gone, stays = SseEvent("summary", "1", b"{}", b"acme/a"), SseEvent("summary", "2", b"[]")
    reader.put(gone)
    reader.put(stays)
    erased.add(b"acme/a")
    assert await reader.take() == [stays]
    reader.put(gone)
    took = asyncio.create_task(reader.take())
    await asyncio.sleep(0)
    assert not took.done(), "nothing that is sent came"
    reader.put(stays)
    assert await took == [stays]
    reader.close()
    assert shared.unsent.bytes == 0
