"""Images, files, thoughts and arguments on their way to Anthropic: nothing goes out that makes it
refuse the whole request.
"""

from __future__ import annotations

import json
import time
import tracemalloc
from base64 import b64encode
from typing import Any

import msgspec
import pytest

from projections.formats.anthropic import EMPTY, Source, anthropic_document, to_anthropic
from projections.formats.anthropic_input import from_anthropic
from projections.formats.anthropic_media import document_block, image_block
from projections.render.render import render_openai
from tests.support.anthropic_checker import problems
from tests.support.compacted_talk import SMALL, Talk
from threadfold.demo import openai_checker

PNG = "data:image/png;base64,AAAA"
WORDS = [{"type": "text", "text": "[an image]"}, {"type": "text", "text": "[a file]"}]


def user(*parts: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages that a user's message of these parts becomes."""
    return to_anthropic([{"role": "user", "content": list(parts)}])[1]


@pytest.mark.parametrize(
    "url",
    [
        "",
        "data:image/png;base64,",
        "data:image/svg+xml;base64,AAAA",
        "data:text/plain,hi",
        "ftp://a/b.png",
        f"data:image/png;{'a=;' * 400}base64,AAAA",
    ],
)
def test_an_image_that_the_provider_does_not_take_is_a_word(url: str) -> None:
    messages = user({"type": "image_url", "image_url": {"url": url}})
    assert messages[0]["content"] == [{"type": "text", "text": "[image_url part left out]"}]
    assert problems(None, messages) == []


def test_images_keep_type_and_data() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "AAAA"}
    assert (
        image_block(PNG)
        == image_block("data:Image/PNG;name=a.png;base64,AAAA")
        == {"type": "image", "source": source}
    )
    assert image_block("https://example.org/a.png") == {
        "type": "image",
        "source": {"type": "url", "url": "https://example.org/a.png"},
    }


