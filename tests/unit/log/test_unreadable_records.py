"""Anybody who can write to a topic can write anything. Each topic's reader passes over what it cannot
read, and no kind of garbage is another error to it.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import msgspec
import pytest

from projections.events.codec import decode_event
from projections.events.untrusted import Undecodable, json_decoder
from projections.memory.news import log_of, read_news
from projections.names import Key, Position
from projections.policy.policy import Rules
from projections.storage.snapshots import (
    body_of,
    decode_marker,
    decode_snapshot,
    encode_snapshot,
    stamp_of,
)
from projections.window.window import Window
from streams.compaction.compactor import Compactor, decode_request
from streams.compaction.dispatcher import Dispatcher
from streams.control.state import State
from streams.encryption.key_table import KeyTable
from streams.encryption.payload_cipher import Unsealed, is_sealed, open_value
from streams.log.log import Raw
from streams.log.topic_copies import Copied
from streams.maintenance.dead_letters import DeadLetters
from streams.maintenance.log_copy import Sums
from streams.memory.extraction_requests import decode_extraction
from streams.metrics.reports import read_reports
from streams.projector.effect_sink import NullSink
from streams.settings.settings import Settings
from tests.support.restored_windows import restore, snapshot_offsets
from threadfold.cli.summaries import line_of
from threadfold.service.model_call import stored_call
from threadfold.service.pages import flat_event
from threadfold.streaming.decoding import decode_record, decode_summary
from threadfold.testing import MemoryLog, MemoryStore

KEY = Key("acme", "c1")
NAME = str(KEY).encode()
SOURCE = KEY.source.encode()


def nested(levels: int) -> bytes:
    return b"[" * levels + b"]" * levels


GARBAGE = {
    "nested in a list": nested(2_000),
    "nested in a field": b'{"x":' + nested(100_000) + b"}",
    "nested in a record": (
        b'{"name":"acme","policy":{"x":' + nested(2_000) + b'},"source":"' + SOURCE + b'"}'
    ),
    "no UTF-8 in a text": (
        b'{"name":"\xff","position":"\xff","source":"\xff","type":"\xff","id":"\xff","state":"\xff",'
        b'"master":"\xff","wrapped":"\xff","number":1,"request_id":"\xff","tenant":"\xff"}'
    ),
    "no UTF-8 in a name": b'{"\xff":1}',
    "no UTF-8 at all": b"\xff\xfe\x00",
    "empty": b"",
    "cut off": b'{"name":"acme',
    "another type": b"17",
    "a number too large": b'{"number":' + b"9" * 5_000 + b"}",
    "half of a pair": b'{"name":"\\ud800"}',
}
every_garbage = pytest.mark.parametrize("value", GARBAGE.values(), ids=GARBAGE.keys())


def row(value: bytes, offset: int = 0) -> Raw:
    return Raw(Position(0, offset), NAME, value, 0)


@every_garbage
@pytest.mark.parametrize("type_", [dict[str, msgspec.Raw], Any, int, list[str]])
def test_json_that_cannot_be_decoded_is_one_error_or_none_at_all(value: bytes, type_: Any) -> None:
    try:
        json_decoder(type_)(value)
    except Undecodable as error:
        assert len(str(error)) < 200


@pytest.mark.parametrize("levels", [127, 128, 129, 400, 2_000])
def test_how_deep_a_record_may_nest_does_not_depend_on_the_callers_stack(levels: int) -> None:
    decode = json_decoder()

    def called_from(depth: int) -> bool:
        if depth:
            return called_from(depth - 1)
        try:
            decode(nested(levels))
        except Undecodable:
            return False
        return True

    assert {called_from(depth) for depth in (0, 300)} == {levels <= 128}


CONTROL = [
    b"generation/live",
    b"generation/7",
    b"generation/seven",
    b"claim/x/y",
    b"tenant/acme",
    b"key/0",
    b"token-keys/acme",
    b"halt/0",
    b"halt/x",
    b"maintenance/",
    b"copy/acme",
    b"view/one",
    b"\xff",
]


@every_garbage
@pytest.mark.parametrize("key", CONTROL)
def test_the_control_topic_raises_nothing_but_what_its_follower_skips(
    key: bytes, value: bytes
) -> None:
    state = State()
    state.put(b"tenant/acme", b'{"name":"acme"}')
    state.put(b"generation/live", b"1")
    try:
        state.put(key, value)
    except ValueError:
        assert state.live == 1 and state.tenants["acme"].name == "acme"


@every_garbage
@pytest.mark.parametrize(
    "place", [NAME + b"/erased", NAME + b"/" + base64.urlsafe_b64encode(b"A" * 12), b"\xff"]
)
def test_the_keys_topic_raises_nothing_but_what_its_follower_skips(
    place: bytes, value: bytes
) -> None:
    table = KeyTable()
    with suppress(ValueError):
        table.put(place, value)
    assert len(table) == 0 and not table.any_erased


@every_garbage
def test_records_of_the_other_topics_that_cannot_be_read_are_none(value: bytes) -> None:
    assert log_of(value) in (None, KEY)
    with pytest.raises(Undecodable):
        read_news(KEY, value)
    with pytest.raises(Undecodable):
        decode_event(value)
    assert decode_request(value) is None
    assert decode_extraction(value) is None
    assert stored_call(row(value), Unsealed()) is None
    stamp = stamp_of(1, Rules())
    assert decode_snapshot(value, stamp) is None
    assert decode_marker(value, stamp) is None
    assert body_of(value) is None
    assert read_reports({"one": value}) in ({}, {"one": {}})
    assert line_of(Unsealed(), NAME, value) in (None, value)
    assert decode_summary(row(value), 0, KEY, Unsealed()) is None
    assert not is_sealed(value)
    assert open_value(Unsealed(), NAME, value) == value
    Sums(1).add(0, Copied(0, 0, NAME, value, ()))


@every_garbage
async def test_a_dead_letter_that_cannot_be_read_is_passed_over(value: bytes) -> None:
    letters = MemoryLog(1)
    letters.put(0, NAME, value)
    letters.put(0, NAME, b'{"position":"0-7","cause":"it is none","kind":"record"}')
    found = DeadLetters(MemoryLog(1), letters, MemoryStore(), 1, Rules(), NullSink())
    assert [one.position for one in await found.records()] == [Position(0, 7)]


@every_garbage
async def test_a_request_that_cannot_be_read_is_done(value: bytes) -> None:
    dispatcher, done = Dispatcher(Compactor(Settings(), MemoryLog(1)), {}), list[int]()
    await dispatcher.take(value, lambda: done.append(1))
    await dispatcher.idle()
    assert done == [1]


def packed(levels: int) -> bytes:
    return b"\x91" * levels + b"\x00"


def test_a_snapshot_that_nests_too_deep_is_none() -> None:
    rules = Rules()
    stamp = stamp_of(1, rules)
    assert decode_snapshot(packed(5_000), stamp) is None
    assert decode_marker(packed(5_000), stamp) is None
    assert body_of(packed(5_000)) is None
    with pytest.raises(ValueError):
        snapshot_offsets(packed(5_000))
    with pytest.raises(ValueError):
        restore(KEY, 0, rules, msgspec.msgpack.encode((packed(5_000), [], b"")), {})
    whole = decode_snapshot(encode_snapshot(Window(KEY, 0, rules), stamp, 3, "digest"), stamp)
    assert whole is not None and whole.offset == 3


def test_an_event_of_an_unknown_type_whose_payload_was_never_read_is_not_shown() -> None:
    def event(data: bytes, type_: bytes = b"other.v1") -> Raw:
        return row(
            b'{"specversion":"1.0","id":"x","type":"%b","source":"%b","data":%b}'
            % (type_, SOURCE, data)
        )

    shown: Callable[[Raw], object] = lambda raw: flat_event(raw, KEY, Unsealed())  # noqa: E731
    streamed: Callable[[Raw], object] = lambda raw: decode_record(raw, 0, KEY, Unsealed())  # noqa: E731
    for data in (b'{"a":"\xff"}', b'{"\xff":1}', b'{"a":1e999}'):
        assert shown(event(data)) is None
        assert streamed(event(data)) is None
    assert shown(event(b'{"a":1}')) is not None
    assert streamed(event(b'{"a":1}')) is not None
