"""A render for people: each of its messages with its place, its tokens, and how it was shortened.

It is made from the parts of the render itself, so the messages are those that a model is sent, and
the tokens add up to the render's.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal

import msgspec

from projections.policy.thresholds import STUB_TOKENS, SUMMARY_MARK
from projections.render.parts import Parts, Render
from projections.render.render import shortened_parts
from projections.window.bodies import body_tokens
from projections.window.entry import RENDERED, Entry, omits, reducer_of
from projections.window.groups import ANSWER_TOKENS, Group
from projections.window.window import Window

Lane = Literal["system", "summary", "pinned", "omitted", "tail", "closing"]
"""Where a message of a render comes from."""


@dataclass(slots=True)
class Inspected:
    """A window's render, and beside each of its messages what :func:`inspect` says of it."""

    render: Render
    items: list[dict[str, Any]] = field(default_factory=list)
    left_out: list[dict[str, Any]] = field(default_factory=list)


def inspect(window: Window) -> Inspected:
    """A window's render, message by message.

    Each of ``items`` stands for one message: ``lane``, ``tokens``, ``position`` (null: of no single
    event), ``message`` in OpenAI's format, ``waiting`` (a call of it has no result yet), and
    ``full_tokens`` and ``shortened``, a list of ``{"reducer", "at", "tokens"}``, oldest first, if
    it was shortened. ``left_out`` are messages that the window keeps and the render does not show.

    Raises:
        DoesNotFit: the window cannot be rendered.
    """
    parts, trace, _ = shortened_parts(window)
    render = parts.rendered(trace)
    items = [*_lead(parts), *(one for group in parts.groups for one in _group(window, group))]
    if parts.closing:
        items.append(_item("closing", len(parts.closing)))
    for item, body, offset in zip(items, render.bodies, render.offsets, strict=True):
        item["position"] = window.position_of(offset) if offset >= 0 else None
        item["message"] = msgspec.json.decode(body)
    out = [
        {
            **_item("omitted", 0),
            "position": window.position_of(entry.offset),
            **_changes(window, entry),
        }
        for entry in window.tail
        if entry.kind in RENDERED and entry.out and omits(entry.variant)
    ]
    return Inspected(render, items, out)


def _item(lane: Lane, tokens: int, *, waiting: bool = False) -> dict[str, Any]:
    return {"lane": lane, "tokens": tokens, "waiting": waiting}


def _lead(parts: Parts) -> list[dict[str, Any]]:
    """What stands before the tail, in the order of :meth:`Parts.rendered`."""
    found = [_item("system", tokens) for _, tokens, _ in parts.system]
    summary = parts.window.meta.summary
    if parts.summary is not None and summary is not None:
        found.append(_item("summary", summary.tokens + len(SUMMARY_MARK)))
    for pin in parts.pins:
        call = min(pin.tokens, body_tokens(pin.call, parts.window.policy.encoding))
        found += [_item("pinned", call), _item("pinned", pin.tokens - call)]
    if parts.stub:
        found.append(_item("omitted", STUB_TOKENS))
    return found


def _group(window: Window, group: Group) -> list[dict[str, Any]]:
    waiting = bool(group.unanswered())
    found = [{**_item("tail", group.head.tokens, waiting=waiting), **_changes(window, group.head)}]
    for i in group.shown_calls():
        result = group.results.get(i)
        found.append(
            {**_item("tail", result.tokens), **_changes(window, result)}
            if result
            else _item("tail", ANSWER_TOKENS, waiting=True)
        )
    return found


def _changes(window: Window, entry: Entry) -> dict[str, Any]:
    if not entry.variants:
        return {}
    return {
        "full_tokens": entry.full,
        "shortened": [
            {
                "reducer": reducer_of(name),
                "at": window.position_of(at) if at >= 0 else None,
                "tokens": tokens,
            }
            for at, name, tokens in entry.variants
        ],
    }
