"""The neutral formats: flat events (see CONTRACT, Events), for readers that use no provider's
format.

``events`` is the window as the fold keeps it: the limit of a single reader does not shorten it.
``rendered`` is what a model is sent, with what the window knows of each message beside its text.
"""

from __future__ import annotations

from typing import Any

import msgspec

from projections.fold.handlers import TYPE_OF_KIND
from projections.render.parts import Render
from projections.window.bodies import to_flat
from projections.window.conversation_state import Pinned
from projections.window.entry import RENDERED, Entry, Kind
from projections.window.meta import ActiveSummary
from projections.window.window import Window


def window_events(window: Window) -> list[dict[str, Any]]:
    """The window as flat events, each with its ``position``: pinned messages, the active summary,
    then the tail in log order.

    A run of events that only the log still holds comes as one ``{"type": "held", "from", "to",
    "count", "tokens"}`` at its last position. What a rollback abandoned, what was left out,
    rejected events and those of unknown types do not come. Texts are as the window keeps them
    (shortened where it did so).
    """
    systems = {entry.offset: entry for entry in window.tail if entry.kind == Kind.SYSTEM}
    found = [_pinned(window, item, systems.get(item.offset)) for item in window.state.pinned]
    if window.meta.summary is not None:
        found.append(_summary(window, window.meta.summary))
    for pin in window.state.pins:
        found += [
            _message(pin.call, window.position_of(pin.offset)),
            {**_message(pin.result, window.position_of(pin.offset)), "pinned": True},
        ]
    for entry in window.tail:
        event = _event(window, entry)
        if event is not None:
            found.append(event)
    return found


def rendered_events(window: Window, render: Render) -> list[dict[str, Any]]:
    """A render's messages as flat events, in its order.

    Each has the ``position`` of its event, null where it is of no single one, and the event's
    ``reasoning`` and ``is_error`` where it has them. The summary is a message of the assistant.
    """
    entries = {entry.offset: entry for entry in window.tail}
    found = []
    for body, offset in zip(render.bodies, render.offsets, strict=True):
        event = to_flat(msgspec.json.decode(body), "a rendered message")
        event["position"] = window.position_of(offset) if offset >= 0 else None
        entry = entries.get(offset)
        if entry is not None and entry.error:
            event["is_error"] = True
        if entry is not None and entry.reasoning:
            event["reasoning"] = msgspec.json.decode(entry.reasoning)
        found.append(event)
    return found


def _pinned(window: Window, item: Pinned, entry: Entry | None) -> dict[str, Any]:
    """A pinned message, with its reasoning while its ``entry`` is in the tail."""
    found = _message(item.body, window.position_of(item.offset))
    if entry is not None and entry.reasoning:
        found["reasoning"] = msgspec.json.decode(entry.reasoning)
    return found


def _tail_message(entry: Entry, position: str) -> dict[str, Any]:
    found = _message(entry.body, position)
    if entry.error:
        found["is_error"] = True
    if entry.pinned:
        found["pinned"] = True
    if entry.reasoning:
        found["reasoning"] = msgspec.json.decode(entry.reasoning)
    return found


def _message(body: bytes, position: str) -> dict[str, Any]:
    return {**to_flat(msgspec.json.decode(body), "a stored message"), "position": position}


def _summary(window: Window, summary: ActiveSummary) -> dict[str, Any]:
    return {
        "type": "summary",
        "summary_id": summary.summary_id,
        "text": summary.text,
        "tokens": summary.tokens,
        "trust": summary.trust,
        "to": window.position_of(summary.to),
        "previous": summary.previous,
        "position": window.position_of(summary.offset),
    }


def _event(window: Window, entry: Entry) -> dict[str, Any] | None:
    position = window.position_of(entry.offset)
    if entry.kind == Kind.SYSTEM:
        return None  # it stands among the pinned ones
    if entry.kind in RENDERED:
        return None if entry.out else _tail_message(entry, position)
    if entry.kind in TYPE_OF_KIND:
        return {
            "type": TYPE_OF_KIND[entry.kind],
            **msgspec.json.decode(entry.body),
            "position": position,
        }
    if entry.kind == Kind.HELD and entry.tokens:
        return {
            "type": "held",
            "from": window.position_of(entry.start),
            "to": position,
            "count": entry.count,
            "tokens": entry.tokens,
            "position": position,
        }
    return None
