"""One server of Redis: the connections to it, scripts on it, and its failures named by their cause.

**Incarnations.** All connections of a :class:`Node` are to one server *process*: each tells its
``run_id`` when it is made, and where that is another one the node is given up and a new one taken.
So an answer is known to come from the process ``node.server``, at no cost a call. Writers leave it
beside what they write; what a server holds that was last written to another process is not taken
for current (a replica that was promoted, an old snapshot that was loaded).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha1
from types import TracebackType
from typing import Any

import redis.asyncio as aredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import NoScriptError, RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from projections.errors import CorruptWindow, RedisUnavailable
from projections.redis.address import shown
from projections.redis.batching import Batcher

FULL = 0.99
"""The share of maxmemory from which a server counts as full: it refuses writes above all of it, and
the buffers of connections come and go.
"""
WHEN_FULL = "takes no writes: raise maxmemory, or lower hibernate_after"
UNKNOWN = "unknown"
"""The incarnation of a server that does not tell one."""


class AnotherServer(RedisConnectionError):
    """A new connection is to another process than the node's others: nothing was sent on it."""


class Node:
    """One server process and the connections to it; ``server`` is its incarnation once
    :meth:`ready` returned, and ``replaced`` says that another process was met in its place.
    """

    def __init__(
        self, place: str, url: str, *, timeout: float, connections: int, master: bool
    ) -> None:
        self.place = place
        self.server = ""
        self.replaced = False
        self.doubted = 0.0
        self._master = master
        self._gathered: dict[str, Batcher] = {}
        # One that waits: a list asks every partition at once, so some lists side by side are more
        # than the connections there may be.
        pool = aredis.BlockingConnectionPool.from_url(
            url,
            # With RESP 3, redis-py 8 uses connections that the server has closed meanwhile.
            protocol=2,
            socket_timeout=timeout,
            socket_connect_timeout=timeout,
            max_connections=connections,
            timeout=timeout,
            redis_connect_func=self._connected,
        )
        pool.connection_class = _lost_by_name(pool.connection_class)
        self.redis = aredis.Redis.from_pool(pool)

    async def ready(self) -> None:
        """Have a connection, so that the incarnation is known; raises what redis-py raises."""
        if not self.server:
            await self.redis.ping()

    def gathered(self, script: str) -> Batcher:
        """Calls of one read-only script on this server, gathered."""
        found = self._gathered.get(script)
        if found is None:
            found = self._gathered[script] = Batcher(self.redis, script)
        return found

    async def close(self) -> None:
        """Close all connections; what still waits is cancelled."""
        for gathered in self._gathered.values():
            await gathered.close()
        await self.redis.aclose()

    async def _connected(self, connection: Any) -> None:
        await connection.on_connect()
        await connection.send_command("INFO", "server")
        found = re.search(r"run_id:(\w+)", str(await connection.read_response()))
        server = found[1] if found else UNKNOWN
        if self._master:
            await connection.send_command("ROLE")
            if not is_master(await connection.read_response()):
                raise RedisConnectionError("it is a replica now")
        if self.server and self.server != server:
            self.replaced = True
            raise AnotherServer("another server answers there now")
        self.server = server


def _lost_by_name(connections: Any) -> Any:
    """A class of connections that names a connection which closes just before a call is sent:
    uvloop raises a RuntimeError for it.
    """

    class Connection(connections):  # type: ignore[misc]
        async def send_packed_command(self, *args: Any, **options: Any) -> None:
            try:
                await super().send_packed_command(*args, **options)
            except RuntimeError as error:
                raise RedisConnectionError("the connection closed") from error

    return Connection


