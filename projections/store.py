"""Windows in Redis: the one module (with ``lua/*.lua``) that talks to it.

All keys of a generation's partition share one hash tag, so a batch is one atomic script call and a read one transaction, in a cluster
too. Nothing stored here grows with a conversation's length, and nothing here is the truth: it can be lost at any moment.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from importlib.resources import files
from typing import Any, cast

import cramjam
import redis.asyncio as aredis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError
from redis.exceptions import TimeoutError as RedisTimeoutError

from projections.errors import CorruptWindow, RedisUnavailable
from projections.gathered import Gathered
from projections.listing import IDLE, Found, Lists
from projections.names import Key, parse_key
from projections.persistence import Applied, Checkpoint, Stored, Verdict, Write
from projections.timers import KEEP_TIMER

_STATE = (b"revision", b"offset", b"timestamp", b"hash", b"target", b"layout")
LAYOUT = b"5"
"""How windows lie here, in each partition's state: what another release left is not read, its partitions are folded anew."""
COMPRESS_FROM = 2_048
"""Bytes of a field from which on compression pays."""
CONNECTIONS = 64
"""Connections of one store at most; whoever finds them all in use waits."""
ZSTD = b"\x28\xb5\x2f\xfd"
"""How every zstd frame begins, and no field of a window does."""


