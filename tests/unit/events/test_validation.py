"""Intake: what callers hand in becomes a record that reads back as the same data, or one error that
names event and field.
"""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from projections.errors import EventTooLarge, InvalidEvent, ThreadfoldError
from projections.events import codec
from projections.events import types as events
from projections.events.codec import decode_event, full_type
from projections.events.tokenizer import count
from projections.events.validation import Record, make_record
from projections.names import Key
from tests.support.profiles import examples

KEY = Key("acme", "c1")
NOW = "2026-01-31T12:00:00Z"

CALL = {"id": "a", "name": "f", "arguments": ""}
SPAN = {"from": "3-1", "to": "3-9", "count": 3, "positions": [1, 2, 6], "digest": "0" * 64}
LEARNT = {
    "memory_id": "0" * 64,
    "user": "u",
    "channel": "web",
    "positions": ["3-1"],
    "origin": "model",
    "model": "m",
    "rollback": "3-0",
}
RECORD = {
    **LEARNT, "memory_type": "fact", "text": "Tea.", "normalized_text": "tea", "trust": "user", "topic": "t", "role": "user", "entities": ["tea"],
    "temporal": {"t_ref": NOW}, "tags": {"tool": ["kettle"]}, "confidence": 0.5,
}  # fmt: skip
EVERY_TYPE: dict[str, dict[str, Any]] = {
    "conversation.opened": {
        "policy": {"min_messages": 3}, "channel": "web", "user": "u", "tools": [{"type": "function"}], "metadata": {"n": [1, 2.5, None]},
    },
    "message": {"role": "assistant", "content": None, "tool_calls": [{"id": "a", "name": "f", "arguments": "{}"}], "model": "m"},
    "tool.result": {"tool_call_id": "a", "name": "f", "content": "ok", "is_error": True, "pinned": True},
    "tool.result.chunk": {"spill_id": "s", "index": 0, "count": 2, "content": "half"},
    "suspension": {"suspension_id": "s", "kind": "approval", "tool_call_id": "a", "prompt": "may I?", "expires_at": NOW},
    "resolution": {"suspension_id": "s", "outcome": "answered", "content": "yes"},
    "rollback": {"to": "3-4"},
    "session.closed": {"reason": "idle", "after": "3-4"},
    "turn.started": {"turn_id": "t", "model": "m", "lease": {"token": 3}},
    "turn.ended": {"turn_id": "t"},
    "compaction.requested": {},
    "loop.detected": {"tool": "f", "arguments_sha256": "0" * 64, "count": 3},
    "summary": {
        "summary_id": "s1", "text": "what was said", "tokens": 4, "span": SPAN, "previous": None, "reason": "budget", "summarizer": "x",
        "trust": "user", "tokens_before": 90, "tokens_after": 4, "policy": "p", "previous_position": "3-0", "rollback": "3-1",
    },
    "event.dropped": {"position": "3-4", "reason": "secret"},
    "conversation.erased": {"reason": "asked for"},
    "memory.saved": RECORD,
    "memory.fused": {**RECORD, "source_record_ids": ["a"], "child_composite_ids": ["b"]},
    "memory.superseded": {**LEARNT, "by": "1" * 64, "reason": "later"},
    "memory.deleted": {**LEARNT, "hard": True, "reason": "asked for"},
    "memory.outcome": {**LEARNT, "succeeded": False},
    "memory.retrieved": {
        "user": "u", "taught_by": "c", "records": [{"memory_id": "0" * 64, "retrieved": 2, "hits": 1}, {"memory_id": "1" * 64, "retrieved": 1}],
    },
    "skill.saved": {**LEARNT, "intent": "Tea", "normalized_text": "tea", "doc_markdown": "Boil.", "trust": "user", "preconditions": ["water"]},
}  # fmt: skip


def make(flat: object, **options: Any) -> Record:
    return make_record(KEY, flat, where="event 3", now=NOW, new_id="new-id", **options)


def refused(flat: object, **options: Any) -> str:
    with pytest.raises(InvalidEvent) as caught:
        make(flat, **options)
    assert str(caught.value).startswith("event 3: ")
    assert "\n" not in str(caught.value) and "`" not in str(caught.value)
    return str(caught.value)


