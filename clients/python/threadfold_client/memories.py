"""The calls of the long-term memory, for the client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote

import msgspec

from threadfold_client.caller import Caller, conversation_path, query_of
from threadfold_client.calls import Call
from threadfold_client.ids import new_id


class MemoryCalls:
    """What :class:`AsyncClient` does with memories. Documents are as the gateway's OpenAPI document
    has them.
    """

    _caller: Caller

    async def save_memories(
        self, memories: Mapping[str, Any] | Sequence[Mapping[str, Any]], *, wait: bool = True
    ) -> list[dict[str, Any]]:
        """Save records, each ``{"text", "type"?, "user"?, "channel"?, "conversation"?, "topic"?,
        "tags"?, "temporal"?, "confidence"?, "trust"?}``: ``trust`` is ``user``, or ``model`` where
        a model decided.

        Returns ``{"id", "status"}`` of each, ``created``, ``confirmed`` or ``revised``, once a
        search finds them; ``rejected`` or ``parked`` for one that is not taken. Without ``wait`` it
        returns as soon as they are safe, without a status or with ``unknown``.
        """
        body = [memories] if isinstance(memories, Mapping) else list(memories)
        return await self._saved("/memories", body, wait)

    async def save_skill(self, skill: Mapping[str, Any], *, wait: bool = True) -> dict[str, Any]:
        """Save how something is done: ``{"intent", "doc_markdown", "preconditions"?, "user"?,
        "channel"?, "conversation"?}``. Returns as :meth:`save_memories` does.
        """
        return (await self._saved("/skills", dict(skill), wait))[0]

    async def search_memories(self, /, query: str, **more: Any) -> dict[str, Any]:
        """The memories whose text fits: ``{"results": [{"kind", "id", "text", "score", "record",
        …}], "tokens"}``, best first.

        ``more`` are the search's other fields: ``user``, ``kinds``, ``types``, ``as_of``,
        ``limit``, ``max_tokens``, …
        """
        body = {"query": query, **more}
        return await self._caller.document(Call("POST", "/memories/search", body=body))

    async def memory(
        self,
        memory_id: str,
        *,
        as_of: str | None = None,
        user: str | None = None,
        channel: str | None = None,
        conversation: str | None = None,
    ) -> dict[str, Any]:
        """One record, also a superseded one; ``as_of`` (RFC 3339): as it was known then. Not
        found if it is not of the ``user``, ``channel`` and ``conversation`` given, as with the
        other calls of one memory.
        """
        query = query_of(as_of=as_of, user=user, channel=channel, conversation=conversation)
        return await self._caller.document(Call("GET", _path(memory_id), query=query))

    async def memory_timeline(
        self,
        memory_id: str,
        *,
        before: int = 5,
        after: int = 5,
        user: str | None = None,
        channel: str | None = None,
        conversation: str | None = None,
    ) -> list[dict[str, Any]]:
        """A record between its neighbours in time, oldest first."""
        whose = query_of(user=user, channel=channel, conversation=conversation)
        query = {"before": before, "after": after, **whose}
        call = Call("GET", f"{_path(memory_id)}/timeline", query=query)
        return (await self._caller.decoded(call, _Listed)).memories

    def memories(self, /, **filters: str | int) -> AsyncIterator[dict[str, Any]]:
        """The records that stand, page by page, newest first; filters are ``user``, ``channel``,
        ``conversation``, ``type`` and ``topic``.
        """
        return self._caller.pages("/memories", filters)

    def skills(self, /, **filters: str | int) -> AsyncIterator[dict[str, Any]]:
        """The skills that stand, page by page, newest first; filters are ``user``, ``channel`` and
        ``conversation``.
        """
        return self._caller.pages("/skills", filters)

    async def delete_memory(
        self,
        memory_id: str,
        *,
        hard: bool = False,
        user: str | None = None,
        channel: str | None = None,
        conversation: str | None = None,
    ) -> dict[str, Any]:
        """Delete a record or a skill. ``hard``: its text leaves every store, for good."""
        whose = query_of(user=user, channel=channel, conversation=conversation)
        query = {**whose, "hard": "true"} if hard else whose
        return await self._caller.document(Call("DELETE", _path(memory_id), query=query))

    async def report_outcome(
        self,
        memory_id: str,
        *,
        succeeded: bool,
        user: str | None = None,
        channel: str | None = None,
        conversation: str | None = None,
    ) -> dict[str, Any]:
        """Report whether an action that used the record succeeded; returns the record."""
        query = query_of(user=user, channel=channel, conversation=conversation)
        path, body = f"{_path(memory_id)}/outcome", {"succeeded": succeeded}
        call = Call("POST", path, query=query, body=body, repeat="refused")
        return await self._caller.document(call)

    async def memory_stats(
        self,
        user: str | None = None,
        *,
        channel: str | None = None,
        conversation: str | None = None,
    ) -> dict[str, Any]:
        """How many records there are: ``{"records", "expired", "types"}``."""
        query = query_of(user=user, channel=channel, conversation=conversation)
        return await self._caller.document(Call("GET", "/memories/stats", query=query))

    async def working_memory(self, conversation: str) -> dict[str, Any]:
        """A conversation's summary and last messages: ``{"compressed_history", "raw_recent_turns",
        "tokens", "threshold"}``.
        """
        path = f"{conversation_path(conversation)}/working-memory"
        return await self._caller.document(Call("GET", path))

    async def _saved(self, path: str, body: Any, wait: bool) -> list[dict[str, Any]]:
        query = {"wait": "applied"} if wait else {}
        headers = {"Idempotency-Key": new_id()}
        call = Call("POST", path, query=query, body=body, headers=headers)
        return (await self._caller.decoded(call, _Listed)).memories


class _Listed(msgspec.Struct):
    memories: list[dict[str, Any]]


def _path(memory_id: str) -> str:
    return f"/memories/{quote(memory_id, safe='')}"