@pytest.mark.parametrize(
    "source",
    [
        {"type": "text", "media_type": "text/plain", "data": "grüße"},
        {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
        {"type": "url", "url": "https://example.org/a.pdf"},
        {"type": "file", "file_id": "f1"},
    ],
)
def test_a_document_comes_back_as_it_was_given(source: dict[str, str]) -> None:
    given = {"role": "user", "content": [{"type": "document", "source": source, "title": "a"}]}
    (flat,) = from_anthropic(given, "message 1")
    assert user(*flat["content"]) == [given]


@pytest.mark.parametrize(
    "file",
    [
        {},
        {"file_id": ""},
        {"file_data": "data:application/pdf;base64,"},
        {"file_data": "data:text/plain;base64,!"},
        {"file_data": "data:text/plain;base64," + b64encode(b"\xff").decode()},
        {"file_data": "data:application/zip;base64,AAAA"},
        {"file_url": "file:///etc/hosts"},
    ],
)
def test_a_file_that_the_provider_does_not_take_is_a_word(file: dict[str, Any]) -> None:
    assert document_block(file) is None
    messages = user({"type": "file", "file": file})
    assert messages[0]["content"] == [{"type": "text", "text": "[file part left out]"}]
    assert problems(None, messages) == []


def test_signed_thinking_without_text_goes_back_as_thinking() -> None:
    block = {"type": "thinking", "thinking": "", "signature": "sig"}
    (flat,) = from_anthropic(
        {"role": "assistant", "content": [block, {"type": "text", "text": "x"}]}, "message 1"
    )
    source = Source(
        reasoning=tuple(part for part in flat["content"] if part["type"] == "reasoning")
    )
    rendered = [{"role": "user", "content": "q"}, {"role": "assistant", "content": "x"}]
    assert to_anthropic(rendered, [Source(), source])[1][1]["content"] == [
        block,
        {"type": "text", "text": "x"},
    ]


THOUGHTS = [
    {"type": "thinking", "thinking": "hm", "signature": "sig"},
    {"type": "redacted_thinking", "data": "xx"},
]


def talk_of(*messages: dict[str, Any], policy: dict[str, Any] | None = None) -> Talk:
    """A conversation of a user's question and these messages, in Anthropic's format."""
    talk = Talk(policy or {})
    for message in ({"role": "user", "content": "q"}, *messages):
        for flat in from_anthropic(message, "message"):
            talk.say(flat.pop("type"), **flat)
    return talk


def sent(talk: Talk, max_tokens: int | None = None) -> list[dict[str, Any]]:
    """The valid messages that Anthropic is sent of it."""
    render = render_openai(talk.window, max_tokens)
    assert openai_checker.problems(json.loads(render.messages)) == []
    document = json.loads(anthropic_document(talk.window, render))
    assert problems(document.get("system"), document["messages"]) == []
    messages: list[dict[str, Any]] = document["messages"]
    return messages


def after_a_question(*messages: dict[str, Any]) -> list[dict[str, Any]]:
    return sent(talk_of(*messages))


@pytest.mark.parametrize("thoughts", [THOUGHTS[:1], THOUGHTS[1:], THOUGHTS])
@pytest.mark.parametrize("more", [[], [{"type": "text", "text": ""}]], ids=["alone", "empty text"])
@pytest.mark.parametrize("goes_on", [True, False])
def test_thinking_without_an_answer_does_not_end_its_message(
    thoughts: list[dict[str, Any]], more: list[dict[str, Any]], goes_on: bool
) -> None:
    cut = {"role": "assistant", "content": [*thoughts, *more], "stop_reason": "max_tokens"}
    next_ = [{"role": "user", "content": "go on"}] if goes_on else []
    messages = after_a_question(cut, *next_)
    assert messages[1]["content"] == [*thoughts, {"type": "text", "text": EMPTY}]


def test_thinking_before_calls_has_no_text_in_between() -> None:
    use = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": "x"}
    messages = after_a_question(
        {"role": "assistant", "content": [*THOUGHTS, use]}, {"role": "user", "content": [result]}
    )
    assert messages[1]["content"] == [*THOUGHTS, use]


def test_a_message_of_thoughts_alone_after_an_answer_adds_nothing_to_it() -> None:
    messages = after_a_question(
        {"role": "assistant", "content": "x"}, {"role": "assistant", "content": THOUGHTS}
    )
    assert messages[1]["content"] == [{"type": "text", "text": "x"}]


@pytest.mark.parametrize("depth", [70, 400, 900, 2_000, 50_000])
@pytest.mark.parametrize("level", ["[]", ['{"a":', "}"]])
def test_arguments_nested_too_deep_stay_text(depth: int, level: str | list[str]) -> None:
    text = level[0] * depth + "1" + level[1] * depth
    assert input_of(text) == {"arguments": text}


def input_of(arguments: str) -> Any:
    """What a call's arguments become, as JSON that a request holds."""
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": arguments}}
    _, messages = to_anthropic(
        [
            {"role": "user", "content": "q"},
            {"role": "assistant", "content": None, "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "a", "content": "x"},
        ]
    )
    messages = json.loads(msgspec.json.encode(messages))
    assert problems(None, messages) == []
    return messages[1]["content"][0]["input"]


@pytest.mark.parametrize("count", [3, 20_000])
def test_arguments_of_many_values_say_what_those_of_few_say(count: int) -> None:
    numbers = list(range(count))
    for given, shown in (
        ({"a": numbers}, {"a": numbers}),
        (numbers, {"arguments": numbers}),
    ):
        assert input_of(f" {json.dumps(given)} ") == shown
    for odd in (
        f"{numbers} x",
        f'{{"a": 1e999, "b": {numbers}}}',
        f'{{"a": -1.5E+999, "b": {numbers}}}',
        f'{{"a": {"9" * 400}.0, "b": {numbers}}}',
    ):
        assert input_of(odd) == {"arguments": odd}
    apart = {"id": "4e123", "of": numbers, "at": 1e-300}
    assert input_of(json.dumps(apart)) == apart


def test_megabytes_of_values_stay_text_and_megabytes_of_text_do_not() -> None:
    code = {"path": "a.py", "content": 'f("[{,}]")\n' * 200_000}
    assert input_of(json.dumps(code)) == code
    values = json.dumps(list(range(100_000)))
    assert input_of(values) == {"arguments": values}


@pytest.mark.parametrize("value", ["[ ]", '{"a":1}', "1e1", '"[a"', '"\\"["'])
def test_arguments_of_megabytes_take_little_time_and_memory(value: str) -> None:
    arguments = '{"a": [' + ", ".join([value] * (6_000_000 // len(value))) + "]}"
    rendered = [
        {"role": "user", "content": "q"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "a", "function": {"name": "f", "arguments": arguments}}],
        },
    ]
    begun = time.thread_time()
    to_anthropic(rendered)
    assert time.thread_time() - begun < 0.1
    tracemalloc.start()
    to_anthropic(rendered)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 4 * len(arguments)


def test_a_data_url_of_many_parameters_takes_no_memory() -> None:
    url = f"data:image/png;{'a=;' * 2_000_000}base64,AAAA"
    tracemalloc.start()
    assert image_block(url) is None
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < len(url)


def test_system_text_that_says_nothing_is_none() -> None:
    assert (
        to_anthropic([{"role": "system", "content": " \n"}, {"role": "user", "content": "x"}])[0]
        == ""
    )


IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AAAA"}}
PAGE = {"type": "text", "text": "The page."}
SHOWN: list[dict[str, Any]] = [
    PAGE,
    IMAGE,
    {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}},
    {
        "type": "document",
        "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="},
        "title": "a.pdf",
    },
    {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "words"}},
    {"type": "document", "source": {"type": "url", "url": "https://example.org/a.pdf"}},
]


