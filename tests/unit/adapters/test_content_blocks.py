"""No block of a content is dropped: it is in the event as an image, a file, or text that every
model is sent, and messages come back equal.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.support.adapted import in_the_window
from threadfold_client.adapters.agents_items import to_events, to_items
from threadfold_client.adapters.content import converted, restored

PNG, PDF = "iVBORw0KGgo=", "JVBERi0="
JSON = {"type": "json", "json": {"price": 42, "ñ": [None, True, 0.5]}}
FOUND = {
    "type": "search_result",
    "source": "https://x",
    "content": [{"type": "text", "text": "42"}],
}
BLOCKS = {"type": "content", "content": [{"type": "text", "text": "clause 1"}]}
AS_TEXT: list[tuple[dict[str, Any], str | None]] = [
    (JSON, None),
    (FOUND, None),
    ({}, None),
    ({"type": ["odd"], "text": 5}, None),
    ({"type": "text", "text": 5}, None),
    ({"type": "text", "json": 5}, None),
    ({"type": "document", "source": BLOCKS}, None),
    ({"type": "text-plain", "text": "plain", "mime_type": "text/plain"}, "plain"),
    (
        {"type": "document", "source": {"type": "text", "data": "contract"}, "title": "t"},
        "contract",
    ),
    ({"type": "file", "source_type": "text", "text": "words"}, "words"),
    ({"type": "audio", "base64": "AA", "mime_type": "audio/wav"}, "[audio]"),
    ({"type": "input_audio", "input_audio": {"data": "AA", "format": "wav"}}, "[audio]"),
    ({"type": "media", "mime_type": "audio/ogg", "data": "AA"}, "[audio]"),
    ({"type": "video", "url": "https://a/b.mp4"}, "[a video]"),
    ({"type": "image", "file_id": "f1"}, "[an image]"),
    ({"type": "image", "base64": PNG}, "[an image]"),
    ({"type": "input_image", "file_id": "f1", "detail": "low"}, "[an image]"),
    ({"type": "file", "id": "f1"}, "[a file]"),
]
DATA = f"data:image/png;base64,{PNG}"
IMAGES: list[tuple[dict[str, Any], str]] = [
    ({"type": "image", "base64": PNG, "mime_type": "image/png", "id": "b1"}, DATA),
    ({"type": "image", "url": "https://a/b.png"}, "https://a/b.png"),
    ({"type": "image", "source_type": "base64", "data": PNG, "mime_type": "image/png"}, DATA),
    ({"type": "image", "source_type": "url", "url": "https://a/b.png"}, "https://a/b.png"),
    ({"type": "image", "source": {"type": "url", "url": "https://a/b.png"}}, "https://a/b.png"),
    (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        DATA,
    ),
    ({"type": "computer_screenshot", "image_url": "https://a/b.png"}, "https://a/b.png"),
]
FILES: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (
        {"type": "file", "base64": PDF, "mime_type": "application/pdf", "filename": "a.pdf"},
        {"file_data": f"data:application/pdf;base64,{PDF}", "filename": "a.pdf"},
    ),
    ({"type": "file", "url": "https://a/b.pdf"}, {"file_url": "https://a/b.pdf"}),
    ({"type": "file", "file_id": "f1"}, {"file_id": "f1"}),
    (
        {"type": "document", "source": {"type": "file", "file_id": "f1"}, "title": "t"},
        {"file_id": "f1", "filename": "t"},
    ),
]


def in_json(block: dict[str, Any], text: str | None) -> bool:
    return text is not None and json.loads(text) == block


@pytest.mark.parametrize(("block", "word"), AS_TEXT)
def test_a_block_of_another_kind_is_text_and_comes_back(
    block: dict[str, Any], word: str | None
) -> None:
    made = converted(["before", block, "after"], complete=True)
    assert [part["type"] for part in made.content if isinstance(part, dict)] == ["text"] * 3
    text = made.content[1]["text"]  # type: ignore[index]
    assert text == word if word is not None else in_json(block, text)
    assert restored(made.content, made.holes) == ["before", block, "after"]


@pytest.mark.parametrize(("block", "url"), IMAGES)
def test_an_image_in_another_form_is_an_image_and_its_data_is_there_once(
    block: dict[str, Any], url: str
) -> None:
    made = converted([block], complete=True)
    assert made.content == [{"type": "image_url", "image_url": {"url": url}}]
    assert restored(made.content, made.holes) == [block]
    assert url.partition(",")[2] not in json.dumps(made.holes) or "," not in url


@pytest.mark.parametrize(("block", "file"), FILES)
def test_a_file_in_another_form_is_a_file(block: dict[str, Any], file: dict[str, Any]) -> None:
    made = converted([block], complete=True)
    assert made.content == [{"type": "file", "file": file}]
    assert restored(made.content, made.holes) == [block]


@pytest.mark.parametrize("block", [JSON, IMAGES[0][0], FILES[0][0]])
@pytest.mark.parametrize("shortened", [[], [{"type": "text", "text": "[cut"}]])
def test_what_does_not_fit_what_was_kept_is_refused(
    block: dict[str, Any], shortened: list[dict[str, Any]]
) -> None:
    made = converted([block], complete=True)
    with pytest.raises((ValueError, KeyError)):
        restored(shortened, made.holes)


def test_a_models_reasoning_is_no_text_and_an_empty_text_is_none() -> None:
    thought = {"type": "thinking", "thinking": "hm", "signature": "s"}
    made = converted([thought])
    assert made.content == []
    assert restored(made.content, made.holes) == [thought]
    assert converted(["", {"type": "text", "text": ""}], complete=True).content == []


@pytest.mark.parametrize(
    ("block", "word"),
    [
        ({"type": "image_url", "image_url": {"url": DATA, "detail": "low"}}, "[an image]"),
        ({"type": "input_image", "image_url": "https://a/b.png", "detail": "auto"}, "[an image]"),
        ({"type": "input_file", "file_id": "f1"}, "[a file]"),
        ({"type": "file", "file": {"file_id": "f1"}}, "[a file]"),
    ],
)
def test_an_image_or_a_file_outside_a_users_message_is_a_word_and_comes_back(
    block: dict[str, Any], word: str
) -> None:
    made = converted([{"type": "text", "text": "before"}, block])
    assert [part["text"] for part in made.content if isinstance(part, dict)] == ["before", word]
    assert restored(made.content, made.holes) == [{"type": "text", "text": "before"}, block]


def outcome(output: list[dict[str, Any]]) -> Any:
    call = {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"}
    item = {"type": "function_call_output", "call_id": "c1", "output": output}
    return to_events([call, item])[1]["content"]


def test_an_output_of_another_kind_is_in_the_result() -> None:
    assert outcome([{"type": "input_image", "file_id": "file-1"}]) == [
        {"type": "text", "text": "[an image]"}
    ]
    assert in_json(JSON, outcome([JSON])[0]["text"])


def test_a_users_item_of_another_kind_is_sent_to_models_and_comes_back() -> None:
    items = [{"role": "user", "content": [{"type": "input_text", "text": "see"}, JSON]}]
    events = to_events(items)
    assert in_json(JSON, events[0]["content"][1]["text"])
    assert to_items(in_the_window(events)) == items


def test_langchains_results_and_users_messages_keep_every_block() -> None:
    pytest.importorskip("langchain_core", reason="langchain-core is not installed")
    from langchain_core.messages import AIMessage, HumanMessage, ToolMessage

    from threadfold_client.adapters.langchain_messages import to_event, to_messages

    blocks: list[Any] = ["see", *(b for b, _ in AS_TEXT), *(b for b, _ in IMAGES)]
    blocks = [b for b in blocks if isinstance(b, str) or isinstance(b.get("type", ""), str)]
    asked, answered = HumanMessage(blocks), AIMessage([{"type": "thinking", "thinking": "hm"}])
    events = [to_event(asked), to_event(answered)]
    assert len(events[0]["content"]) == len(blocks) + 1  # and what was kept beside them
    assert to_messages(in_the_window(events)) == [asked, answered]
    result = to_event(ToolMessage(blocks, tool_call_id="c1"))
    assert len(result["content"]) == len(blocks)
    (shown,) = to_messages([{**result, "content": [result["content"][1]]}])
    assert in_json(JSON, shown.content[0]["text"])
