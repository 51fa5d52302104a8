"""The servers behind an address of Redis, each with its own pool: whatever is done to a key is done
at the server in charge of it.

redis-py's own cluster client is not used (read at 8.1): it queues each command of a transaction in
a thread with a loop of its own, it raises where a pool is used up instead of waiting, and a failing
pipeline closes the connections to *all* nodes, so that one shard's failover would be felt by the
others. All that is done here to a partition is under one hash tag: a plain client of the right
server does.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    ReadOnlyError,
    RedisError,
    ResponseError,
    TryAgainError,
)
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from projections.redis.address import Address, Kind, read_address
from projections.redis.node import AnotherServer, Node, is_master
from projections.redis.topology import ClusterSlots, OneServer, SentinelMaster, Topology

T = TypeVar("T")
logger = logging.getLogger(__name__)

CONNECTIONS = 64
"""Connections to one server at most; whoever finds them all in use waits."""
REDIRECTS = 4
LOOK_EVERY = 1.0
"""Seconds after which sentinels or a cluster's node are asked again where keys are, beside what
goes on.
"""
LOOK_FIRST = 5.0
"""Seconds without a look after which nothing is done before one: meanwhile a server may have been
replaced without knowing it.
"""
LOOK_PAUSE = 0.1
"""Seconds between two looks at least, however much fails."""
_AWAY = (RedisConnectionError, RedisTimeoutError, OSError, ClusterDownError)


class RedisRouter:
    """All servers behind one address. Used within one event loop; nothing is connected before the
    first call.
    """

    def __init__(self, url: str, *, timeout: float = 5.0, connections: int = CONNECTIONS) -> None:
        """Args: ``timeout`` is seconds for one answer; ``connections`` is how many there may be to
        each server.

        Raises:
            InvalidSettings: the address is none.
        """
        self._address = read_address(url)
        self._timeout = timeout
        self._connections = connections
        self._topology = _topology(self._address, self._client)
        self._alone = self._address.kind is Kind.ONE
        self._nodes: dict[str, Node] = {}
        self._suspects: set[str] = set()
        self._looked = 0.0
        self._blind = False
        self._looking: asyncio.Task[None] | None = None
        self._background: set[asyncio.Task[None]] = set()

    async def run(self, key: str, work: Callable[[Node], Awaitable[T]]) -> T:
        """Do something at the server in charge of a key; redirects are followed.

        ``work`` may be called again where a first call did nothing: it was redirected as a whole,
        or could not be sent. Raises what it raises.
        """
        for left in range(REDIRECTS, -1, -1):
            node = await self._node_of(key)
            try:
                answer = await work(node)
            except AnotherServer:
                self._drop(node)
                if not left:
                    raise
            except MovedError as error:
                self._topology.moved(error)
                self._looked = min(self._looked, time.monotonic() - LOOK_EVERY)
                if not left:
                    raise
            except (AskError, TryAgainError) as error:
                raise ResponseError(
                    f"the key's slot is moving to another node: try again shortly ({error})"
                ) from error
            except ReadOnlyError:
                # Behind a name or an address that moved on, its connections lead to the former
                # master.
                self._drop(node)
                self._suspect(node.place)
                raise
            except _AWAY:
                self._suspect(node.place)
                raise
            else:
                self._suspects.discard(node.place)
                return answer
        raise RedisConnectionError("redirected too often")

    def doubt(self, node: Node) -> None:
        """What a server holds was last written to another one: where it is a replica now, it is
        given up (asked once a second at most).
        """
        now = time.monotonic()
        if (
            now - node.doubted >= LOOK_EVERY and self._address.kind is not Kind.CLUSTER
        ):  # a replica of a cluster redirects
            node.doubted = now
            self._keep(asyncio.create_task(self._ask_role(node), name="redis-role"))

    async def each(self) -> list[Node]:
        """Every server that keeps keys; raises what redis-py raises when they cannot be found out
        or one does not answer.
        """
        await self._look_if_old()
        if not self._topology.places():
            await self._look()
        return [await self._ready(place) for place in self._topology.places()]

    async def grouped(self, keys: Sequence[str]) -> list[list[int]]:
        """The indexes of keys by the server that keeps them; raises what redis-py raises, and
        OSError.
        """
        if not self._alone and not self._topology.places():
            await self._look()
        groups: dict[str | None, list[int]] = {}
        for i, key in enumerate(keys):
            groups.setdefault(self._topology.place_of(key), []).append(i)
        return list(groups.values())

    async def any(self) -> Node:
        """A server that answers, for what concerns no key: publishing and subscribing."""
        await self._look_if_old()
        if not self._topology.places():
            await self._look()
        last: BaseException = RedisConnectionError("no server is known")
        for place in sorted(self._topology.places(), key=self._suspects.__contains__):
            try:
                return await self._ready(place)
            except (RedisError, OSError) as error:
                self._suspect(place)
                last = error
        try:
            raise last
        finally:
            del last  # its traceback refers to this frame

    async def close(self) -> None:
        """Close all connections."""
        tasks = [task for task in (self._looking, *self._background) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(
            *(node.close() for node in self._nodes.values()), return_exceptions=True
        )
        self._nodes.clear()
        await self._topology.close()

    # -- nodes
    # ------------------------------------------------------------------------------------------

    async def _node_of(self, key: str) -> Node:
        if not self._alone:
            await self._look_if_old()
        place = self._topology.place_of(key)
        if place is None or place in self._suspects:
            await self._look()
            place = self._topology.place_of(key)
        if place is None:
            raise ClusterDownError("no node of the cluster serves the key's slot")
        node = self._nodes.get(place)
        if node is not None and node.server and not node.replaced:
            return node
        return await self._ready(place)

    async def _ready(self, place: str) -> Node:
        """The node at a place, connected. No check is made of who answers there."""
        for _ in range(REDIRECTS):
            node = self._node(place)
            try:
                await node.ready()
            except AnotherServer:
                self._drop(node)
                continue
            except (RedisError, OSError):
                self._suspect(place)
                raise
            self._suspects.discard(place)
            return node
        raise RedisConnectionError("another server answers there each time")

    def _node(self, place: str) -> Node:
        node = self._nodes.get(place)
        if node is not None and node.replaced:  # met by a call that is not of :meth:`run`
            self._drop(node)
            node = None
        if node is None:
            node = self._nodes[place] = Node(
                place,
                self._address.url_of(place),
                timeout=self._timeout,
                connections=self._connections,
                master=self._address.kind is Kind.SENTINEL,
            )
        return node

    async def _client(self, place: str) -> Any:
        return (await self._ready(place)).redis

    def _suspect(self, place: str) -> None:
        """A server that failed: before it is used again, it is found out whether another one took
        over.
        """
        if not self._alone:
            self._suspects.add(place)

    def _drop(self, node: Node) -> None:
        """Give a node up. What is under way there ends by itself, so its connections are closed a
        little later.
        """
        if self._nodes.get(node.place) is node:
            del self._nodes[node.place]
            self._keep(asyncio.create_task(self._leave(node), name="redis-node-left"))

    def _keep(self, task: asyncio.Task[None]) -> None:
        self._background.add(task)
        task.add_done_callback(self._background.discard)

    async def _ask_role(self, node: Node) -> None:
        redis: Any = node.redis
        try:
            role = await redis.execute_command("ROLE")
        except (RedisError, OSError) as error:
            logger.debug(
                "the role of the server at hand is not known: %s", error
            )  # it is asked again
        else:
            if not is_master(role):
                logger.warning("Redis: the server at hand is a replica now; it is located again")
                self._drop(node)

    async def _leave(self, node: Node) -> None:
        try:
            await asyncio.sleep(self._timeout)
        finally:
            await node.close()

    # -- where keys are
    # ------------------------------------------------------------------------------------------

    async def _look_if_old(self) -> None:
        age = time.monotonic() - self._looked
        if self._alone or age < LOOK_EVERY:
            return
        if age >= LOOK_FIRST and self._looked:
            with contextlib.suppress(
                RedisError, OSError
            ):  # said by _look; what is known goes on being used
                await self._look()
        elif self._looking is None and self._looked:
            self._begin_to_look()

    async def _look(self) -> None:
        """Wait for a look that is begun now or under way; raises what redis-py raises, and
        OSError.
        """
        if self._looking is None:
            self._begin_to_look()
        assert self._looking is not None
        await asyncio.shield(self._looking)

    def _begin_to_look(self) -> None:
        self._looking = asyncio.create_task(self._look_once(), name="redis-topology")
        self._looking.add_done_callback(self._looked_at)

    def _looked_at(self, task: asyncio.Task[None]) -> None:
        self._looking = None
        error = None if task.cancelled() else task.exception()
        if error is not None and not self._blind:
            logger.warning("Redis: the servers' roles are unknown now: %s", error)
        self._blind = error is not None

    async def _look_once(self) -> None:
        if self._alone:
            return
        await asyncio.sleep(max(0.0, self._looked + LOOK_PAUSE - time.monotonic()))
        try:
            await self._topology.look(self._suspects)
        finally:
            self._looked = time.monotonic()
        there = set(self._topology.places())
        self._suspects &= there
        for place, node in list(self._nodes.items()):
            if place not in there:
                self._drop(node)


def _topology(address: Address, client: Callable[[str], Awaitable[Any]]) -> Topology:
    if address.kind is Kind.SENTINEL:
        return SentinelMaster(address)
    if address.kind is Kind.CLUSTER:
        return ClusterSlots(address, client)
    return OneServer(address.nodes[0])
