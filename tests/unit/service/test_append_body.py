"""A body of an append: where it is read, and what of it is refused."""

from __future__ import annotations

import asyncio
import contextlib
import json
import pickle
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from projections.errors import (
    EventTooLarge,
    InvalidEvent,
    InvalidPosition,
    InvalidRequest,
    MalformedInput,
    RequestTooLarge,
)
from projections.events.token_cost import MOST_SLOW
from projections.names import make_key, partition_of
from projections.policy.policy import Rules
from streams.runtime.freed_memory import return_memory
from streams.runtime.process_pool import ProcessPool, WorkerLost
from streams.runtime.shared_bytes import SharedBytes
from threadfold.service.append_body import (
    LOOP_BYTES,
    LOOP_VALUES,
    PART_BYTES,
    THREAD_BYTES,
    THREAD_VALUES,
    AppendBody,
    Form,
    Place,
    prepare,
)
from threadfold.service.drafts import Conditions, Drafter
from threadfold.service.spill import Drafts

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


def test_the_events_of_a_shared_body_come_back_in_its_place() -> None:
    items = [{"role": "user", "content": "hello " * 10_000}, SAY]
    shared = SharedBytes()
    shared.write(json.dumps(items).encode())
    rest = AppendBody(shared, Form.OPENAI, "c").drafts_apart(drafter(), "seed")
    assert isinstance(rest, bytes) and len(rest) < 5_000
    came, here = shared.received(rest), body(items).drafts(drafter(), "seed")
    assert [record.id for record in came.records] == [record.id for record in here.records]
    assert came.tokens == here.tokens
    assert [len(record.value) for record in came.records] == [
        len(record.value) for record in here.records
    ]
    shared.close()
    # A small one needs no file.
    assert isinstance(body(items).drafts_apart(drafter(), "seed"), Drafts)


def held() -> int:
    """Bytes of memory of this process, of those it started, and of the files they share."""
    me = psutil.Process()
    processes = sum(one.memory_info().rss for one in (me, *me.children(recursive=True)))
    shared = []
    for fd in list(Path("/proc/self/fd").iterdir()):
        with contextlib.suppress(FileNotFoundError):  # the folder's own is closed again
            if str(fd.readlink()).startswith("/memfd:shared"):
                shared.append(fd.stat().st_size)
    return processes + sum(shared)


@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts memory as Linux shows it")
@pytest.mark.parametrize("end", ["", "\u20ac", "\U0001f600"])
async def test_reading_a_large_body_takes_less_than_three_times_its_bytes(end: str) -> None:
    # One wide character makes Python hold a text with two or four bytes for each.
    return_memory()
    said = {"role": "user", "content": "hello wide world " * 60_000 + end}
    item = json.dumps(said, ensure_ascii=False).encode()
    shared, count = SharedBytes(), 30
    pool = ProcessPool(1, prepare=prepare)
    try:
        await pool.run(body([SAY]).drafts_apart, drafter(), None)  # the process has begun
        before = most = held()
        for i in range(count):
            shared.write((b"," if i else b"[") + item)
        shared.write(b"]")
        made = AppendBody(shared, Form.OPENAI, "c")
        reading = asyncio.ensure_future(pool.run(made.drafts_apart, drafter(), None))
        while not reading.done():
            most = max(most, held())
            await asyncio.sleep(0.005)
        rest = reading.result()
        assert isinstance(rest, bytes)
        came = shared.received(rest)
        most = max(most, held())
    finally:
        shared.close()
        await pool.close()
    assert len(came.records) == count
    assert most - before < 3 * len(shared), (most - before) / len(shared)


def in_parts(monkeypatch: pytest.MonkeyPatch, made: AppendBody, *given: Any) -> Drafts:
    """The drafts of a body that is read in parts of two or three items."""
    with monkeypatch.context() as patched:
        patched.setattr("threadfold.service.append_body.PART_BYTES", 100)
        return made.drafts(drafter(), *given)