def test_every_type_of_the_contract_is_covered_here() -> None:
    assert set(EVERY_TYPE) == set(codec.DATA_TYPES)


@pytest.mark.parametrize("name", sorted(EVERY_TYPE))
def test_every_type_reads_back_as_it_was_handed_in(name: str) -> None:
    record = make({"type": name, **EVERY_TYPE[name]}, operator=True)
    event = decode_event(record.value)
    assert (record.key, record.id, record.type) == (KEY, "new-id", full_type(name))
    assert event.id == "new-id" and event.source == KEY.source and event.time == NOW
    assert event.data == msgspec.convert(EVERY_TYPE[name], codec.DATA_TYPES[name])
    raw = json.loads(record.value)
    assert raw["data"] == EVERY_TYPE[name] and raw["type"] == full_type(name)


def test_id_time_and_trace_parent_are_the_callers_where_given() -> None:
    trace = f"00-{'a' * 32}-{'b' * 16}-01"
    record = make(
        {
            "type": "rollback",
            "to": "x",
            "id": "mine",
            "time": "2026-01-01T00:00:00.5+02:00",
            "traceparent": trace,
        }
    )
    event = decode_event(record.value)
    assert isinstance(event, events.RollbackEvent)
    assert (record.id, event.id, event.time, event.traceparent) == (
        "mine",
        "mine",
        "2026-01-01T00:00:00.5+02:00",
        trace,
    )


def test_tokens_are_counted_in_the_encoding_asked_for() -> None:
    text = "Wie viele Tokens sind das wohl?"
    for encoding in ("o200k_base", "cl100k_base"):
        event = decode_event(
            make({"type": "message", "role": "user", "content": text}, encoding=encoding).value
        )
        assert isinstance(event, events.MessageEvent)
        assert event.tokens == events.Tokens(
            count=count(text, encoding) + 4, encoding=encoding, exact=True
        )


@pytest.mark.parametrize("name", ["threadfold.message.v2", "acme.note.v1", "a.b-c.d_e.v12"])
def test_unknown_and_newer_types_are_taken_with_any_fields(name: str) -> None:
    record = make({"type": name, "anything": {"a": [1]}})
    event = decode_event(record.value)
    assert isinstance(event, events.OtherEvent) and event.type == name == record.type
    assert json.loads(record.value)["data"] == {"anything": {"a": [1]}}


