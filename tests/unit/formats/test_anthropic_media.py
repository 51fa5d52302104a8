"""Images, files, thoughts and arguments on their way to Anthropic: nothing goes out that makes it
refuse the whole request.
"""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import pytest

from projections.formats.anthropic import Source, to_anthropic
from projections.formats.anthropic_input import from_anthropic
from projections.formats.anthropic_media import document_block, image_block
from tests.support.anthropic_checker import problems

PNG = "data:image/png;base64,AAAA"


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


@pytest.mark.parametrize("depth", [70, 400, 900, 2_000, 50_000])
@pytest.mark.parametrize("level", ["[]", ['{"a":', "}"]])
def test_arguments_nested_too_deep_stay_text(depth: int, level: str | list[str]) -> None:
    text = level[0] * depth + "1" + level[1] * depth
    call = {"id": "a", "type": "function", "function": {"name": "f", "arguments": text}}
    rendered = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "x"},
    ]
    _, messages = to_anthropic(rendered)
    assert messages[1]["content"][0]["input"] == {"arguments": text}
    assert problems(None, messages) == []


def test_system_text_that_says_nothing_is_none() -> None:
    assert (
        to_anthropic([{"role": "system", "content": " \n"}, {"role": "user", "content": "x"}])[0]
        == ""
    )
