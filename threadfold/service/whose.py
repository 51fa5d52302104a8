"""Whose long-term memory a call is about."""

from __future__ import annotations

from typing import Any, NamedTuple

from streams.memory.store import Filter


class Whose(NamedTuple):
    """Whose memory a call is about. ``bound``: an end user's own, and nothing else;
    ``conversations``: what these taught alone.
    """

    tenant: str
    user: str | None = None
    channel: str | None = None
    conversation: str | None = None
    conversations: frozenset[str] | None = None
    bound: bool = False

    def filter(self, **more: Any) -> Filter:
        """The records of these that have more."""
        return Filter(
            self.tenant,
            self.user,
            self.channel,
            self.conversation,
            conversations=self.conversations,
            **more,
        )
