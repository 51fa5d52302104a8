"""A model's answer in the conversation, and its record in the ledger."""

from __future__ import annotations

import logging
from typing import Any, NamedTuple

from threadfold_client import Appended, AsyncClient, ClientError, Context

logger = logging.getLogger(__name__)


class Answer(NamedTuple):
    """An appended answer: its event, where it was appended, the context it answers, and the id of
    its record in the ledger (None without one).
    """

    event: dict[str, Any]
    appended: Appended
    context: Context
    render_id: str | None

    @property
    def text(self) -> str:
        """The answer's text."""
        content = self.event.get("content")
        if isinstance(content, list):
            return "".join(part["text"] for part in content if part["type"] == "text")
        return content or ""

    @property
    def tool_calls(self) -> list[dict[str, Any]]:
        """Its calls, as ``{"id", "name", "arguments"}``."""
        return list(self.event.get("tool_calls") or [])


async def record_answer(
    client: AsyncClient,
    conversation: str,
    context: Context,
    event: dict[str, Any],
    model: str,
    latency_ms: float,
) -> str | None:
    """Record the call; a failure is logged, as the answer is in the conversation already."""
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