@pytest.mark.parametrize(
    ("flat", "said"),
    [
        (None, "expected an object, got null"),
        ([], "expected an object, got a list"),
        ("x", "expected an object, got text"),
        (True, "got true or false"),
        (1.5, "got a decimal number"),
        ({}, "field type: missing"),
        ({"type": 3}, "field type: expected text, got a whole number"),
        ({"type": "massage"}, "field type: 'massage' is not one of"),
        ({"type": "m" * 200}, "field type: '" + "m" * 60 + "…' is not one of"),
        ({"type": "acme.note"}, "your own type must end in a version, like 'acme.note.v1'"),
        ({"type": "suspension", "suspension_id": "s", "kind": "nap"}, "'nap' is not one of approval, external, input"),
        ({"type": "resolution", "suspension_id": "s", "outcome": "z"}, "'z' is not one of answered, approved, cancelled, expired, rejected"),
        ({"type": "threadfold.message.v1"}, "field type: 'threadfold.message.v1' is not one of"),
        ({"type": "event.dropped", "position": "3-4"}, "field type: 'event.dropped' may be written only by an operator"),
        ({"type": "conversation.erased"}, "operator"),
        ({"type": "message", "role": "user"}, "field content: may be null only"),
        ({"type": "message", "content": "x"}, "field role: missing"),
        ({"type": "message", "role": "tool", "content": "x"}, "field role: "),
        ({"type": "message", "role": "user", "content": 7}, "field content: "),
        ({"type": "message", "role": "user", "content": "x", "colour": "red"}, "field colour: unknown to message"),
        ({"type": "message", "role": "user", "content": [{"type": "video"}]}, "field content[0].type: "),
        ({"type": "message", "role": "user", "content": [{"type": "text"}]}, "field content[0].text: missing"),
        ({"type": "message", "role": "user", "content": "x", "tool_calls": [CALL]}, "field tool_calls: they belong"),
        ({"type": "message", "role": "assistant", "tool_calls": [{"id": "a", "name": "f"}]}, "field tool_calls[0].arguments: missing"),
        ({"type": "message", "role": "assistant", "tool_calls": [{"id": "", "name": "f", "arguments": ""}]}, "field tool_calls[0].id: "),
        ({"type": "message", "role": "assistant", "tool_calls": [{"id": "a", "name": "", "arguments": ""}]}, "field tool_calls[0].name: "),
        ({"type": "tool.result", "content": "x"}, "field tool_call_id: missing"),
        ({"type": "tool.result", "tool_call_id": "", "content": "x"}, "field tool_call_id: "),
        ({"type": "suspension", "suspension_id": "s", "kind": "nap"}, "field kind: "),
        ({"type": "session.closed", "reason": "idle", "after": "yesterday"}, "field after: position 'yesterday'"),
        ({"type": "summary", **EVERY_TYPE["summary"], "previous_position": "x"}, "field previous_position: position 'x'"),
        ({"type": "summary", **EVERY_TYPE["summary"], "rollback": "x"}, "field rollback: position 'x'"),
        ({"type": "summary", **EVERY_TYPE["summary"], "span": {**SPAN, "to": "x"}}, "field span.to: position 'x'"),
        ({"type": "summary", **EVERY_TYPE["summary"], "span": {**SPAN, "positions": ["1"]}}, "field span.positions[0]: "),
        ({"type": "rollback", "to": "x", "id": ""}, "field id: expected a string of 1 to 256"),
        ({"type": "rollback", "to": "x", "id": "i" * 257}, "field id: "),
        ({"type": "rollback", "to": "x", "id": "a\nb"}, "field id: "),
        ({"type": "rollback", "to": "x", "id": "\ud800"}, "field id: "),
        ({"type": "rollback", "to": "x", "id": None}, "field id: "),
        ({"type": "rollback", "to": "x", "time": "yesterday"}, "field time: expected an RFC 3339 time"),
        ({"type": "rollback", "to": "x", "time": "2026-01-01T00:00:00"}, "field time: "),
        ({"type": "rollback", "to": "x", "time": "2026-02-30T00:00:00Z"}, "field time: "),
        ({"type": "rollback", "to": "x", "time": "2026-W01-1T00:00:00Z"}, "field time: "),
        ({"type": "rollback", "to": "x", "time": "2026-01-01\ud80000:00:00Z"}, "field time: "),
        ({"type": "rollback", "to": "x", "time": 5}, "field time: "),
        ({"type": "rollback", "to": "x", "traceparent": "00-1"}, "field traceparent: "),
        ({"type": "rollback", "to": "\ud800"}, "field to: text with a lone surrogate"),
        ({"type": "conversation.opened", "metadata": {"a": float("nan")}}, "field metadata: NaN and infinity are not JSON"),
        ({"type": "conversation.opened", "metadata": {"a": [float("-inf")]}}, "field metadata: NaN"),
        ({"type": "conversation.opened", "metadata": {"a": 2**64}}, "field metadata: an integer is over 64 bits"),
        ({"type": "conversation.opened", "metadata": {"\udfff": 1}}, "field metadata: text with a lone surrogate"),
        ({"type": "conversation.opened", "tools": [{"a": "\ud800"}]}, "field tools: text with a lone surrogate"),
        ({"type": "conversation.opened", "tools": [{"a": 10**400}]}, "field tools: an integer is over 64 bits"),
        ({"type": "acme.note.v1", "\ud800": 1}, "field '\\ud800': text with a lone surrogate"),
        ({"type": "acme.note.v1", "x": {1, 2}}, "field x: a set is not JSON"),
        ({"type": "loop.detected", "tool": "f", "arguments_sha256": "", "count": 10**30}, "field count: "),
    ],
)  # fmt: skip
def test_an_error_names_the_event_and_the_field(flat: object, said: str) -> None:
    assert said in refused(flat)


def test_only_types_that_callers_may_send_are_offered() -> None:
    said = refused({"type": "massage"})
    assert "message, " in said
    assert not any(name in said for name in ("event.dropped", "tool.result.chunk", "memory.saved"))


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


