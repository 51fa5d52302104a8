"""Windows in Redis: the one module (with ``*.lua``) that knows how they lie there.

All keys of a generation's partition share one hash tag, so a batch is one atomic script call and a
read one transaction, in a cluster too. Nothing stored here grows with a conversation's length, and
nothing here is the truth: it can be lost at any moment.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import nullcontext
from importlib.resources import files
from typing import Any, TypeVar, cast

from projections.fold.timers import KEEP_TIMER
from projections.names import Key, parse_key
from projections.redis.deadlines import Deadlines
from projections.redis.node import Node, RedisErrors, Script, server_info
from projections.redis.read_turns import ReadTurns, no_turns, rest_after
from projections.redis.router import RedisRouter
from projections.redis.values import (
    LAYOUT,
    STATE,
    at_of,
    by_key,
    checkpoint_of,
    compressed,
    copy_commands,
    list_commands,
    plain,
    rollbacks_text,
    stored_windows,
)
from projections.storage.layout import HEAD
from projections.storage.listing import QUARANTINED, Found, Lists
from projections.storage.protocol import WindowReader
from projections.storage.records import Applied, Checkpoint, Index, Stored, Verdict, Write
from projections.storage.stubs import STUB

T = TypeVar("T")


class RedisStore(Deadlines):
    """A :class:`projections.storage.protocol.WindowStore` on a Redis or Valkey server (6.2 or
    later).
    """

    def __init__(
        self,
        url: str,
        prefix: str = "threadfold",
        *,
        timeout: float = 5.0,
        compress: bool = False,
        turns: ReadTurns = no_turns,
    ) -> None:
        """Nothing is connected yet.

        Args:
            url: like ``redis://host:6379/0`` (``projections.redis.address``).
            prefix: what all keys begin with; deployments that share a server take their topics'
                prefixes.
            timeout: seconds for one answer.
            compress: write the larger fields of windows as zstd; fields of either kind are always
                read.
            turns: what a tenant's read of a whole window, or of large fields, is made within.
        """
        self.url = url
        self.prefix = prefix
        self._set_aside = f"{prefix}:set-aside"
        self.reader: WindowReader = self
        self._packed = compressed if compress else bytes
        self._turns = turns
        self.servers = RedisRouter(url, timeout=timeout)
        self._errors = RedisErrors(
            url, "a key of the windows: mend it with `threadfold verify --repair`"
        )
        lua = files("projections.redis")
        self._apply, self._unlink = (
            Script(lua.joinpath(f"{name}.lua").read_text()) for name in ("apply", "unlink")
        )
        self._hold = Script(lua.joinpath("hold.lua").read_text())
        self._fields = lua.joinpath("fields.lua").read_text()

    async def close(self) -> None:
        """Close all connections."""
        await self.servers.close()

    async def ping(self) -> dict[str, Any]:
        """What the servers report: see :func:`projections.redis.node.server_info`."""
        with self._errors:
            return await server_info(await self.servers.each())

    async def checkpoint(self, generation: int, partition: int) -> Checkpoint | None:
        return (await self._some(generation, partition, [], []))[0]

    async def read(
        self, generation: int, partition: int, keys: list[Key], *, recent_ids: bool = True
    ) -> tuple[Checkpoint | None, list[Stored | None]]:
        name = self._state(generation, partition)

        async def work(node: Node) -> tuple[Checkpoint | None, list[Stored | None]]:
            # One transaction: a batch written in between would give a window and its recent ids of
            # different moments.
            pipe = node.redis.pipeline(transaction=True)
            pipe.hgetall(name)
            for key in keys:
                for hash_key in self._window_keys(generation, partition, key)[: 1 + recent_ids]:
                    pipe.hgetall(hash_key)
            state, *rest = await pipe.execute()
            return self._checkpoint(state, node), stored_windows(rest, recent_ids)

        async with self._turns(keys[0].tenant) if keys else nullcontext() as turn:
            checkpoint, found = await self._run(name, work)
            rest_after(turn, [stored.fields for stored in found if stored is not None])
            return checkpoint, found

    async def fields(
        self, generation: int, partition: int, key: Key, names: list[bytes]
    ) -> tuple[Checkpoint | None, dict[bytes, bytes]]:
        window = self._window_keys(generation, partition, key)[0]
        checkpoint, fields, large = await self._some(generation, partition, [window], names)
        if not large:
            return checkpoint, fields
        state_key = self._state(generation, partition)

        async def work(node: Node) -> tuple[Checkpoint | None, dict[bytes, bytes]]:
            pipe = node.redis.pipeline(transaction=True)
            pipe.hgetall(state_key)
            pipe.hmget(window, names)
            state, values = await pipe.execute()
            return self._checkpoint(state, node), plain(_present(names, values))

        async with self._turns(key.tenant) as turn:
            checkpoint, fields = await self._run(state_key, work)
            rest_after(turn, [fields])
            return checkpoint, fields

    async def head(
        self, generation: int, partition: int, key: Key
    ) -> tuple[Checkpoint | None, Stored | None]:
        keys = self._window_keys(generation, partition, key)
        checkpoint, fields, found = await self._some(generation, partition, keys, [HEAD, STUB])
        id_blocks = plain(dict(zip(found[::2], found[1::2], strict=True)))
        return checkpoint, Stored(fields, id_blocks) if fields else None

    def _some(
        self, generation: int, partition: int, keys: list[str], names: list[bytes]
    ) -> Awaitable[tuple[Checkpoint | None, dict[bytes, bytes], Any]]:
        """Checkpoint, and (where ``keys`` are given) some fields of a window and its recent ids, or
        whether the fields are too large (``fields.lua``).
        """
        state_key = self._state(generation, partition)

        async def work(node: Node) -> tuple[Checkpoint | None, dict[bytes, bytes], Any]:
            found = await node.gathered(self._fields)([state_key, *keys], names)
            first, last = len(STATE), len(STATE) + len(names)
            state = _present(STATE, found[:first])
            fields = _present(names, found[first:last])
            more = found[last] if len(found) > last else []
            return self._checkpoint(state, node), plain(fields), more

        return self._run(state_key, work)

    async def copies(self, generation: int, partition: int, key: Key) -> list[bytes]:
        name = self._copies(generation, partition, key)

        async def work(node: Node) -> list[bytes]:
            return cast("list[bytes]", await node.redis.hvals(name))

        return await self._run(name, work)

    async def apply(
        self, generation: int, partition: int, checkpoint: Checkpoint, writes: list[Write]
    ) -> Applied:
        keys = [
            self._state(generation, partition),
            self._due(generation, partition),
            self._timers(generation, partition),
        ]
        args: list[Any] = [
            checkpoint.revision,
            checkpoint.offset,
            checkpoint.timestamp,
            checkpoint.digest,
            checkpoint.target,
            LAYOUT,
            checkpoint.ahead,
            rollbacks_text(checkpoint),
            checkpoint.withheld_until,
        ]
        args += (len(writes), int(not all(write.frees for write in writes)))
        lists = Lists()
        for write in writes:
            if write.listing is not None:
                lists.add(write.key, write.listing)
            if write.rests:
                lists.rest(write.key)
            keys += self._window_keys(generation, partition, write.key)
            args += [str(write.key), b"2" if write.anew else b"1" if write.reset else b"0"]
            for put, gone in ((write.put, write.gone), (write.id_blocks_put, write.id_blocks_gone)):
                args.append(2 * len(put))
                for name, value in put:
                    args += (name, self._packed(value))
                args += [len(gone), *gone]
            timer = write.timer
            args += (
                write.due.value,
                "keep" if timer == KEEP_TIMER else "clear" if timer is None else timer,
            )
        tag = self._tag(generation, partition)
        commands = list_commands(lists, f"{tag}:")
        for write in writes:
            if write.copies:
                copies = self._copies(generation, partition, write.key)
                commands += copy_commands(write.copies, copies)
        for changed, command, arguments in commands:
            keys.append(changed)
            args += (command, len(arguments), *arguments)

        async def work(node: Node) -> Applied:
            # What another process wrote last stays marked so, unless whoever writes knows that it
            # is current.
            server = "" if checkpoint.unverified else node.server
            verdict, revision, _ = await self._apply(node, keys, [server, *args])
            return Applied(Verdict(verdict.decode()), revision.decode())

        return await self._run(keys[0], work)

    async def listed(
        self,
        generation: int,
        partition: int,
        name: str,
        before: Found | None,
        limit: int,
        since: int = 0,
    ) -> list[Found]:
        # Infinity is the time of nothing that we listed.
        top = "(+inf" if before is None else before.at_ms
        key = f"{self._tag(generation, partition)}:{name}"

        async def work(node: Node) -> list[Found]:
            found: list[Found] = []
            at = 0
            while len(found) < limit:
                # Those of the very time of ``before`` may stand on either side of it.
                answer = await node.redis.zrevrangebyscore(
                    key, top, since, start=at, num=limit + 1, withscores=True
                )
                rows = cast("list[tuple[bytes, float]]", answer)
                at += len(rows)
                more = [
                    Found(int(at_ms), conversation.decode("utf-8", "replace"))
                    for conversation, at_ms in rows
                ]
                found += [item for item in more if before is None or item < before]
                if len(rows) <= limit:
                    break
            return found[:limit]

        return await self._run(key, work)

    async def conversations(self, generation: int, partition: int) -> set[Key]:
        begin = f"{self._tag(generation, partition)}:w:".encode()

        async def work(node: Node) -> list[bytes]:
            return [
                name
                async for name in node.redis.scan_iter(
                    match=self._pattern(generation, partition, "w:*"), count=1000
                )
            ]

        names = await self._run(self._state(generation, partition), work)
        return {key for name in names if (key := parse_key(name[len(begin) :])) is not None}

    async def index(self, generation: int, partition: int) -> tuple[Checkpoint | None, Index]:
        begin = len(f"{self._tag(generation, partition)}:")

        async def work(node: Node) -> tuple[Checkpoint | None, Index]:
            lists: list[bytes] = []
            for kind in ("recent:*", "waiting:*", "user:*", "channel:*", "state:*", QUARANTINED):
                lists += [
                    name
                    async for name in node.redis.scan_iter(
                        match=self._pattern(generation, partition, kind), count=1000
                    )
                ]
            pipe = node.redis.pipeline(transaction=True)
            pipe.hgetall(self._state(generation, partition))
            names: list[str | bytes] = [
                self._due(generation, partition),
                self._timers(generation, partition),
                *lists,
            ]
            for name in names:
                pipe.zrange(name, 0, -1, withscores=True)
            state, due, timers, *rest = await pipe.execute()
            found = {
                name[begin:].decode(): {
                    member.decode("utf-8", "replace"): at_of(at) for member, at in rows
                }
                for name, rows in zip(lists, rest, strict=True)
            }
            return self._checkpoint(state, node), Index(by_key(due), by_key(timers), found)

        return await self._run(self._state(generation, partition), work)

    async def drop_partition(self, generation: int, partition: int) -> int:
        state = self._state(generation, partition)
        pattern = self._pattern(generation, partition, "*")
        dropped = 0

        async def work(node: Node) -> None:
            nonlocal dropped
            # The state first: that fences whoever would still write windows while their keys are
            # looked for.
            dropped += await node.redis.unlink(state)
            batch: list[str] = []
            # All keys of the tag are on this server, in a cluster too.
            async for name in node.redis.scan_iter(match=pattern, count=1000):
                batch.append(name)
                if len(batch) >= 500:
                    gone = await self._unlink(node, [state, *batch])
                    batch = []
                    if gone < 0:
                        return
                    dropped += gone
            if batch:
                dropped += max(0, await self._unlink(node, [state, *batch]))

        await self._run(state, work)
        return dropped

    async def drop_generation(self, generation: int, partitions: int) -> int:
        return sum(
            [await self.drop_partition(generation, partition) for partition in range(partitions)]
        )

    async def hold(self, generation: int, holder: str, seconds: float) -> bool:
        key = f"{self.prefix}:{{{generation}:held}}"

        async def work(node: Node) -> bool:
            return bool(await self._hold(node, [key], [holder, int(seconds * 1000)]))

        return await self._run(key, work)

    async def count_set_aside(self, counts: Mapping[int, int]) -> None:
        async def work(node: Node) -> None:
            for partition, records in counts.items():
                await node.redis.hincrby(self._set_aside, str(partition), records)

        await self._run(self._set_aside, work)

    async def set_aside(self) -> dict[int, int]:
        async def work(node: Node) -> dict[Any, Any]:
            return dict(await node.redis.hgetall(self._set_aside))

        found = await self._run(self._set_aside, work)
        return {int(partition): int(records) for partition, records in found.items()}

    def _checkpoint(self, state: dict[bytes, bytes], node: Node) -> Checkpoint | None:
        checkpoint = checkpoint_of(state, node)
        if checkpoint is not None and checkpoint.unverified:
            self.servers.doubt(node)
        return checkpoint

    def _pattern(self, generation: int, partition: int, names: str) -> str:
        return f"{self.prefix}:\\{{{generation}:{partition}\\}}:{names}"

    def _tag(self, generation: int, partition: int) -> str:
        return f"{self.prefix}:{{{generation}:{partition}}}"

    def _state(self, generation: int, partition: int) -> str:
        return f"{self._tag(generation, partition)}:state"

    def _copies(self, generation: int, partition: int, key: Key) -> str:
        return f"{self._tag(generation, partition)}:copies:{key}"

    def _window_keys(self, generation: int, partition: int, key: Key) -> list[str]:
        tag = self._tag(generation, partition)
        return [f"{tag}:w:{key}", f"{tag}:r:{key}"]

    async def _run(self, key: str, work: Callable[[Node], Awaitable[T]]) -> T:
        """Do something at the server in charge of a key, its failures named by their cause."""
        with self._errors:
            return await self.servers.run(key, work)


def _present(names: Sequence[bytes], values: Sequence[bytes | None]) -> dict[bytes, bytes]:
    """The values that are there, by name."""
    return {n: v for n, v in zip(names, values, strict=True) if v is not None}
