"""One subscription to Redis for a whole process: the pub/sub channels of the conversations that
somebody here follows.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from typing import Any

from redis.exceptions import RedisError

from projections.errors import RedisUnavailable
from projections.redis.router import RedisRouter
from streams.runtime.tasks import end_tasks

logger = logging.getLogger(__name__)
AGAIN = 0.3
"""Seconds between two attempts to reach Redis again."""
CONFIRMED = 5.0
"""Seconds within which Redis has to confirm a subscription."""


class PubSub:
    """Calls back for each message of the channels joined. Used within one event loop; stop it
    after.

    Args:
        own: a channel that is always subscribed to, so that the connection is one of subscriptions
            from its beginning.
        on_message: called with a channel and what was published there.
        on_resubscribed: called with a channel that was subscribed to again: messages may have been
            missed.
    """

    def __init__(
        self,
        servers: RedisRouter,
        own: str,
        on_message: Callable[[str, bytes], None],
        on_resubscribed: Callable[[str], None],
    ) -> None:
        self._servers = servers
        self._own = own
        self._on_message = on_message
        self._on_resubscribed = on_resubscribed
        self._channels: dict[str, asyncio.Future[None]] = {}
        self._pubsub: Any = None
        self._task: asyncio.Task[None] | None = None
        self._commands: set[asyncio.Task[None]] = set()
        self._writing = asyncio.Lock()

    async def join(self, channel: str) -> None:
        """Return once messages of the channel arrive.

        Raises:
            RedisUnavailable: it was not confirmed in time.
        """
        if self._task is None:
            self._task = asyncio.create_task(self._run(), name="partials-pubsub")
        confirmed = self._channels.get(channel)
        if confirmed is None:
            confirmed = self._channels[channel] = asyncio.get_running_loop().create_future()
            self._send("subscribe", channel)
        try:
            async with asyncio.timeout(CONFIRMED):
                await asyncio.shield(confirmed)
        except TimeoutError:
            self.leave(channel)
            raise RedisUnavailable(
                "Redis does not confirm a subscription: check that it runs"
            ) from None

    def leave(self, channel: str) -> None:
        """Receive no more messages of the channel."""
        if self._channels.pop(channel, None) is not None:
            self._send("unsubscribe", channel)

    async def stop(self) -> None:
        """End it, and close the connection."""
        await end_tasks([self._task])
        self._task = None

    def _send(self, what: str, channel: str) -> None:
        # A task of its own: cancelled while it writes, it would close the connection of all.
        task = asyncio.create_task(self._command(what, channel), name="partials-command")
        self._commands.add(task)
        task.add_done_callback(self._commands.discard)

    async def _command(self, what: str, channel: str) -> None:
        async with self._writing:
            # A connection that is made later subscribes to all channels. A channel that was joined
            # again meanwhile stays.
            if self._pubsub is None or (what == "unsubscribe" and channel in self._channels):
                return
            try:
                await getattr(self._pubsub, what)(channel)
            except (RedisError, OSError, RuntimeError) as error:
                logger.debug(
                    "%s %s: %s", what, channel, error
                )  # the reader finds it out, too, and connects again

    async def _run(self) -> None:
        while True:
            pubsub: Any = None
            try:
                # Any will do: what is published at one node of a cluster arrives at all of them.
                pubsub = (await self._servers.any()).redis.pubsub()
                async with self._writing:
                    await pubsub.subscribe(self._own, *self._channels)
                    self._pubsub = pubsub
                while True:
                    message = await pubsub.get_message(timeout=5.0)
                    if message is not None:
                        self._on_answer(message)
            except (RedisError, OSError, RuntimeError) as error:
                logger.warning("text in progress does not arrive now: %s", error)
            finally:
                self._pubsub = None
                if pubsub is not None:
                    with contextlib.suppress(RedisError, OSError):
                        await pubsub.aclose()
            await asyncio.sleep(AGAIN)

    def _on_answer(self, message: dict[str, Any]) -> None:
        channel = message["channel"].decode()
        if message["type"] == "subscribe":
            confirmed = self._channels.get(channel)
            if confirmed is not None and confirmed.done():
                self._on_resubscribed(channel)  # a second time: the connection was lost in between
            elif confirmed is not None:
                confirmed.set_result(None)
        elif message["type"] == "message":
            try:
                self._on_message(channel, message["data"])
            except Exception:
                logger.exception("a message on %s could not be processed", channel)
