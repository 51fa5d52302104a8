"""Images and files as frameworks write them (LangChain's standard blocks of both versions,
Anthropic's blocks) as parts of events, and back. The data stands in the event once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

_FILES = ("file", "document", "text-plain")
_WORDS = {"image": "[an image]", "audio": "[audio]", "video": "[a video]", "file": "[a file]"}
_KINDS = {
    "image_url": "image",
    "input_image": "image",
    "computer_screenshot": "image",
    "input_audio": "audio",
    "video_url": "video",
    "input_file": "file",
    "document": "file",
}


class Medium(NamedTuple):
    """A block's ``part``; ``at``: where in the block its data stands; ``rest``: the block without
    that.
    """

    part: dict[str, Any]
    at: list[str]
    rest: dict[str, Any]


def medium_of(block: dict[str, Any]) -> Medium | None:
    """An image or a file that events have a part for; a file of plain text is text."""
    kind = block.get("type")
    if kind != "image" and kind not in _FILES:
        return None
    nested = isinstance(block.get("source"), dict)
    source: dict[str, Any] = block["source"] if nested else block
    found = _data(source)
    if found is None:
        return None
    name, value, given_as = found
    if kind == "image":
        if given_as not in ("file_data", "file_url"):
            return None
        part: dict[str, Any] = {"type": "image_url", "image_url": {"url": value}}
    elif given_as == "text":
        part = {"type": "text", "text": value}
    else:
        title = block.get("filename") or block.get("title")
        named = {"filename": title} if isinstance(title, str) else {}
        part = {"type": "file", "file": {given_as: value, **named}}
    bare = {**source, name: None}
    if nested:
        return Medium(part, ["source", name], {**block, "source": bare})
    return Medium(part, [name], bare)


def block_of(part: dict[str, Any], at: Sequence[str], rest: dict[str, Any]) -> dict[str, Any]:
    """The block that :func:`medium_of` took apart."""
    if part["type"] == "text":
        value = part["text"]
    elif part["type"] == "image_url":
        value = part["image_url"]["url"]
    else:
        (value,) = (v for k, v in part["file"].items() if k != "filename")
    *outer, name = at
    if name in ("base64", "data") and part["type"] != "text":
        value = value.partition(",")[2]
    return {**rest, outer[0]: {**rest[outer[0]], name: value}} if outer else {**rest, name: value}


def word_for(block: dict[str, Any]) -> str | None:
    """What stands in a text for a medium that events have no part for; None for no medium, also for
    a document that is made of blocks.
    """
    kind = block.get("type")
    if isinstance(block.get("source"), dict) and "content" in block["source"]:
        return None
    named = _KINDS.get(kind, kind) if isinstance(kind, str) else None
    mime = block.get("mime_type")
    return _WORDS.get(named or "") or (
        _WORDS.get(mime.partition("/")[0]) if isinstance(mime, str) else None
    )


def _data(source: dict[str, Any]) -> tuple[str, str, str] | None:
    """The name of the field that has the data, the data as an event has it, and as what."""
    mime = source.get("mime_type") or source.get("media_type")
    is_text = "text" in (source.get("type"), source.get("source_type"))
    for name in ("base64", "data", "text", "url", "file_id"):
        value = source.get(name)
        if not isinstance(value, str) or not value:
            continue
        if name == "text" or (name == "data" and is_text):
            return name, value, "text"
        if name in ("url", "file_id"):
            return name, value, "file_url" if name == "url" else name
        if isinstance(mime, str) and mime:
            return name, f"data:{mime};base64,{value}", "file_data"
    return None