class Script:
    """A Lua script, sent whole only to a server that does not know it."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._sha = sha1(text.encode(), usedforsecurity=False).hexdigest()

    async def __call__(self, node: Node, keys: Sequence[str], args: Sequence[Any] = ()) -> Any:
        """Run it on a server; its keys share a hash tag. Raises what redis-py raises."""
        redis: Any = node.redis
        call: list[Any] = ["EVALSHA", self._sha, len(keys), *keys, *args]
        try:
            return await redis.execute_command(*call)
        except NoScriptError:
            await redis.script_load(self._text)
            return await redis.execute_command(*call)

    async def many(
        self, node: Node, calls: Sequence[tuple[Sequence[str], Sequence[Any]]]
    ) -> list[Any]:
        """Run it often on a server, each time with other keys and arguments, in one trip; raises
        what redis-py raises.
        """
        try:
            return await self._pipeline(node, calls)
        except NoScriptError:  # it was restarted; nothing of the pipeline was done
            await node.redis.script_load(self._text)
            return await self._pipeline(node, calls)

    async def _pipeline(
        self, node: Node, calls: Sequence[tuple[Sequence[str], Sequence[Any]]]
    ) -> list[Any]:
        pipe = node.redis.pipeline(transaction=False)
        for keys, args in calls:
            pipe.evalsha(self._sha, len(keys), *keys, *args)
        return await pipe.execute()


class RedisErrors:
    """A context, for any number of uses at once, that names every failure to reach the server, or
    to be served by it, by its cause.

    Raises:
        RedisUnavailable, CorruptWindow: as named.
    """

    # A class, because each read enters it: a generator of contextlib's costs three times as much.
    __slots__ = ("_other_type", "_where")

    def __init__(self, url: str, other_type: str) -> None:
        """Args: ``other_type`` ends the message of :class:`CorruptWindow`, which says that a key
        holds a value of another type: whose key, and what is to be done.
        """
        self._where = f"Redis at {shown(url)}"
        self._other_type = other_type

    def __enter__(self) -> None:
        pass

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, RedisConnectionError | RedisTimeoutError | OSError):
            reason = (str(error).strip() or type(error).__name__).splitlines()[0][:160]
            raise RedisUnavailable(
                f"{self._where} does not answer ({reason}): check that it runs"
            ) from error
        if isinstance(error, ResponseError):
            if "WRONGTYPE" in str(error):
                raise CorruptWindow(f"Redis has something else under {self._other_type}") from error
            if "'maxmemory'" in str(error):
                raise RedisUnavailable(
                    f"{self._where} is at its maxmemory and {WHEN_FULL}"
                ) from error
            raise RedisUnavailable(f"{self._where} refused: {error}") from error
        if isinstance(error, RedisError):
            raise RedisUnavailable(f"{self._where} failed: {error}") from error


def is_master(role: Any) -> bool:
    """Whether the answer to ROLE is a master's."""
    return isinstance(role, list) and role[0] in (b"master", "master")


async def server_info(nodes: Sequence[Node]) -> dict[str, Any]:
    """What servers report: ``version`` (the oldest), ``maxmemory_policy``, ``used_memory`` and
    ``maxmemory`` (bytes, of all; a maximum of 0: none), and ``refuses``: why one of them takes no
    writes, empty if all do.

    The policy is ``noeviction`` only where all of them have it; else it is that of one that does
    not.
    """
    found = [await _info(node) for node in nodes]
    policies = [one["maxmemory_policy"] for one in found]
    return {
        "version": min((str(one["version"]) for one in found), key=_numbers),
        "maxmemory_policy": next(
            (policy for policy in policies if policy != "noeviction"), "noeviction"
        ),
        "used_memory": sum(int(one["used_memory"] or 0) for one in found),
        "maxmemory": sum(int(one["maxmemory"] or 0) for one in found),
        "refuses": next((why for one in found if (why := one["refuses"])), ""),
    }


async def _info(node: Node) -> dict[str, Any]:
    info = await node.redis.info()
    policy = (
        info.get("maxmemory_policy")
        or (await node.redis.config_get("maxmemory-policy"))["maxmemory-policy"]
    )
    return {
        "version": info.get("valkey_version") or info.get("redis_version"),
        "maxmemory_policy": policy,
        "used_memory": info.get("used_memory"),
        "maxmemory": info.get("maxmemory"),
        "refuses": await _refuses(node, info),
    }


async def _refuses(node: Node, info: dict[str, Any]) -> str:
    """Why a server takes no writes, as far as it reports it; empty if it does."""
    used, most = int(info.get("used_memory") or 0), int(info.get("maxmemory") or 0)
    where = f"Redis at {shown(node.place)}"
    if info.get("role", "master") != "master":
        return (
            f"{where} is a replica and takes no writes: make it a master (REPLICAOF NO ONE), or"
            " name its master in the setting redis"
        )
    if most and used >= FULL * most:
        return (
            f"{where} is at its maxmemory ({used >> 20} of {most >> 20} MiB used) and {WHEN_FULL}"
        )
    if info.get("aof_last_write_status", "ok") != "ok":
        return (
            f"{where} cannot write its append-only file and takes no writes: check whether its disk"
            " is full"
        )
    if info.get("rdb_last_bgsave_status", "ok") != "ok" and await _stops_without_snapshots(node):
        return (
            f"{where} cannot write its snapshot (RDB) and takes no writes: check whether its disk"
            " is full"
        )
    return ""


async def _stops_without_snapshots(node: Node) -> bool:
    """Whether a server takes no writes after a snapshot that failed; False if it does not tell."""
    try:
        stops = await node.redis.config_get("stop-writes-on-bgsave-error")
        saves = await node.redis.config_get("save")
    except ResponseError:
        return False
    return stops.get("stop-writes-on-bgsave-error") == "yes" and bool(saves.get("save"))


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in re.findall(r"\d+", version))
