"""What a model's answer is once it is in the conversation, and its entry in the ledger."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from threadfold.client import Appended, AsyncClient, ClientError, Context

logger = logging.getLogger(__name__)


class Answer(NamedTuple):
    """An answer that was appended: the event, its place, the context it answers, and its record in
    the ledger (None without one).
    """

    event: dict[str, Any]
    appended: Appended
    context: Context
    render_id: str | None

    @property
    def text(self) -> str:
        """What the model said."""
        content = self.event.get("content")
        if isinstance(content, list):
            return "".join(part["text"] for part in content if part["type"] == "text")
        return content or ""

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """The calls it asks for, as ``{"id", "name", "arguments"}``."""
        return list(self.event.get("tool_calls") or [])


async def recorded(
    client: AsyncClient,
    conversation: str,
    context: Context,
    event: dict[str, Any],
    model: str,
    latency_ms: float,
) -> str | None:
    """Record the call; an answer that is in the conversation does not fail for its entry in the
    ledger, which is logged instead.
    """
    try:
        return await client.record_call(
            conversation,
            context,
            event.get("model") or model,
            reported_usage=event.get("usage"),
            latency_ms=round(latency_ms, 1),
        )
    except ClientError as error:
        logger.warning(
            "conversation %s: the model call could not be recorded: %s", conversation, error
        )
        return None
