"""Contents of frameworks' messages as contents of events, and back: texts, images and files as
parts, anything else kept whole.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any, NamedTuple

from threadfold_client.adapters.media import block_of, medium_of, word_for

_TEXTS = ("input_text", "output_text", "text")


class Converted(NamedTuple):
    """``content`` for the event; ``holes``: the original's parts without what is in the content,
    None for a text alone.

    A hole is one of ``{"whole": part}``, of which the content has nothing; ``{"word": part}``, for
    which a text stands in it; ``{"json": True}``, whose JSON it has; ``{"medium", "at", "rest"}``
    of an image or file (``threadfold_client.adapters.media.Medium``); or the rest by the kind of
    its part.
    """

    content: str | list[dict[str, Any]]
    holes: list[dict[str, Any]] | None


def converted(content: Any, *, complete: bool = False) -> Converted:
    """Divide a content.

    Args:
        complete: images and files are in the content, and a part of a kind that events do not have
            is there as text, so that every model is sent it. Otherwise there is a word for an image
            or a file, as no provider takes it outside of users' messages, and parts of other kinds
            are in the holes only: a model's own output has parts, like reasoning, that are no text.
    """
    if isinstance(content, str):
        return Converted(content, None)
    parts: list[dict[str, Any]] = []
    holes: list[dict[str, Any]] = []
    for given in content or ():
        part = {"type": "text", "text": given} if isinstance(given, str) else dict(given)
        made = _part(part)
        if made is not None and not complete and made[0]["type"] != "text":
            parts.append({"type": "text", "text": word_for(part)})
            holes.append({"word": part})
        elif made is not None:
            parts.append(made[0])
            holes.append({"text": True} if isinstance(given, str) else {made[0]["type"]: made[1]})
        elif complete and not _is_empty(part):
            shown, hole = _shown(part)
            parts.append(shown)
            holes.append(hole)
        else:
            holes.append({"whole": given})
    return Converted(parts, holes)


def restored(content: Any, holes: list[dict[str, Any]] | None) -> Any:
    """The original content, from the event's (parts, or a text) and the holes; raises ValueError
    or KeyError if they do not fit.
    """
    if holes is None:
        return plain_text(content)
    texts = (
        [{"type": "text", "text": content}]
        if isinstance(content, str) and content
        else content or []
    )
    parts = iter(texts)
    return [_restored(hole, parts) for hole in holes]


def plain_text(content: Any) -> str:
    """The texts of a content, joined."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if part.get("type") == "text")


def _part(part: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]] | None:
    """An event's part, and what is left of the original."""
    kind = part.get("type")
    if kind in _TEXTS and isinstance(part.get("text"), str) and part["text"]:
        return {"type": "text", "text": part["text"]}, {
            k: v for k, v in part.items() if k != "text"
        }
    if kind == "refusal" and isinstance(part.get("refusal"), str) and part["refusal"]:
        return {"type": "text", "text": part["refusal"]}, {
            k: v for k, v in part.items() if k != "refusal"
        }
    if kind in ("input_image", "image_url", "computer_screenshot"):
        url = part.get("image_url")
        inner = url if isinstance(url, dict) else {"url": url}
        if isinstance(inner.get("url"), str):
            detail = inner.get("detail") or part.get("detail")
            image = {"url": inner["url"], **({"detail": detail} if isinstance(detail, str) else {})}
            rest = {**part, "image_url": {**inner, "url": None} if isinstance(url, dict) else None}
            return {"type": "image_url", "image_url": image}, rest
    if kind == "input_file":
        file = {k: v for k, v in part.items() if k != "type" and v is not None}
        rest = {k: v for k, v in part.items() if k == "type" or v is None}
        return ({"type": "file", "file": file}, rest) if file else None
    if kind == "file" and isinstance(part.get("file"), dict):
        return {"type": "file", "file": part["file"]}, {
            k: v for k, v in part.items() if k != "file"
        }
    return None


def _is_empty(part: dict[str, Any]) -> bool:
    kind = part.get("type")
    return part.get("refusal" if kind == "refusal" else "text") == "" and (
        kind in _TEXTS or kind == "refusal"
    )


def _shown(part: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """A part of another kind as one of the event's, and its hole."""
    medium = medium_of(part)
    if medium is not None:
        kind = medium.part["type"]
        return medium.part, {"medium": kind, "at": medium.at, "rest": medium.rest}
    word = word_for(part)
    if word is not None:
        return {"type": "text", "text": word}, {"word": part}
    text = json.dumps(part, ensure_ascii=False, default=str)
    return {"type": "text", "text": text}, {"json": True}


def _restored(hole: dict[str, Any], parts: Iterator[dict[str, Any]]) -> Any:
    if "whole" in hole:
        return hole["whole"]
    part = next(parts, None)
    if part is None:
        raise ValueError("the content has fewer parts than were kept")
    if "word" in hole:
        return hole["word"]
    if "json" in hole:
        return json.loads(part["text"])
    if hole.get("medium") == part["type"]:
        return block_of(part, hole["at"], hole["rest"])
    rest = hole[part["type"]]
    return part["text"] if rest is True else _filled(part, rest)


def _filled(part: dict[str, Any], rest: dict[str, Any]) -> dict[str, Any]:
    if part["type"] == "text":
        return {**rest, "refusal" if rest.get("type") == "refusal" else "text": part["text"]}
    if part["type"] == "image_url":
        url = part["image_url"]["url"]
        inner = rest.get("image_url")
        return {**rest, "image_url": {**inner, "url": url} if isinstance(inner, dict) else url}
    return (
        {**part["file"], **rest}
        if rest.get("type") == "input_file"
        else {**rest, "file": part["file"]}
    )
