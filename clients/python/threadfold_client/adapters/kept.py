"""Fields of a framework's message that an event does not have: kept beside its text, and read back
from the bounded window.

They are a ``reasoning`` part with the framework as its provider and JSON as its signature. Such a
part stays with its message as long as that is in the window. It is sent to no model and costs no
tokens. Results of tools have none.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from threadfold_client import AsyncClient, NotFound


def keep(flat: dict[str, Any], provider: str, what: Any) -> dict[str, Any]:
    """The message with ``what`` (JSON values) kept beside its content."""
    content = flat.get("content")
    parts = (
        [{"type": "text", "text": content}]
        if isinstance(content, str) and content
        else content
        if isinstance(content, list)
        else []
    )
    part = {
        "type": "reasoning",
        "provider": provider,
        "signature": msgspec.json.encode(what).decode(),
    }
    return {**flat, "content": [*parts, part]}


def kept(flat: dict[str, Any], provider: str) -> Any:
    """What was kept with this message for the framework, None without any."""
    for part in flat.get("reasoning") or ():
        if part.get("provider") == provider and part.get("signature"):
            try:
                return msgspec.json.decode(part["signature"])
            except msgspec.DecodeError:
                return None  # another producer's: only the text can be used
    return None


async def shown_messages(
    client: AsyncClient,
    conversation: str,
    *,
    max_tokens: int | None = None,
    after: str | None = None,
) -> list[dict[str, Any]]:
    """The messages a model would be sent, as flat events with their ``reasoning`` and ``is_error``;
    empty for a conversation that does not exist yet. The results of one message's calls are in
    the order in which they were appended.
    """
    try:
        found = await client.context(
            conversation, format="rendered", max_tokens=max_tokens, after=after
        )
    except NotFound:
        return []
    return [flat for unit in _units(found.messages) for flat in unit]


def in_log_order(flats: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Shown messages with each system message where it was appended, and not before all others;
    one that is older than all that is shown stays in front.
    """
    systems = [flat for flat in flats if _is_system(flat)]
    units = _units([flat for flat in flats if not _is_system(flat)])
    first = min((_offset(unit[0], _END) for unit in units), default=_END)
    front = [flat for flat in systems if _offset(flat, -1) < first]
    for flat in systems[len(front) :]:
        later = (i for i, unit in enumerate(units) if _offset(unit[0], -1) > _offset(flat, -1))
        units.insert(next(later, len(units)), [flat])
    return [*front, *(flat for unit in units for flat in unit)]


def is_stored(flat: dict[str, Any]) -> bool:
    """Whether a shown message is an event of the conversation, and none that the render made: the
    summary, the line for what was left out, the answer to a call that has no result.
    """
    return "position" not in flat or flat["position"] is not None


_END = 1 << 63


def _is_system(flat: dict[str, Any]) -> bool:
    return flat.get("role") in ("system", "developer") and flat.get("position") is not None


def _offset(flat: dict[str, Any], unknown: int) -> int:
    position = flat.get("position")
    return unknown if position is None else int(position.rpartition("-")[2])


def _units(flats: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """The messages, each with the results behind it in the log's order; those that the render made
    come last.
    """
    units: list[list[dict[str, Any]]] = []
    for flat in flats:
        if flat["type"] == "tool.result" and units:
            units[-1].append(flat)
        else:
            units.append([flat])
    return [[head, *sorted(rest, key=lambda flat: _offset(flat, _END))] for head, *rest in units]