def test_deep_nesting_is_refused_and_what_is_not_too_deep_reads_back() -> None:
    record = make({"type": "conversation.opened", "metadata": {"a": nested(60)}})
    event = decode_event(record.value)
    assert isinstance(event, events.OpenedEvent) and event.data.metadata == {"a": nested(60)}
    for name, field in (("conversation.opened", "metadata"), ("acme.note.v1", "metadata")):
        for depth in (70, 300, 100_000):
            assert f"field {field}: it is nested more than 64 levels deep" in refused(
                {"type": name, field: {"a": nested(depth)}}
            )


def test_an_event_over_the_limit_is_refused_with_its_size_and_one_just_under_it_is_not() -> None:
    flat = {"type": "message", "role": "user", "content": "x" * 500}
    size = len(make(flat).value)
    assert make(flat, max_bytes=size).id == "new-id"
    with pytest.raises(
        EventTooLarge, match=f"event 3: {size} bytes are over the limit of {size - 1} bytes"
    ):
        make(flat, max_bytes=size - 1)


def test_what_was_handed_in_is_not_changed() -> None:
    flat = {"type": "message", "role": "user", "content": [{"type": "text", "text": "x"}]}
    before = json.dumps(flat)
    make(flat)
    assert json.dumps(flat) == before


SCALARS = (
    st.none() | st.booleans() | st.integers() | st.integers(10**20, 10**320) | st.floats()
    | st.text(st.characters(), max_size=6) | st.sampled_from(["user", "assistant", "3-4", "idle", NOW, "\ud800", "s", "approval"])
)  # fmt: skip
FIELDS = sorted(
    {f.encode_name for s in codec.DATA_TYPES.values() for f in msgspec.structs.fields(s)}
    | {"id", "time", "traceparent", "from"}
)
JSON = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3), inner, max_size=4)
    ),
    max_leaves=10,
)
FLAT = st.one_of(
    JSON,
    st.builds(
        lambda name, extra: {**extra, "type": name},
        st.sampled_from([*sorted(codec.DATA_TYPES), "acme.note.v1", "threadfold.message.v2"]),
        st.dictionaries(st.sampled_from(FIELDS) | st.text(max_size=3), JSON, max_size=4),
    ),
    st.builds(
        lambda name, drop, extra: {**{k: v for k, v in EVERY_TYPE[name].items() if k != drop}, **extra, "type": name},
        st.sampled_from(sorted(EVERY_TYPE)), st.sampled_from(FIELDS), st.dictionaries(st.sampled_from(FIELDS), JSON, max_size=1),
    ),
)  # fmt: skip


@given(FLAT)
@hypothesis_settings(max_examples=examples(1_500), deadline=None)
def test_any_json_is_refused_by_name_or_reads_back_as_the_same_data(flat: Any) -> None:
    try:
        record = make(flat, operator=True)
    except ThreadfoldError as error:
        assert str(error).startswith("event 3: ")
        str(error).encode()
        return
    event = decode_event(record.value)
    fields = {
        name: value
        for name, value in flat.items()
        if name not in ("id", "time", "type", "traceparent", "conversation")
    }
    assert json.loads(record.value)["data"] == fields
    assert event.id == record.id and event.source == KEY.source
    if not isinstance(event, events.OtherEvent):
        assert event.data == msgspec.convert(fields, codec.DATA_TYPES[flat["type"]])


@pytest.mark.parametrize(
    "time",
    [
        "tomorrow",
        "",
        "2026-01-01",
        "2026-02-30T00:00:00Z",
        "2026-01-31T12:00:00",
        " 2026-01-31T12:00:00Z",
    ],
)
def test_an_expiry_that_is_no_time_is_refused_instead_of_never_coming(time: str) -> None:
    flat = {"type": "suspension", "suspension_id": "s", "kind": "approval", "expires_at": time}
    with pytest.raises(InvalidEvent, match="event 1: field expires_at: expected an RFC 3339 time"):
        make_record(Key("t", "c"), flat, where="event 1", now="2026-01-31T12:00:00Z", new_id="x")
    assert make_record(
        Key("t", "c"),
        {**flat, "expires_at": "2026-01-31T12:00:00+01:00"},
        where="e",
        now="2026-01-31T12:00:00Z",
        new_id="x",
    )
