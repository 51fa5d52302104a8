"""openai-agents: a session whose items are a conversation's bounded window.

from threadfold_client import AsyncClient
from threadfold_client.adapters.openai_agents import ThreadfoldSession

session = ThreadfoldSession("conversation-1", AsyncClient(url, key))
result = await Runner.run(agent, "hello", session=session)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any

from threadfold_client import AsyncClient, Conflict, Invalid
from threadfold_client.adapters.agents_items import (
    PROVIDER,
    checked_items,
    items_of,
    names_of,
    to_events,
    to_items,
)
from threadfold_client.adapters.extras import needs_asynchronous, require
from threadfold_client.adapters.kept import in_log_order, shown_messages
from threadfold_client.adapters.sessions import SessionLog

POPS = 5
"""Attempts to take an item back while others append."""


class ThreadfoldSession:
    """openai-agents' ``Session`` protocol over one conversation.

    ``get_items`` gives the bounded window, not the whole log: the summary (as an assistant's
    message), then the verbatim tail; it is always valid to send. ``add_items`` returns once the
    window holds the items. Sessions of one id, in any process, share the conversation.

    Args:
        session_id: the conversation.
        client: the session does not close it.
        max_tokens: a limit of this reader's own.
        session_settings: openai-agents' ``SessionSettings``, or a dictionary of them (``limit``:
            the newest so many items).
        fence: a turn's fencing token, sent with every append.

    Raises:
        TypeError: a setting is unknown, or the settings are neither.
        ValueError: ``limit`` is no whole number from 0 on.
    """

    def __init__(
        self,
        session_id: str,
        client: AsyncClient,
        *,
        max_tokens: int | None = None,
        session_settings: Any = None,
        fence: int | None = None,
    ) -> None:
        require("agents", "openai-agents")
        needs_asynchronous(client, "ThreadfoldSession")
        self.session_id = session_id
        self._settings = _settings_of(session_settings)
        self._client = client
        self._max_tokens = max_tokens
        self._log = SessionLog(client, session_id, PROVIDER, fence)

    @property
    def session_settings(self) -> Any:
        """openai-agents' ``SessionSettings``, or None. A dictionary becomes them.

        Raises:
            TypeError, ValueError: as of the session's argument.
        """
        return self._settings

    @session_settings.setter
    def session_settings(self, given: Any) -> None:
        self._settings = _settings_of(given)

    async def get_items(self, limit: int | None = None) -> list[Any]:
        """The window's items, oldest first; with ``limit`` (or the settings') the newest so many of
        them.

        Raises:
            Invalid: the limit is no whole number from 0 on.
        """
        most = limit if limit is not None else getattr(self.session_settings, "limit", None)
        if most is not None and (type(most) is not int or most < 0):
            raise Invalid(f"limit is {most!r}: expected a whole number from 0 on")
        shown = await shown_messages(self._client, self.session_id, max_tokens=self._max_tokens)
        items = to_items(in_log_order(shown))
        return items if most is None else items[-most:] if most > 0 else []

    async def add_items(self, items: list[Any]) -> None:
        """Append items. Nothing of others comes in between if they are at most 499.

        Of more, up to 500 go in one list. If a list is refused, those before it stay, and the error
        names the item by its number.

        Raises:
            Invalid: it is no list of items; nothing was appended.
        """
        if found := checked_items(items):
            await self._log.add(to_events(found), names_of(found))

    async def pop_item(self) -> Any | None:
        """Take the newest item back, by a rollback, and return it; None without any.

        Raises:
            Conflict: others kept appending; or the conversation did not begin as a session, and
                this is its first event.
        """
        for attempt in range(1, POPS + 1):
            found = await self._log.last()
            if found is None:
                return None
            flat, before, position = found
            if before is None:
                raise Conflict(
                    f"conversation {self.session_id} did not begin as a session: there is no"
                    " event before its first one to roll back to"
                )
            *rest, popped = items_of(flat)
            try:
                await self._log.replace_last(before, to_events(rest), position)
            except Conflict:
                if attempt == POPS:
                    raise
            else:
                return popped
        return None

    async def clear_session(self) -> None:
        """Go back to the beginning; the log keeps everything."""
        await self._log.clear()


def _settings_of(given: Any) -> Any:
    """openai-agents' settings, also from a dictionary; None stays None."""
    from agents.memory import SessionSettings

    if isinstance(given, Mapping):
        known = [field.name for field in fields(SessionSettings)]
        unknown = sorted(str(name) for name in given if name not in known)
        if unknown:
            raise TypeError(
                f"session_settings: {', '.join(unknown)}: unknown; known are {', '.join(known)}"
            )
        given = SessionSettings(**given)
    limit = getattr(given, "limit", None)
    if limit is not None and limit < 0:
        raise ValueError(f"session_settings: limit is {limit!r}: a whole number from 0 on, or None")
    if given is None or isinstance(given, SessionSettings):
        return given
    raise TypeError(
        "session_settings: expected openai-agents' SessionSettings or a dictionary, got"
        f" {type(given).__name__}"
    )