class RedisStore:
    """A :class:`projections.persistence.WindowStore` on a Redis or Valkey server (6.2 or later)."""

    def __init__(self, url: str, prefix: str = "threadfold", *, timeout: float = 5.0, compress: bool = False) -> None:
        """Nothing is connected yet.

        Args:
            url: like ``redis://host:6379/0``.
            prefix: what all keys begin with; deployments that share a server take their topics' prefixes.
            timeout: seconds for one answer.
            compress: write the larger fields of windows as zstd; fields of either kind are always read.
        """
        self.url = url
        self.prefix = prefix
        self._packed = _compressed if compress else bytes
        # One that waits: a list asks every partition at once, so some lists side by side are more than the connections there may be.
        pool = aredis.BlockingConnectionPool.from_url(
            url, socket_timeout=timeout, socket_connect_timeout=timeout, max_connections=CONNECTIONS, timeout=timeout
        )
        self._redis = aredis.Redis.from_pool(pool)
        self._apply = self._redis.register_script(files("projections").joinpath("lua/apply.lua").read_text())
        self._fields = Gathered(self._redis, files("projections").joinpath("lua/fields.lua").read_text())
        self._unlink = self._redis.register_script(files("projections").joinpath("lua/unlink.lua").read_text())

    async def close(self) -> None:
        """Close all connections."""
        await self._fields.close()
        await self._redis.aclose()

    async def ping(self) -> dict[str, Any]:
        """What the server says of itself: ``version``, ``maxmemory_policy`` and ``used_memory`` (bytes)."""
        async with self._guarded():
            info = await self._redis.info()
            memory_policy = info.get("maxmemory_policy") or (await self._redis.config_get("maxmemory-policy"))["maxmemory-policy"]
            version = info.get("valkey_version") or info.get("redis_version")
            return {"version": version, "maxmemory_policy": memory_policy, "used_memory": info.get("used_memory")}

    async def checkpoint(self, generation: int, partition: int) -> Checkpoint | None:
        async with self._guarded():
            return _checkpoint(await cast("Awaitable[dict[bytes, bytes]]", self._redis.hgetall(self._state(generation, partition))))

    async def load(self, generation: int, partition: int, keys: list[Key]) -> list[Stored | None]:
        async with self._guarded():
            # One transaction: a batch written in between would give a window and its recent ids of different moments.
            pipe = self._redis.pipeline(transaction=True)
            self._queue_windows(pipe, generation, partition, keys, recents=True)
            return _windows(await pipe.execute(), recents=True)

    async def read(
        self, generation: int, partition: int, keys: list[Key], *, recents: bool = True
    ) -> tuple[Checkpoint | None, list[Stored | None]]:
        async with self._guarded():
            pipe = self._redis.pipeline(transaction=True)
            pipe.hgetall(self._state(generation, partition))
            self._queue_windows(pipe, generation, partition, keys, recents)
            state, *rest = await pipe.execute()
            return _checkpoint(state), _windows(rest, recents)

    async def fields(self, generation: int, partition: int, key: Key, names: list[bytes]) -> tuple[Checkpoint | None, dict[bytes, bytes]]:
        async with self._guarded():
            keys = [self._state(generation, partition), self._window_keys(generation, partition, key)[0]]
            found = await self._fields(keys, names)
            state = {name: value for name, value in zip(_STATE, found, strict=False) if value is not None}
            fields = {name: value for name, value in zip(names, found[len(_STATE) :], strict=True) if value is not None}
            return _checkpoint(state), _plain(fields)

    async def apply(self, generation: int, partition: int, checkpoint: Checkpoint, writes: list[Write]) -> Applied:
        keys = [self._state(generation, partition), self._due(generation, partition), self._timers(generation, partition)]
        args: list[Any] = [checkpoint.revision, checkpoint.offset, checkpoint.timestamp, checkpoint.digest, checkpoint.target, LAYOUT]
        args.append(len(writes))
        lists = Lists()
        for write in writes:
            if write.listing is not None:
                lists.add(write.key, write.listing)
            if write.rests:
                lists.rest(write.key)
            keys += self._window_keys(generation, partition, write.key)
            args += [str(write.key), b"1" if write.reset else b"0"]
            for put, gone in ((write.put, write.gone), (write.recents_put, write.recents_gone)):
                args.append(2 * len(put))
                for name, value in put:
                    args += (name, self._packed(value))
                args += [len(gone), *gone]
            timer = write.timer
            args += (write.due.value, "keep" if timer == KEEP_TIMER else "clear" if timer is None else timer)
        tag = self._tag(generation, partition)
        for listed, times in lists.put.items():
            if times:
                keys.append(f"{tag}:{listed}")
                args += ("ZADD", 2 * len(times))
                for conversation, at_ms in times.items():
                    args += (at_ms, conversation)
        for listed, left in lists.gone.items():
            if left:
                keys.append(f"{tag}:{listed}")
                args += ("ZREM", len(left), *left)
        async with self._guarded():
            verdict, revision, _ = await self._apply(keys=keys, args=args)
            return Applied(Verdict(verdict.decode()), revision.decode())

    async def due(self, generation: int, partition: int, now_ms: int, limit: int) -> list[Key]:
        async with self._guarded():
            names = await self._redis.zrangebyscore(self._due(generation, partition), "-inf", now_ms, start=0, num=limit)
            return [key for key in map(parse_key, names) if key is not None]

    async def requested(self, generation: int, partition: int, keys: list[Key], again_at_ms: int) -> None:
        if keys:
            async with self._guarded():
                # xx: a conversation whose summary was accepted meanwhile must not come back.
                await self._redis.zadd(self._due(generation, partition), {str(key): again_at_ms for key in keys}, xx=True)

    async def timers(self, generation: int, partition: int, now_ms: int, limit: int) -> list[Key]:
        async with self._guarded():
            names = await self._redis.zrangebyscore(self._timers(generation, partition), "-inf", now_ms, start=0, num=limit)
            return [key for key in map(parse_key, names) if key is not None]

    async def put_off(self, generation: int, partition: int, timers: dict[Key, int]) -> None:
        if timers:
            async with self._guarded():
                # xx: a session that was closed meanwhile must not come back.
                await self._redis.zadd(self._timers(generation, partition), {str(key): at for key, at in timers.items()}, xx=True)

    async def listed(self, generation: int, partition: int, name: str, before: Found | None, limit: int) -> list[Found]:
        top = "+inf" if before is None else before.at_ms
        found: list[Found] = []
        at = 0
        async with self._guarded():
            while len(found) < limit:
                # Those of the very time of ``before`` may stand on either side of it.
                key = f"{self._tag(generation, partition)}:{name}"
                answer = await self._redis.zrevrangebyscore(key, top, "-inf", start=at, num=limit + 1, withscores=True)
                rows = cast("list[tuple[bytes, float]]", answer)
                at += len(rows)
                more = [Found(int(at_ms), conversation.decode("utf-8", "replace")) for conversation, at_ms in rows]
                found += [item for item in more if before is None or item < before]
                if len(rows) <= limit:
                    break
        return found[:limit]

    async def idle(self, generation: int, partition: int, before_ms: int, limit: int) -> list[Key]:
        async with self._guarded():
            name = f"{self._tag(generation, partition)}:{IDLE}"
            names = await self._redis.zrangebyscore(name, "-inf", before_ms, start=0, num=limit)
            return [key for key in map(parse_key, names) if key is not None]

    async def drop_partition(self, generation: int, partition: int) -> int:
        dropped = 0
        pattern = f"{self.prefix}:\\{{{generation}:{partition}\\}}:*"
        async with self._guarded():
            # The state first: that fences whoever would still write windows while their keys are looked for.
            dropped += await self._redis.unlink(self._state(generation, partition))
            state, batch = self._state(generation, partition), []
            async for name in self._redis.scan_iter(match=pattern, count=1000):
                batch.append(name)
                if len(batch) >= 500:
                    gone = await self._unlink(keys=[state, *batch])
                    batch = []
                    if gone < 0:
                        return dropped
                    dropped += gone
            if batch:
                dropped += max(0, await self._unlink(keys=[state, *batch]))
        return dropped

    async def drop_generation(self, generation: int, partitions: int) -> int:
        return sum([await self.drop_partition(generation, partition) for partition in range(partitions)])

    def _tag(self, generation: int, partition: int) -> str:
        return f"{self.prefix}:{{{generation}:{partition}}}"

    def _state(self, generation: int, partition: int) -> str:
        return f"{self._tag(generation, partition)}:state"

    def _due(self, generation: int, partition: int) -> str:
        return f"{self._tag(generation, partition)}:due"

    def _timers(self, generation: int, partition: int) -> str:
        return f"{self._tag(generation, partition)}:timers"

    def _window_keys(self, generation: int, partition: int, key: Key) -> list[str]:
        tag = self._tag(generation, partition)
        return [f"{tag}:w:{key}", f"{tag}:r:{key}"]

    def _queue_windows(self, pipe: Any, generation: int, partition: int, keys: list[Key], recents: bool) -> None:
        for key in keys:
            for name in self._window_keys(generation, partition, key)[: 2 if recents else 1]:
                pipe.hgetall(name)

    @asynccontextmanager
    async def _guarded(self) -> AsyncIterator[None]:
        """Name every failure to reach the server, or to be served by it, by its cause."""
        try:
            yield
        except (RedisConnectionError, RedisTimeoutError, OSError) as error:
            raise RedisUnavailable(f"Redis at {_shown(self.url)} does not answer ({_reason(error)}): check that it runs") from error
        except ResponseError as error:
            if "WRONGTYPE" in str(error):
                raise CorruptWindow(
                    f"Redis at {_shown(self.url)} has something else under a key of the windows: the partition is folded anew"
                ) from error
            raise RedisUnavailable(f"Redis at {_shown(self.url)} refused: {error}") from error
        except RedisError as error:
            raise RedisUnavailable(f"Redis at {_shown(self.url)} failed: {error}") from error


