"""Items of openai-agents (the Responses format) as events, and back. Pure.

The model's output between two inputs (reasoning, a message, calls, hosted tools' items) is one
assistant message with its calls, as in every other provider's format. Its division into items is
kept beside it (``threadfold_client.adapters.kept``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from threadfold_client import Invalid
from threadfold_client.adapters.content import converted, plain_text, restored
from threadfold_client.adapters.kept import is_stored, keep, kept
from threadfold_client.values import check_values

PROVIDER = "openai-agents"
_CALL = ("type", "call_id", "name", "arguments")


def checked_items(items: Any) -> list[dict[str, Any]]:
    """What a caller adds, as a list of items of JSON values.

    Raises:
        Invalid: it is no list of items; the error names the item by its number and what is wrong.
    """
    if isinstance(items, str | bytes | Mapping) or not isinstance(items, Iterable):
        raise Invalid(f"items: expected a list of items, got {type(items).__name__}")
    return [_checked(item, number) for number, item in enumerate(items, 1)]


def _checked(given: Any, number: int) -> dict[str, Any]:
    try:
        item = {} if isinstance(given, str | list | tuple) else dict(given)
    except (TypeError, ValueError):
        item = {}
    if not item:
        got = "an empty one" if isinstance(given, Mapping) else type(given).__name__
        raise Invalid(f"item {number}: expected an item (a dictionary), got {got}")
    check_values(item, "item", number)
    content = item.get("content")
    if _is_message(item) and not isinstance(content, str | list | tuple | None):
        raise Invalid(
            f"item {number}: field content: expected text or a list of parts, got"
            f" {type(content).__name__}"
        )
    name = "content" if _is_message(item) else "output"
    parts = item.get(name)
    for i, part in enumerate(parts if isinstance(parts, list | tuple) else ()):
        if not isinstance(part, str | Mapping):
            raise Invalid(
                f"item {number}: field {name}[{i}]: expected a part (a dictionary), got"
                f" {type(part).__name__}"
            )
    return item


def to_events(items: Sequence[Any]) -> list[dict[str, Any]]:
    """The items as flat events, in order; :func:`to_items` gives the same items back.

    Of a function's output only ``call_id`` and ``output`` are kept.
    """
    events: list[dict[str, Any]] = []
    for group in _groups([dict(item) for item in items]):
        first = group[0]
        if first.get("type") == "function_call_output":
            output = first.get("output")
            content = (
                converted(output, complete=True).content
                if isinstance(output, list)
                else ""
                if output is None
                else str(output)
            )
            events.append(
                {"type": "tool.result", "tool_call_id": first.get("call_id"), "content": content}
            )
        elif _is_message(first) and first["role"] != "assistant":
            events.append(_input(first))
        else:
            events.append(_assistant(group))
    return events


def names_of(items: Sequence[Any]) -> list[str]:
    """How an error names each event of :func:`to_events`, by its items' numbers from 1."""
    names = []
    first = 1
    for group in _groups([dict(item) for item in items]):
        last = first + len(group) - 1
        names.append(f"item {first}" if first == last else f"items {first} to {last}")
        first = last + 1
    return names


def to_items(flats: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The items of flat messages and results as the window gives them."""
    return [item for flat in flats for item in items_of(flat)]


def items_of(flat: dict[str, Any]) -> list[dict[str, Any]]:
    """The items of one; in the plain form if its text was shortened, so that what was kept does
    not fit any more.
    """
    what = kept(flat, PROVIDER)
    if isinstance(what, list):
        try:
            return list(_rebuilt(flat, what))
        except (ValueError, KeyError, TypeError, StopIteration, RuntimeError):
            return _plain(flat)
    return _plain(flat)


def _is_message(item: dict[str, Any]) -> bool:
    return item.get("type") in (None, "message") and "role" in item


def _groups(items: list[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """The items of each event: an input or a function's output alone, or a run of the model's
    items with one message at most.
    """
    run: list[dict[str, Any]] = []
    for item in items:
        own = item.get("type") == "function_call_output" or (
            _is_message(item) and item["role"] != "assistant"
        )
        if run and (own or (_is_message(item) and any(map(_is_message, run)))):
            yield run
            run = []
        if own:
            yield [item]
        else:
            run.append(item)
    if run:
        yield run


def _input(item: dict[str, Any]) -> dict[str, Any]:
    made = converted(item.get("content"), complete=item["role"] == "user")
    flat = {"type": "message", "role": item["role"], "content": made.content}
    if _plain(flat) == [item]:
        return flat
    return keep(flat, PROVIDER, [{"message": {**item, "content": None}, "holes": made.holes}])


def _assistant(group: list[dict[str, Any]]) -> dict[str, Any]:
    content: Any = ""
    calls: list[dict[str, Any]] = []
    notes: list[dict[str, Any]] = []
    for item in group:
        if _is_message(item):
            made = converted(item.get("content"))
            content = made.content
            notes.append({"message": {**item, "content": None}, "holes": made.holes})
        elif item.get("type") == "function_call" and item.get("call_id") and item.get("name"):
            calls.append(
                {
                    "id": item["call_id"],
                    "name": item["name"],
                    "arguments": item.get("arguments") or "{}",
                }
            )
            notes.append(
                {"call": {name: value for name, value in item.items() if name not in _CALL}}
            )
        else:
            notes.append({"whole": item})
    flat: dict[str, Any] = {"type": "message", "role": "assistant", "content": content}
    if calls:
        flat["tool_calls"] = calls
        if not content:
            flat["content"] = None
    return flat if _plain(flat) == group else keep(flat, PROVIDER, notes)


def _rebuilt(flat: dict[str, Any], notes: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    calls = iter(flat.get("tool_calls") or [])
    for note in notes:
        if "whole" in note:
            yield note["whole"]
        elif "call" in note:
            call = next(calls)
            yield {
                "type": "function_call",
                "call_id": call["id"],
                "name": call["name"],
                "arguments": call["arguments"],
                **note["call"],
            }
        else:
            yield {**note["message"], "content": restored(flat.get("content"), note["holes"])}
    if next(calls, None) is not None:
        raise ValueError("the message has more calls than were kept")


def _plain(flat: dict[str, Any]) -> list[dict[str, Any]]:
    content = flat.get("content")
    if flat["type"] == "tool.result":
        output = content if isinstance(content, str) or not content else _input_parts(content)
        item = {
            "type": "function_call_output",
            "call_id": flat["tool_call_id"],
            "output": output or "",
        }
        return [item if is_stored(flat) else {**item, "status": "incomplete"}]
    found: list[dict[str, Any]] = []
    if flat["role"] != "assistant":
        found.append(
            {
                "role": flat["role"],
                "content": _input_parts(content) if isinstance(content, list) else content,
            }
        )
    elif content or not flat.get("tool_calls"):
        found.append({"role": "assistant", "content": plain_text(content)})
    calls = flat.get("tool_calls") or ()
    return found + [
        {
            "type": "function_call",
            "call_id": c["id"],
            "name": c["name"],
            "arguments": c["arguments"],
        }
        for c in calls
    ]


def _input_parts(parts: list[dict[str, Any]]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for part in parts:
        if part["type"] == "text":
            found.append({"type": "input_text", "text": part["text"]})
        elif part["type"] == "image_url":
            image = part["image_url"]
            found.append(
                {
                    "type": "input_image",
                    "image_url": image["url"],
                    "detail": image.get("detail") or "auto",
                }
            )
        elif part["type"] == "file":
            found.append({"type": "input_file", **part["file"]})
    return found
