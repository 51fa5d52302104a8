"""Contents of frameworks' messages as contents of events, and back: texts, images and files as
parts, anything else kept whole.
"""

from __future__ import annotations

from typing import Any, NamedTuple

_TEXTS = ("input_text", "output_text", "text")


class Converted(NamedTuple):
    """``content`` for the event; ``holes``: the original's parts without what is in the content,
    None for a text alone.
    """

    content: str | list[dict[str, Any]]
    holes: list[dict[str, Any]] | None


def converted(content: Any) -> Converted:
    """Divide a content. A part of a kind that events do not have is in the holes only, whole."""
    if isinstance(content, str):
        return Converted(content, None)
    parts: list[dict[str, Any]] = []
    holes: list[dict[str, Any]] = []
    for given in content or ():
        part = {"type": "text", "text": given} if isinstance(given, str) else dict(given)
        made = _part(part)
        if made is None:
            holes.append({"whole": given})
        else:
            parts.append(made[0])
            holes.append({"text": True} if isinstance(given, str) else {made[0]["type"]: made[1]})
    return Converted(parts, holes)


def restored(content: Any, holes: list[dict[str, Any]] | None) -> Any:
    """The original content, from the event's (parts, or a text) and the holes; raises ValueError
    if they do not fit.
    """
    if holes is None:
        return plain_text(content)
    texts = (
        [{"type": "text", "text": content}]
        if isinstance(content, str) and content
        else content or []
    )
    parts = iter(texts)
    found: list[Any] = []
    for hole in holes:
        if "whole" in hole:
            found.append(hole["whole"])
            continue
        part = next(parts, None)
        if part is None or part["type"] not in hole:
            raise ValueError("the content does not fit what was kept of it")
        rest = hole[part["type"]]
        found.append(part["text"] if rest is True else _filled(part, rest))
    return found


def plain_text(content: Any) -> str:
    """The texts of a content, joined."""
    if isinstance(content, str):
        return content
    return "\n".join(part["text"] for part in content or () if part.get("type") == "text")


def is_text(content: str | list[dict[str, Any]]) -> bool:
    """Whether an event's content holds no image and no file."""
    return isinstance(content, str) or all(part["type"] == "text" for part in content)


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
    if kind in ("input_image", "image_url"):
        url = part.get("image_url")
        inner = url if isinstance(url, dict) else {"url": url}
        if isinstance(inner.get("url"), str):
            detail = inner.get("detail") or part.get("detail")
            image = {"url": inner["url"], **({"detail": detail} if isinstance(detail, str) else {})}
            rest = {**part, "image_url": {**inner, "url": None} if isinstance(url, dict) else None}
            return {"type": "image_url", "image_url": image}, rest
    if kind == "input_file":
        file = {k: v for k, v in part.items() if k != "type" and v is not None}
        return (
            ({"type": "file", "file": file}, {"type": "input_file"})
            if file and len(file) == len(part) - 1
            else None
        )
    if kind == "file" and isinstance(part.get("file"), dict):
        return {"type": "file", "file": part["file"]}, {
            k: v for k, v in part.items() if k != "file"
        }
    return None


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
