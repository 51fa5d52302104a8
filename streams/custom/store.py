"""Results in Redis. All of a place lies under one hash tag, so a batch is one atomic script call,
in a cluster too.

Keys, all below ``PREFIX:view:{PLACE}:``: ``state`` (the checkpoint), ``t:TENANT`` (a hash of the
tenant's values) and ``i:TENANT/CONVERSATION`` (its recent ids). Like windows, results can be lost
at any moment: they are folded anew from the log.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from importlib.resources import files
from typing import Any, TypeVar, cast

from projections.redis.node import Node, RedisErrors, Script
from projections.redis.router import RedisRouter
from projections.storage.records import Applied, Checkpoint, Verdict
from streams.custom.persistence import ProjectionWrite
from streams.custom.result import Cell

T = TypeVar("T")
SCAN = 500
_STATE = (b"revision", b"offset", b"timestamp", b"hash", b"target")


class RedisProjectionStore:
    """A :class:`streams.custom.persistence.ProjectionStore` on a Redis or Valkey server (6.2 or
    later).
    """

    def __init__(self, url: str, prefix: str = "threadfold", *, timeout: float = 5.0) -> None:
        """Nothing is connected yet. ``url``, ``prefix`` and ``timeout`` (seconds) as for
        ``projections.redis.store.RedisStore``.
        """
        self.url = url
        self.prefix = prefix
        self._servers = RedisRouter(url, timeout=timeout)
        self._errors = RedisErrors(url, "a key of a projection: it is folded anew")
        self._apply = Script(files("streams.custom").joinpath("apply.lua").read_text())
        self._unlink = Script(files("projections.redis").joinpath("unlink.lua").read_text())

    async def close(self) -> None:
        """Close all connections."""
        await self._servers.close()

    async def checkpoint(self, place: str) -> Checkpoint | None:
        async def work(node: Node) -> Checkpoint | None:
            return _checkpoint(
                await cast("Awaitable[dict[bytes, bytes]]", node.redis.hgetall(self._state(place)))
            )

        return await self._run(place, work)

    async def load(self, place: str, cells: list[Cell]) -> list[bytes | None]:
        return (await self.read(place, cells))[1]

    async def read(
        self, place: str, cells: list[Cell]
    ) -> tuple[Checkpoint | None, list[bytes | None]]:
        wanted: dict[str, list[str]] = {}
        for cell in cells:
            wanted.setdefault(cell.tenant, []).append(cell.key)

        async def work(node: Node) -> list[Any]:
            pipe = node.redis.pipeline(transaction=True)
            pipe.hgetall(self._state(place))
            for tenant, keys in wanted.items():
                pipe.hmget(self._values(place, tenant), keys)
            return await pipe.execute()

        state, *rows = await self._run(place, work)
        found = {
            (tenant, key): raw
            for (tenant, keys), row in zip(wanted.items(), rows, strict=True)
            for key, raw in zip(keys, row, strict=True)
        }
        return _checkpoint(state), [found[cell] for cell in cells]

    async def ids(self, place: str, conversations: list[str]) -> list[dict[bytes, bytes]]:
        if not conversations:
            return []

        async def work(node: Node) -> list[dict[bytes, bytes]]:
            pipe = node.redis.pipeline(transaction=False)
            for conversation in conversations:
                pipe.hgetall(self._ids(place, conversation))
            return cast("list[dict[bytes, bytes]]", await pipe.execute())

        return await self._run(place, work)

    async def all(self, place: str, tenant: str) -> tuple[Checkpoint | None, dict[str, bytes]]:
        async def work(node: Node) -> list[Any]:
            pipe = node.redis.pipeline(transaction=True)
            pipe.hgetall(self._state(place))
            pipe.hgetall(self._values(place, tenant))
            return await pipe.execute()

        state, values = await self._run(place, work)
        return _checkpoint(state), {
            key.decode("utf-8", "replace"): raw for key, raw in values.items()
        }

    async def cells(self, place: str) -> AsyncIterator[Cell]:
        begin = self._values(place, "")

        async def names(node: Node) -> list[bytes]:
            # All keys of the tag are on this server, in a cluster too.
            return [name async for name in node.redis.scan_iter(match=_pattern(begin), count=SCAN)]

        for name in await self._run(place, names):
            cursor = 0
            while True:
                cursor, keys = await self._run(place, partial(_some_keys, name=name, cursor=cursor))
                for key in keys:
                    yield Cell(name.decode().removeprefix(begin), key.decode("utf-8", "replace"))
                if not cursor:
                    break

    async def apply(self, place: str, checkpoint: Checkpoint, write: ProjectionWrite) -> Applied:
        keys = [self._state(place)]
        args: list[Any] = [
            checkpoint.revision,
            checkpoint.offset,
            checkpoint.timestamp,
            checkpoint.digest,
            checkpoint.target,
        ]
        changed = {self._values(place, tenant): hash_ for tenant, hash_ in write.values.items()}
        changed.update(
            (self._ids(place, conversation), hash_) for conversation, hash_ in write.ids.items()
        )
        args.append(sum(len(hash_.put) for hash_ in changed.values()))
        for name, hash_ in changed.items():
            keys.append(name)
            args.append(2 * len(hash_.put))
            for pair in hash_.put.items():
                args += pair
            args += (len(hash_.removed), *hash_.removed)

        async def work(node: Node) -> Any:
            return await self._apply(node, keys, args)

        verdict, revision = await self._run(place, work)
        return Applied(Verdict(verdict.decode()), revision.decode())

    async def drop(self, place: str) -> None:
        state = self._state(place)

        async def work(node: Node) -> None:
            # The state first: that fences whoever would still write while the other keys are looked
            # for.
            await node.redis.unlink(state)
            batch: list[Any] = []
            async for name in node.redis.scan_iter(match=_pattern(self._tag(place)), count=SCAN):
                batch.append(name)
                if len(batch) >= SCAN:
                    if await self._unlink(node, [state, *batch]) < 0:
                        return
                    batch = []
            if batch:
                await self._unlink(node, [state, *batch])

        await self._run(place, work)

    async def _run(self, place: str, work: Callable[[Node], Awaitable[T]]) -> T:
        with self._errors:
            return await self._servers.run(self._state(place), work)

    def _tag(self, place: str) -> str:
        return f"{self.prefix}:view:{{{place}}}:"

    def _state(self, place: str) -> str:
        return f"{self._tag(place)}state"

    def _values(self, place: str, tenant: str) -> str:
        return f"{self._tag(place)}t:{tenant}"

    def _ids(self, place: str, conversation: str) -> str:
        return f"{self._tag(place)}i:{conversation}"


async def _some_keys(node: Node, *, name: bytes, cursor: int) -> tuple[int, list[bytes]]:
    after, found = await node.redis.hscan(name, cursor, count=SCAN)
    return int(after), cast("list[bytes]", list(found))


def _pattern(begin: str) -> str:
    """Redis' pattern for all keys that begin so."""
    return "".join(f"\\{c}" if c in "*?[]\\" else c for c in begin) + "*"


def _checkpoint(state: dict[bytes, bytes]) -> Checkpoint | None:
    try:
        revision, offset, timestamp, digest, target = (state[name] for name in _STATE)
        return Checkpoint(
            revision.decode(), int(offset), int(timestamp), digest.decode(), int(target)
        )
    except (KeyError, ValueError):
        # Nothing, or not a state any more: it is folded anew.
        return None