def _shown(url: str) -> str:
    """The address without a password."""
    return url.rpartition("@")[2] if "@" in url else url


def _reason(error: BaseException) -> str:
    text = str(error).strip() or type(error).__name__
    return text.splitlines()[0][:160]


def _windows(answers: list[dict[bytes, bytes]], recents: bool) -> list[Stored | None]:
    if not recents:
        return [Stored(_plain(fields), {}) if fields else None for fields in answers]
    return [Stored(_plain(answers[i]), answers[i + 1]) if answers[i] else None for i in range(0, len(answers), 2)]


def _compressed(value: bytes) -> bytes:
    """A field as zstd where that pays: level 3 took 24 us for 4 KB of a real talk, to 37 % of its size; 90 us and 21 % for 32 KB."""
    return bytes(cramjam.zstd.compress(value, level=3)) if len(value) >= COMPRESS_FROM else value


def _plain(fields: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """The fields as they were before they were compressed; what cannot be read stays as it is, and is found out when it is decoded."""
    for name, value in fields.items():
        if value.startswith(ZSTD):
            try:
                fields[name] = bytes(cramjam.zstd.decompress(value))
            except cramjam.DecompressionError:
                fields[name] = value
    return fields


def _checkpoint(state: dict[bytes, bytes]) -> Checkpoint | None:
    if state.get(b"layout") != LAYOUT:
        return None
    try:
        return Checkpoint(
            revision=state[b"revision"].decode(),
            offset=int(state[b"offset"]),
            timestamp=int(state[b"timestamp"]),
            digest=state[b"hash"].decode(),
            target=int(state[b"target"]),
        )
    except (KeyError, ValueError):
        # Nothing, or not a state any more: the partition is folded anew.
        return None