def asked_and_shown(content: list[dict[str, Any]], **fields: Any) -> list[dict[str, Any]]:
    """A call and its result."""
    use = {"type": "tool_use", "id": "a", "name": "look", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "a", "content": content, **fields}
    return [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def results(messages: list[dict[str, Any]]) -> list[Any]:
    """The content of each result."""
    blocks = [block for message in messages for block in message["content"]]
    return [block["content"] for block in blocks if block["type"] == "tool_result"]


@pytest.mark.parametrize("cuts", ["stable", "exact"])
def test_images_and_documents_of_a_result_are_sent_as_they_were_given(cuts: str) -> None:
    talk = talk_of(*asked_and_shown(SHOWN), policy={"cuts": cuts})
    assert results(sent(talk)) == [SHOWN]
    words = [PAGE, WORDS[0], WORDS[0], WORDS[1], WORDS[1], WORDS[1]]
    assert json.loads(talk.text())[-1]["content"] == words, "OpenAI takes none from a tool"


def test_an_error_is_sent_with_words_for_its_images_and_documents() -> None:
    """Anthropic: "all content must be type text if is_error is true"."""
    messages = after_a_question(*asked_and_shown([IMAGE, SHOWN[3]], is_error=True))
    assert messages[-1]["content"][0]["is_error"] is True
    assert results(messages) == [WORDS]


def test_images_and_files_of_a_model_or_the_system_are_words() -> None:
    talk = talk_of()
    parts = [{"type": "image_url", "image_url": {"url": PNG}}, {"type": "file", "file": {}}]
    talk.say("message", role="system", content=parts)
    talk.say("message", role="assistant", content=parts)
    assert sent(talk)[-1]["content"] == WORDS


def test_a_result_that_a_render_shortened_is_sent_as_the_note_that_stands_for_it() -> None:
    talk = talk_of(*asked_and_shown([{"type": "text", "text": "word " * 2_000}, IMAGE]))
    (whole,), (short,) = results(sent(talk)), results(sent(talk, 1_000))
    assert whole[1] == IMAGE
    assert [block["type"] for block in short] == ["text"]
    assert "the whole event is in the log" in short[0]["text"]


async def test_a_pinned_result_is_sent_with_its_image_beside_the_summary_too() -> None:
    talk = talk_of(policy={**SMALL, "working_budget": 1_500})
    talk.call("a")
    image = {"type": "image_url", "image_url": {"url": PNG, "detail": "low"}}
    talk.say("tool.result", tool_call_id="a", content=[PAGE, image], pinned=True)
    assert results(sent(talk)) == [[PAGE, IMAGE]]
    while talk.window.meta.due is None:
        talk.chat(1)
    await talk.summarise()
    assert talk.window.state.pins
    assert results(sent(talk)) == [[PAGE, IMAGE]]
