"""Items of openai-agents as events and back: nothing is lost, and the events are ones that
threadfold takes.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest

from tests.support.adapted import in_the_window
from threadfold_client import Invalid
from threadfold_client.adapters.agents_items import (
    checked_items,
    items_of,
    names_of,
    to_events,
    to_items,
)

CALL = {
    "type": "function_call",
    "call_id": "c1",
    "name": "look",
    "arguments": '{"q": "x"}',
    "id": "fc_1",
    "status": "completed",
}
BARE_CALL = {"type": "function_call", "call_id": "c2", "name": "look", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "c1", "output": "found"}
REASONING = {
    "type": "reasoning",
    "id": "rs_1",
    "summary": [{"type": "summary_text", "text": "hm"}],
    "encrypted_content": "gAAA=",
}
SPOKEN = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [
        {
            "type": "output_text",
            "text": "Here: ☃",
            "annotations": [{"type": "url_citation", "url": "https://x"}],
            "logprobs": [],
        }
    ],
}
REFUSED = {
    "id": "m",
    "type": "message",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "refusal", "refusal": "No."}],
}
SEARCH = {
    "type": "web_search_call",
    "id": "ws_1",
    "status": "completed",
    "action": {"type": "search", "query": "x"},
}
PICTURE = {"type": "input_image", "image_url": "https://x/y.png", "detail": "auto"}
CASES: list[list[dict[str, Any]]] = [
    [{"role": "user", "content": "Grüße 🌍\n\t\"quoted\" 'and' \\"}],
    [{"role": "user", "content": ""}],
    [{"type": "message", "role": "user", "content": "typed"}],
    [{"role": "assistant", "content": "plain"}],
    [
        {
            "role": "user",
            "content": [
                {"type": "input_text", "text": "see"},
                PICTURE,
                {"type": "input_text", "text": ""},
            ],
        }
    ],
    [
        {
            "role": "user",
            "content": [
                {"type": "input_file", "file_id": "file-1"},
                {"type": "input_audio", "input_audio": {"data": "AA"}},
            ],
        }
    ],
    [{"role": "user", "content": [{"type": "input_image", "file_id": "file-2", "detail": "low"}]}],
    [
        {
            "role": "user",
            "content": [
                {
                    "type": "input_file",
                    "file_data": "data:text/plain;base64,aGk=",
                    "filename": "a.txt",
                }
            ],
        }
    ],
    [
        {"role": role, "content": [{"type": "input_text", "text": "see"}, PICTURE]}
        for role in ("system", "developer", "assistant")
    ],
    [SPOKEN],
    [REFUSED],
    [REASONING, SPOKEN],
    [REASONING, CALL, BARE_CALL, OUTPUT, {**OUTPUT, "call_id": "c2"}],
    [CALL, SPOKEN, OUTPUT],
    [SEARCH, SPOKEN],
    [SEARCH],
    [{"role": "assistant", "content": "one"}, {"role": "assistant", "content": "two"}],
    [
        BARE_CALL,
        {**OUTPUT, "call_id": "c2", "output": [{"type": "input_text", "text": "seen"}, PICTURE]},
    ],
    [{"type": "item_reference", "id": "msg_9"}],
    [{"role": "user", "content": [{"type": "input_file", "file_id": "f", "filename": None}]}],
]


@pytest.mark.parametrize("items", CASES, ids=range(len(CASES)))
def test_what_goes_in_comes_back_the_same(items: list[dict[str, Any]]) -> None:
    assert to_items(in_the_window(to_events(items))) == items


def test_the_items_of_one_answer_are_one_message_with_its_calls() -> None:
    events = to_events([{"role": "user", "content": "go"}, REASONING, CALL, BARE_CALL, OUTPUT])
    assert [event["type"] for event in events] == ["message", "message", "tool.result"]
    assert [call["id"] for call in events[1]["tool_calls"]] == ["c1", "c2"]


def test_plain_items_are_plain_events() -> None:
    assert to_events([{"role": "user", "content": "hi"}]) == [
        {"type": "message", "role": "user", "content": "hi"}
    ]


def test_a_message_whose_text_was_shortened_since_comes_back_plain() -> None:
    (event,) = in_the_window(to_events([SPOKEN]))
    assert items_of({**event, "content": []}) == [{"role": "assistant", "content": ""}]
    (called,) = in_the_window(to_events([CALL]))
    assert items_of({**called, "tool_calls": []}) == [{"role": "assistant", "content": ""}]


def test_each_event_is_named_by_the_numbers_of_its_items() -> None:
    items = [{"role": "user", "content": "go"}, REASONING, CALL, OUTPUT]
    assert names_of(items) == ["item 1", "items 2 to 3", "item 4"]


SAID = {"role": "user", "content": "hi"}


@pytest.mark.parametrize(
    ("items", "told"),
    [
        ("abc", "items: expected a list of items, got str"),
        (SAID, "items: expected a list of items, got dict"),
        (5, "items: expected a list of items, got int"),
        ([SAID, None], "item 2: expected an item (a dictionary), got NoneType"),
        ([SAID, "hi"], "item 2: expected an item (a dictionary), got str"),
        ([[]], "item 1: expected an item (a dictionary), got list"),
        (
            [{**SAID, "content": 5}],
            "item 1: field content: expected text or a list of parts, got int",
        ),
        (
            [SAID, {**SAID, "content": [None]}],
            "item 2: field content[0]: expected a part (a dictionary), got NoneType",
        ),
        (
            [{**OUTPUT, "output": [5]}],
            "item 1: field output[0]: expected a part (a dictionary), got int",
        ),
        (
            [SAID, {**SAID, "content": b"x"}],
            "item 2: field content: expected a JSON value, got bytes",
        ),
        (
            [REASONING | {"score": float("nan")}],
            "item 1: field score: expected a JSON value, got nan",
        ),
        ([{**SAID, "x": object()}], "item 1: field x: expected a JSON value, got object"),
    ],
)
def test_what_is_no_item_is_refused_by_its_number(items: Any, told: str) -> None:
    with pytest.raises(Invalid) as refused:
        checked_items(items)
    assert str(refused.value) == told


def test_items_in_any_form_of_a_dictionary_are_taken() -> None:
    items = [SAID, MappingProxyType(OUTPUT), {"role": "assistant", "content": ["a", SAID]}]
    assert checked_items(items) == [SAID, OUTPUT, items[2]]