@pytest.mark.parametrize("size", [1, PART_BYTES // 2], ids=["small", "large"])
@pytest.mark.parametrize(
    ("item", "why"),
    [
        (b'{"role":"user","role":"user"}', "message 3 has the key 'role' twice"),
        (b'{"a":' + b"[" * 600 + b"]" * 600 + b"}", "message 3 is nested more than"),
        (b'{"role":"\xff"}', "message 3 is not JSON: it is not UTF-8"),
        (b'{"role":"\\ud800"}', "the body is not JSON: an escape .* is half of a surrogate pair"),
    ],
)
def test_an_item_that_is_not_json_is_named(item: bytes, why: str, size: int) -> None:
    said = b'{"role":"user","content":"%s"}' % (b"x " * size)
    body = AppendBody(b"[%s,%s,%s]" % (said, said, item), Form.OPENAI, "c")
    with pytest.raises(MalformedInput, match=why):
        body.drafts(drafter(), None)


USE = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
FOUND = {"type": "tool_result", "tool_use_id": "a", "content": "here"}


@pytest.mark.parametrize(
    ("form", "items"),
    [
        (Form.OPENAI, [{"role": "user", "content": f"said {i}"} for i in range(20)]),
        (Form.EVENTS, [{"type": "message", **SAY, "id": f"e{i}"} for i in range(20)]),
        (
            Form.EVENTS_OF_SEVERAL,
            [{"type": "message", **SAY, "conversation": f"c{i % 3}"} for i in range(20)],
        ),
        (
            Form.ANTHROPIC,
            [
                {"role": "assistant", "content": [USE]},
                {"role": "user", "content": [FOUND, {"type": "text", "text": "and?"}]},
            ]
            * 8,
        ),
        (
            Form.EVENTS,
            [{"type": "tool.result", "tool_call_id": "a", "content": "long " * 40_000}] * 3,
        ),
    ],
    ids=["openai", "events", "several", "anthropic", "spilled"],
)
def test_a_long_list_that_is_read_in_parts_gives_the_same_drafts(
    form: Form, items: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(drafts: Drafts) -> Any:
        values = [json.loads(record.value) | {"time": ""} for record in drafts.records]
        pieces = [(one.at, [chunk.id for chunk in one.chunks]) for one in drafts.spilled]
        return [r.id for r in drafts.records], values, pieces, drafts.tokens

    made = body(items, form)
    whole = made.drafts(drafter(), "seed")
    assert seen(in_parts(monkeypatch, made, "seed")) == seen(whole)
    # Each event expects the one before it; "" is a conversation without any.
    for expect in ("", "the-last") if form is not Form.EVENTS_OF_SEVERAL else ():
        given = "seed", Conditions(expect, fence=7)
        whole = made.drafts(drafter(), *given)
        assert seen(in_parts(monkeypatch, made, *given)) == seen(whole)
    unnamed = in_parts(monkeypatch, made, None)
    assert len({record.id for record in unnamed.records}) == len(whole.records)
    own = {flat["id"] for flat in items if "id" in flat}
    ids = {record.id for record in unnamed.records}
    assert unnamed.made_ids & ids == ids - own


TWO = {"role": "user", "content": [FOUND, {"type": "text", "text": "and?"}], "id": "m"}


@pytest.mark.parametrize("parts", [False, True], ids=["whole", "in parts"])
@pytest.mark.parametrize(
    ("messages", "said"),
    [
        ([TWO, {**SAY, "id": "m-2"}], "message 2: field id: m-2 .* made of message 1:"),
        ([{**SAY, "id": "m-2"}, TWO], "message 1: field id: m-2 .* made of message 2:"),
        ([SAY, TWO, *[SAY] * 5, {**TWO, "id": "m-2"}], "message 8: .* made of message 2:"),
    ],
)
def test_an_id_that_an_event_of_another_message_has_is_refused(
    messages: list[Any], said: str, parts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The later of the two would be acknowledged as a repeat, and lost.
    made = body(messages, Form.ANTHROPIC)
    with pytest.raises(InvalidEvent, match=f"^{said}"):
        in_parts(monkeypatch, made, None) if parts else made.drafts(drafter(), None)


@pytest.mark.parametrize(
    ("messages", "ids"),
    [
        ([TWO, {**SAY, "id": "m-3"}], ["m", "m-2", "m-3"]),
        # A caller's own repeat: the fold takes the first.
        ([TWO, TWO], ["m", "m-2", "m", "m-2"]),
        ([{**SAY, "id": "m"}, TWO], ["m", "m", "m-2"]),
        ([{**SAY, "id": "m-2"}, {**SAY, "id": "m-2"}, {**SAY, "id": "m"}], ["m-2", "m-2", "m"]),
    ],
)
def test_ids_that_repeat_only_what_their_caller_gave_are_taken(
    messages: list[Any], ids: list[str]
) -> None:
    drafts = body(messages, Form.ANTHROPIC).drafts(drafter(), None)
    assert [record.id for record in drafts.records] == ids


@pytest.mark.parametrize(
    ("form", "item", "said"),
    [
        (Form.OPENAI, {**SAY, "colour": 1}, "message 8: field colour"),
        (Form.ANTHROPIC, {"role": "user", "content": [{"type": "odd"}]}, "message 8: "),
        (Form.EVENTS, {"type": "message", "role": "robot", "content": "x"}, "event 8: field role"),
        (Form.EVENTS, {"type": "message", **SAY, "conversation": "d"}, "event 8: field conv"),
        (Form.EVENTS_OF_SEVERAL, {"type": "message", **SAY}, "event 8: field conversation"),
    ],
)
def test_of_a_list_that_is_read_in_parts_the_wrong_item_is_named(
    form: Form, item: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fine = SAY if form in (Form.OPENAI, Form.ANTHROPIC) else {"type": "message", **SAY}
    if form is Form.EVENTS_OF_SEVERAL:
        fine = {**fine, "conversation": "c"}
    with pytest.raises(InvalidEvent, match=said):
        in_parts(monkeypatch, body([fine] * 7 + [item] + [fine] * 7, form), None)


@pytest.mark.parametrize("alone", [True, False], ids=["alone", "in a list"])
def test_an_item_that_cannot_fit_is_refused_before_it_is_decoded(alone: bool) -> None:
    long = b"x" * (10 << 20)
    item = b'{"role": "user", "content": "' + long + b'", "content": "twice"}'
    text = item if alone else b'[{"role": "user", "content": "x"}, ' + item + b"]"
    # Decoded, it would have the same key twice.
    with pytest.raises(
        EventTooLarge, match=f"message {1 if alone else 2}: 10485... bytes are over"
    ):
        AppendBody(text, Form.OPENAI, "c").drafts(drafter(), None)
    with pytest.raises(MalformedInput, match="the body is not JSON"):
        AppendBody(b"[" + item, Form.OPENAI, "c").drafts(drafter(), None)
    # Escapes and spaces between values say nothing of an event's size.
    wide = (
        b'{"role": "user",' + b" " * (8 << 20) + b'"content": "' + b"\\u0041 " * (1 << 20) + b'"}'
    )
    assert (
        len(AppendBody(wide, Form.OPENAI, "c").drafts(drafter(), None).records[0].value) < 3 << 20
    )


def test_bounds_of_a_list_hold_for_all_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    pinned = [{"role": "system", "content": "be kind and brief " * 700}] * 12
    (excess,) = in_parts(monkeypatch, body(pinned), None).pinned_excess
    assert excess.where == "message 12"
    with pytest.raises(InvalidRequest, match="501 messages: at most 500"):
        in_parts(monkeypatch, body([SAY] * 501), None)
    slow = [{"role": "user", "content": "=" * 100_000}] * 20
    with pytest.raises(RequestTooLarge, match="characters of the request take long to count"):
        in_parts(monkeypatch, body(slow), None)
    for text, words in ((b"[" + b"1," * 60 + b"]", "is not JSON"), (b" [] " * 50, "is not JSON")):
        with pytest.raises(MalformedInput, match=words):
            in_parts(monkeypatch, AppendBody(text, Form.OPENAI, "c"), None)


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


@pytest.mark.parametrize("calls", [[{}], {"": 1}, {}, "", 0])
def test_calls_where_none_can_be_are_refused_and_not_left_out(calls: Any) -> None:
    result = {"role": "tool", "tool_call_id": "a", "content": "x", "tool_calls": calls}
    with pytest.raises(InvalidEvent, match=r"^message 1: field tool_calls"):
        body(result).drafts(drafter(), None)
    if not calls:
        with pytest.raises(InvalidEvent, match=r"^message 1: field tool_calls: expected a list"):
            body({**SAY, "tool_calls": calls}).drafts(drafter(), None)


@pytest.mark.parametrize("calls", [[], None])
def test_an_empty_list_of_calls_is_no_call(calls: Any) -> None:
    result = {"role": "tool", "tool_call_id": "a", "content": "x", "tool_calls": calls}
    assert len(body([result, {**SAY, "tool_calls": calls}]).drafts(drafter(), None).records) == 2


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


def spelt(items: list[dict[str, Any]], key: str) -> bytes:
    return (
        json.dumps(items).replace(f'"{key}"', f'"{key[0]}\\u{ord(key[1]):04x}{key[2:]}"').encode()
    )


@pytest.mark.parametrize(
    ("text", "form", "seems"),
    [
        (json.dumps([{"type": "message", "content": "é {{{"}] * 60).encode(), Form.EVENTS, 60),
        (spelt([{"type": "message", "content": "x"}] * 60, "type"), Form.EVENTS, 60),
        (spelt([{"role": "user", "content": "x"}] * 60, "role"), Form.OPENAI, 60),
        (json.dumps({"role": "user", "content": '"role"' * 60}).encode(), Form.OPENAI, 1),
        (json.dumps([{"role": "user"}] * 600).encode(), Form.ANTHROPIC, 500),
        (json.dumps([{"role": "user", "content": "\\u0041 {{{"}] * 3).encode(), Form.OPENAI, 3),
        (b" [" + b"{}," * 30_000 + b"{}]", Form.OPENAI, 500),
        (b"[]", Form.EVENTS, 1),
        (b"[{", Form.EVENTS, 1),
        (b"", Form.EVENTS, 1),
        (b"[" * 50_000, Form.EVENTS, 1),
    ],
)
def test_how_many_events_a_body_seems_to_be_before_it_is_read(
    text: bytes, form: Form, seems: int
) -> None:
    assert AppendBody(text, form).items_at_first() == seems


def test_a_large_body_is_counted_once_it_is_read() -> None:
    text = SharedBytes()
    text.write(json.dumps({"role": "user", "content": "x" * 300_000}).encode())
    assert AppendBody(text, Form.OPENAI).items_at_first() == 1
    text.close()
