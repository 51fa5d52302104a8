"""LangChain: a chat message history that is a conversation's bounded window.

from threadfold_client import Client
from threadfold_client.adapters.langchain import ThreadfoldChatMessageHistory

client = Client(url, key)
chain = RunnableWithMessageHistory(model, lambda id: ThreadfoldChatMessageHistory(id, client))
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from threadfold_client.adapters.extras import require

require("langchain_core", "langchain")

from langchain_core.chat_history import BaseChatMessageHistory  # noqa: E402

from threadfold_client import AsyncClient, Client  # noqa: E402
from threadfold_client.adapters.kept import in_log_order, shown_messages  # noqa: E402
from threadfold_client.adapters.langchain_messages import (  # noqa: E402
    PROVIDER,
    is_invented,
    to_event,
    to_messages,
)
from threadfold_client.adapters.sessions import SessionLog  # noqa: E402

if TYPE_CHECKING:
    from langchain_core.messages import BaseMessage

T = TypeVar("T")


class ThreadfoldChatMessageHistory(BaseChatMessageHistory):  # type: ignore[misc]
    """LangChain's ``BaseChatMessageHistory`` over one conversation.

    ``messages`` is the bounded window: the summary (as an assistant's message), then the verbatim
    tail; system messages stand where they were added, those that are older than the tail before
    the summary. What nobody added has ``additional_kwargs["threadfold_stored"] = False``: the
    summary, the line for what was left out, the answer to a call without a result, the last message
    where a late result has come. Adding returns once the window holds the messages. ``clear`` goes
    back to the beginning; the log keeps everything.

    Args:
        session_id: the conversation.
        client: a ``Client`` serves both halves of the interface; an ``AsyncClient`` only the
            asynchronous one, in its own loop.
        max_tokens: a limit of this reader's own.
        fence: a turn's fencing token, sent with every append.
    """

    def __init__(
        self,
        session_id: str,
        client: Client | AsyncClient,
        *,
        max_tokens: int | None = None,
        fence: int | None = None,
    ) -> None:
        self.session_id = session_id
        self._client = client
        self._asynchronous = client.asynchronous if isinstance(client, Client) else client
        self._max_tokens = max_tokens
        self._log = SessionLog(self._asynchronous, session_id, PROVIDER, fence)

    @property
    def messages(self) -> list[BaseMessage]:
        """The window's messages, oldest first."""
        return self._run(self._read())

    async def aget_messages(self) -> list[BaseMessage]:
        """The same."""
        return await self._await(self._read())

    def add_messages(self, messages: Sequence[BaseMessage]) -> None:
        """Append messages. Nothing of others comes in between if they are at most 499.

        Of more, up to 500 go in one list. If a list is refused, those before it stay, and the error
        names the message by its number.
        """
        self._run(self._add(messages))

    async def aadd_messages(self, messages: Sequence[BaseMessage]) -> None:
        """The same."""
        await self._await(self._add(messages))

    def clear(self) -> None:
        """Go back to the beginning."""
        self._run(self._log.clear())

    async def aclear(self) -> None:
        """The same."""
        await self._await(self._log.clear())

    async def _read(self) -> list[BaseMessage]:
        shown = await shown_messages(
            self._asynchronous, self.session_id, max_tokens=self._max_tokens
        )
        return to_messages(in_log_order(shown))

    async def _add(self, messages: Sequence[BaseMessage]) -> None:
        own = [(i, m) for i, m in enumerate(messages, 1) if not is_invented(m)]
        if own:
            names = [f"message {i}" for i, _ in own]
            await self._log.add([to_event(message) for _, message in own], names)

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        if isinstance(self._client, Client):
            return self._client.run(work)
        work.close()
        raise TypeError(
            "this history was given an AsyncClient: use aget_messages, aadd_messages and aclear, or"
            " give it a Client"
        )

    async def _await(self, work: Coroutine[Any, Any, T]) -> T:
        if isinstance(self._client, Client):
            return await asyncio.wrap_future(self._client.submit(work))
        return await work
