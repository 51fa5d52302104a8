"""A body of an append: where it is read, and what of it is refused."""

from __future__ import annotations

import json
import pickle
import time
from typing import Any

import pytest

from projections.errors import (
    InvalidEvent,
    InvalidPosition,
    InvalidRequest,
    MalformedInput,
    RequestTooLarge,
)
from projections.events.token_cost import MOST_SLOW
from projections.names import make_key, partition_of
from projections.policy.policy import Rules
from streams.runtime.process_pool import WorkerLost
from streams.runtime.shared_bytes import SharedBytes
from threadfold.service.append_body import (
    LOOP_BYTES,
    LOOP_VALUES,
    THREAD_BYTES,
    THREAD_VALUES,
    AppendBody,
    Form,
    Place,
)
from threadfold.service.drafts import Conditions, Drafter

SAY = {"role": "user", "content": "hello"}


def body(value: Any, form: Form = Form.OPENAI, *, lenient: bool = False) -> AppendBody:
    return AppendBody(json.dumps(value).encode(), form, "c", lenient)


def drafter() -> Drafter:
    return Drafter("acme", Rules(), 4, 8 << 20)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"x" * LOOP_BYTES, Place.LOOP),
        (b"x" * (LOOP_BYTES + 1), Place.THREAD),
        (b"[" * (LOOP_VALUES + 1), Place.THREAD),
        (b"[" * (THREAD_VALUES + 1), Place.PROCESS),
        (b"x" * THREAD_BYTES, Place.THREAD),
        (b"x" * (THREAD_BYTES + 1), Place.PROCESS),
    ],
)
def test_a_body_is_read_where_it_holds_up_nobody(text: bytes, place: Place) -> None:
    assert AppendBody(text, Form.EVENTS, "c").place() is place


def test_a_body_read_in_another_process_gives_the_same_records() -> None:
    made = body([SAY, SAY])
    there, drafts_there = pickle.loads(pickle.dumps((made, drafter())))
    here = made.drafts(drafter(), "seed").records
    assert [record.id for record in there.drafts(drafts_there, "seed").records] == [
        record.id for record in here
    ]


def test_a_shared_body_is_read_once_in_another_process() -> None:
    shared = SharedBytes()
    shared.write(json.dumps([SAY, SAY]).encode())
    made = AppendBody(shared, Form.OPENAI, "c")
    assert made.place() is Place.PROCESS
    assert len(made.drafts(drafter(), "seed").records) == 2
    with pytest.raises(WorkerLost):
        made.drafts(drafter(), "seed")
    shared.close()


@pytest.mark.parametrize(
    ("form", "item", "field"),
    [
        (Form.OPENAI, {**SAY, "colour": 1}, "message 2: field colour"),
        (Form.ANTHROPIC, {**SAY, "colour": 1}, "message 2: field colour"),
        (Form.EVENTS, {"type": "message", **SAY, "colour": 1}, "event 2: field colour"),
        (
            Form.EVENTS,
            {"type": "message", "role": "user", "content": [{"type": "text", "text": "", "x": 1}]},
            r"event 2: field content\[0\].x",
        ),
    ],
)
def test_an_unknown_field_is_refused_by_name(form: Form, item: Any, field: str) -> None:
    good = {"type": "message", **SAY} if form is Form.EVENTS else SAY
    with pytest.raises(InvalidEvent, match=f"^{field}: unknown"):
        body([good, item], form).drafts(drafter(), None)


@pytest.mark.parametrize("form", [Form.OPENAI, Form.ANTHROPIC])
def test_a_whole_request_in_place_of_its_messages_is_told_what_to_send(form: Form) -> None:
    with pytest.raises(InvalidEvent, match="send the list of messages itself"):
        body({"system": "be brief", "messages": [SAY]}, form).drafts(drafter(), None)


def test_a_tool_message_without_its_calls_id_lacks_it() -> None:
    with pytest.raises(InvalidEvent, match=r"^message 1: field tool_call_id: missing$"):
        body({"role": "tool", "content": "x"}).drafts(drafter(), None)


def test_a_condition_on_another_partitions_position_is_refused_before_anything_is_appended() -> (
    None
):
    own = partition_of(make_key("acme", "c"), 4)
    assert body(SAY).drafts(drafter(), None, Conditions(f"{own}-0")).records
    with pytest.raises(InvalidPosition, match="header If-Match: position 9-0 is not one of"):
        body(SAY).drafts(drafter(), None, Conditions("9-0"))
    by_id = body(SAY).drafts(drafter(), None, Conditions("the-last-events-id"))
    assert by_id.records  # whether it is the last one is the fold's to say


@pytest.mark.parametrize("form", [Form.OPENAI, Form.ANTHROPIC])
def test_unknown_fields_of_messages_are_left_out_where_that_is_asked_for(form: Form) -> None:
    message = {"role": "user", "content": [{"type": "text", "text": "hi", "x": 1}], "colour": 1}
    (record,) = body(message, form, lenient=True).drafts(drafter(), None).records
    assert b"colour" not in record.value and b'"x"' not in record.value


def test_keys_that_stand_twice_are_refused() -> None:
    with pytest.raises(MalformedInput, match="the key 'role' twice"):
        AppendBody(b'{"role":"user","role":"system","content":"x"}', Form.OPENAI, "c").drafts(
            drafter(), None
        )


def test_a_list_has_1_to_500_items() -> None:
    for items, words in (([], "is empty"), ([SAY] * 501, "501 messages: at most 500")):
        with pytest.raises(InvalidRequest, match=words):
            body(items).drafts(drafter(), None)


@pytest.mark.parametrize("letter", ["=", "\u0e01"])
def test_text_that_takes_long_to_count_is_bounded_in_a_request(letter: str) -> None:
    text = letter * 100_000
    began = time.thread_time()
    with pytest.raises(RequestTooLarge, match=f"more than {MOST_SLOW} characters"):
        body([{"role": "user", "content": text}] * 500).drafts(drafter(), None)
    assert time.thread_time() - began < 10  # 52 s when all of them were counted
