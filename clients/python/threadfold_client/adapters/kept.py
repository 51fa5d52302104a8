"""Fields of a framework's message that an event does not have: kept beside its text, and read back
from the bounded window.

They are a ``reasoning`` part with the framework as its provider and JSON as its signature. Such a
part stays with its message as long as that is in the window. It is sent to no model and costs no
tokens. Results of tools have none.
"""

from __future__ import annotations

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
    empty for a conversation that does not exist yet.
    """
    try:
        found = await client.context(
            conversation, format="rendered", max_tokens=max_tokens, after=after
        )
    except NotFound:
        return []
    return found.messages
