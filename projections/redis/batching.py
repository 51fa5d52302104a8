"""Calls of one script by many callers, gathered: what comes while a pipeline is under way goes out
together in the next one.

A call by itself costs Python five times what the server takes for it: a connection is taken and
given back, timers are set, tasks are switched. In a batch, those are paid once for all that wait. A
call that finds nothing under way is sent at once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from hashlib import sha1
from typing import Any, NamedTuple

import redis.asyncio as aredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError

MOST = 256
"""Calls in one pipeline: a bound on how long one of them waits for its neighbours."""


class _Call(NamedTuple):
    parts: tuple[Any, ...]
    done: asyncio.Future[list[Any]]


class Batcher:
    """One read-only script (it may be run twice). For one event loop."""

    def __init__(self, redis: aredis.Redis, script: str) -> None:
        self._redis = redis
        self._script = script
        self._sha = sha1(script.encode(), usedforsecurity=False).hexdigest()
        self._waiting: deque[_Call] = deque()
        self._sending: asyncio.Task[None] | None = None

    async def __call__(self, keys: list[str], args: list[bytes]) -> list[Any]:
        """Run the script and return its answer; raises what the client raises."""
        call = _Call(
            (self._sha, len(keys), *keys, *args), asyncio.get_running_loop().create_future()
        )
        self._waiting.append(call)
        if self._sending is None:
            self._sending = asyncio.create_task(self._send_all(), name="redis-reads")
        return await call.done

    async def close(self) -> None:
        """Send nothing more; whoever still waits gets the client's ConnectionError."""
        if self._sending is not None:
            self._sending.cancel()
            await asyncio.gather(self._sending, return_exceptions=True)
        while self._waiting:
            _give_up(self._waiting.popleft())

    async def _send_all(self) -> None:
        calls: list[_Call] = []
        try:
            while self._waiting:
                taken = [self._waiting.popleft() for _ in range(min(MOST, len(self._waiting)))]
                calls = [
                    call for call in taken if not call.done.done()
                ]  # a caller that left is not sent for
                if calls:
                    await self._send(calls)
        finally:
            self._sending = None
            for call in calls:
                _give_up(call)

    async def _send(self, calls: list[_Call]) -> None:
        try:
            answers = await self._pipeline(calls)
            if any(isinstance(answer, NoScriptError) for answer in answers):
                # A server that was started anew, or another one that took over.
                await self._redis.script_load(self._script)
                answers = await self._pipeline(calls)
        except (RedisError, OSError) as error:
            answers = [error] * len(calls)
        for call, answer in zip(calls, answers, strict=True):
            if call.done.done():
                continue
            if isinstance(answer, Exception):
                call.done.set_exception(answer)
            else:
                call.done.set_result(answer)

    async def _pipeline(self, calls: list[_Call]) -> list[Any]:
        async with self._redis.pipeline(transaction=False) as pipe:
            for call in calls:
                pipe.execute_command("EVALSHA", *call.parts)
            answers: list[Any] = await pipe.execute(raise_on_error=False)
        return answers


def _give_up(call: _Call) -> None:
    """Not by a cancellation: whoever waits was not cancelled himself."""
    if not call.done.done():
        call.done.set_exception(RedisConnectionError("the connections were closed"))
