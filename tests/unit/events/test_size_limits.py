"""What a window keeps of one event is bounded, on append and in the fold alike; what an operator
took out stays out.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from projections.errors import InvalidEvent
from projections.events import codec
from projections.events import types as events
from projections.events.size_limits import MAX_CALLS, MAX_CONTROL_BYTES, MAX_NAME, out_of_bounds
from projections.events.validation import make_record
from projections.fold.apply import Status
from projections.fold.replay import apply_with_log, replay
from projections.names import Key
from projections.policy.policy import Rules
from projections.window.conversation_state import MAX_PINNED
from tests.support.histories import KEY, PARTITION, RULES, Writer, make_event
from tests.support.refolds import refold

CALL = {"id": "a", "name": "look", "arguments": "{}"}
TOO_LARGE = [
    (
        {"type": "message", "role": "assistant", "tool_calls": [CALL] * (MAX_CALLS + 1)},
        "tool_calls",
    ),
    (
        {
            "type": "message",
            "role": "assistant",
            "tool_calls": [{**CALL, "id": "x" * (MAX_NAME + 1)}],
        },
        "tool_calls[0].id",
    ),
    ({"type": "message", "role": "user", "content": "x", "name": "n" * (MAX_NAME + 1)}, "name"),
    ({"type": "tool.result", "tool_call_id": "x" * (MAX_NAME + 1), "content": "x"}, "tool_call_id"),
    (
        {"type": "suspension", "suspension_id": "s" * (MAX_NAME + 1), "kind": "input"},
        "suspension_id",
    ),
    (
        {
            "type": "suspension",
            "suspension_id": "s",
            "kind": "input",
            "prompt": "p" * MAX_CONTROL_BYTES,
        },
        "prompt",
    ),
    ({"type": "conversation.opened", "metadata": {"m": "x" * MAX_CONTROL_BYTES}}, "metadata"),
    ({"type": "turn.started", "turn_id": "t" * MAX_CONTROL_BYTES}, "turn_id"),
]


@pytest.mark.parametrize(("flat", "field"), TOO_LARGE)
def test_an_event_beyond_its_bounds_is_refused_on_append_and_skipped_in_the_fold(
    flat: dict, field: str
) -> None:
    with pytest.raises(
        InvalidEvent, match=f"event 1: field {field.replace('[', chr(92) + '[')}: .* over the limit"
    ):
        make_record(Key("a", "b"), flat, where="event 1", now="2026-01-01T00:00:00Z", new_id="x")
    fields = {name: value for name, value in flat.items() if name != "type"}

    data = msgspec.convert(fields, codec.DATA_TYPES[flat["type"]])
    writer = Writer(random.Random(1))
    writer.append(events.Message("user", "before"), tokens=10)
    assert writer.append(data) is Status.REJECTED
    assert writer.append(events.Message("user", "after"), tokens=10) is Status.APPLIED
    assert writer.window.meta.skipped == 1 and len(writer.window.image()) < 2_000


def test_tool_schemas_and_answers_are_not_kept_in_the_window_and_do_not_count_against_the_bound() -> (
    None
):
    tools = [{"name": "t", "description": "d" * MAX_CONTROL_BYTES}]
    assert out_of_bounds(events.Opened(tools=tools)) is None
    assert out_of_bounds(events.Resolution("s", "answered", "a" * MAX_CONTROL_BYTES)) is None


def test_what_an_operator_took_out_stays_out_after_a_rollback_that_reads_the_log() -> None:
    writer = Writer(random.Random(2))
    for i in range(4):
        writer.append(events.Message("user", f"message {i}"), tokens=10)
    secret, target = writer.log[1][0], writer.log[2][0]
    writer.append(events.EventDropped(f"{PARTITION}-{secret}"))
    writer.append(events.Rollback(f"{PARTITION}-{writer.log[0][0]}"))
    writer.append(events.Rollback(f"{PARTITION}-{target}"))
    bodies = b"".join(entry.body for entry in writer.window.tail)
    assert b"message 0" in bodies and b"message 2" in bodies and b"message 1" not in bodies
    assert replay(KEY, PARTITION, RULES, writer.log).image() == writer.window.image()


def test_system_text_that_left_the_tail_can_still_be_taken_out() -> None:
    writer = Writer(random.Random(3))
    writer.append(events.Message("system", "a secret rule"), tokens=10)
    system = writer.log[0][0]
    window = writer.window
    window.cover(1, set())
    assert any(b"secret" in item.body for item in window.state.pinned)
    refold(window)
    apply_with_log(
        window, 50, make_event(events.EventDropped(f"{PARTITION}-{system}"), "drop"), writer.log
    )
    assert window.state.pinned == []


def test_a_window_is_bounded_in_bytes_whatever_its_events_cost_in_tokens() -> None:
    writer = Writer(random.Random(4), Rules({"compaction": False}))
    for i in range(40):
        writer.append(events.Message("system", f"{i} " + "rule " * 200_000), tokens=5)
        writer.append(events.Suspension(f"s{i}", "input", prompt="p" * 30_000))
    assert len(writer.window.image()) < 24 << 20
    assert replay(KEY, PARTITION, writer.rules, writer.log).image() == writer.window.image()


def test_thousands_of_system_messages_keep_a_bounded_lane_and_cost_no_more_each() -> None:
    writer = Writer(random.Random(5), Rules())
    for i in range(3_000):
        writer.append(events.Message("system", f"rule {i}"), tokens=0)
    assert len(writer.window.state.pinned) == MAX_PINNED
    assert b"rule 2999" in writer.window.state.pinned[-1].body


def test_a_call_without_an_id_or_a_name_is_skipped_in_the_fold_as_it_is_refused_on_append() -> None:
    writer = Writer(random.Random(6))
    for call in (events.ToolCall("", "look", "{}"), events.ToolCall("a", "", "{}")):
        assert (
            writer.append(events.Message("assistant", None, tool_calls=[call])) is Status.REJECTED
        )
    assert not any(entry.body for entry in writer.window.tail)
