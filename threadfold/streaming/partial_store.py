"""Assistant text in progress as it is stored in Redis: never in the log, of no generation, lost
with Redis.
"""

from __future__ import annotations

from collections.abc import Sequence
from importlib.resources import files
from typing import Any, NamedTuple
from zlib import crc32

from projections.names import Key, parse_key
from projections.redis.node import Node, RedisErrors, Script
from projections.redis.router import RedisRouter
from threadfold.streaming.partial_repeats import EndedText
from threadfold.streaming.partial_text import Delta

MOST_TEXT = 1 << 20
"""Bytes of one text, in UTF-8."""
SHARDS = 16
"""How many sets of deadlines there are: their conversations' keys share a hash tag each."""
OVERTIME = 600
"""Seconds that a text is stored beyond its time-out if no gateway ends it."""
REMEMBERED, REMEMBERED_BYTES = 600, 16 << 10
"""Seconds for which a text that ended is remembered, and the bytes of its beginning that are."""


class Verdict(NamedTuple):
    """What Redis did with a delta, and the characters, turn and beginning of the text it stores.

    ``name`` is ``ok``, ``begin`` (call again with the log's end), ``gap``, ``overlap`` (a part is
    stored already), ``closing``, ``over``, ``other`` (another turn's text is stored), ``large`` or
    ``erased``.
    """

    name: str
    chars: int
    turn: str
    since: int


class Text(NamedTuple):
    """A text so far; ``since`` is the log's end when it began."""

    turn: str
    since: int
    text: str


class PartialStore:
    """The texts in progress of a deployment. Every method raises :class:`RedisUnavailable` when
    Redis cannot be reached, or refuses.
    """

    def __init__(self, url: str, prefix: str, timeout: float) -> None:
        """Args: ``timeout`` seconds without a delta after which a text may be claimed."""
        self._errors = RedisErrors(url, "a text in progress: delete that key")
        self._prefix = prefix
        self._timeout = timeout
        self.servers = RedisRouter(url, connections=32)
        lua = files("threadfold.streaming")
        self._append, self._read, self._claim, self._close, self._end, self._forget = (
            Script(lua.joinpath(f"partial_{name}.lua").read_text())
            for name in ("append", "read", "claim", "close", "end", "forget")
        )
        self._repeat = Script(lua.joinpath("partial_repeat.lua").read_text())

    async def close_connections(self) -> None:
        """Close all connections."""
        await self.servers.close()

    def channel(self, key: Key) -> str:
        """The channel on which a conversation's deltas are published."""
        return f"{self._prefix}:partial:{key}"

    async def append(
        self, key: Key, turn: str, delta: str, offset: int | None, since: int | None
    ) -> Verdict:
        """Add a delta to the text of ``turn``, and publish it; ``since`` begins a text where there
        is none.
        """
        data = delta.encode()
        limits = [int(self._timeout * 1000), int(4 * self._timeout + OVERTIME), MOST_TEXT]
        args: list[Any] = [
            turn,
            data,
            len(delta),
            _or_empty(offset),
            _or_empty(since),
            *limits,
            str(key),
            self.channel(key),
        ]
        with self._errors:
            name, chars, stored, began = await self._run(self._append, self._keys(key), args)
        return Verdict(name.decode(), int(chars), stored.decode(), int(began or -1))

    async def read(self, key: Key) -> Text | None:
        """The text in progress, None when there is none."""
        with self._errors:
            return _text(await self._run(self._read, self._keys(key)[:2]))

    async def claim(self, seconds: float, limit: int = 50) -> list[tuple[Key, int]]:
        """Claim conversations whose text timed out. Returns them with the ends of the claims in ms;
        until then no other gateway gets them.
        """
        found: list[tuple[Key, int]] = []
        with self._errors:
            for shard in range(SHARDS):
                members, until = await self._run(
                    self._claim, [self._deadlines(shard)], [int(seconds * 1000), limit]
                )
                keys = [parse_key(member) for member in members]
                found += [(key, int(until)) for key in keys if key is not None]
        return found

    async def close(
        self,
        key: Key,
        *,
        claimed: int | None = None,
        text: tuple[str, int] | None = None,
        superseded: bool = False,
    ) -> Text | None:
        """Close a text, so that it takes nothing more, and return it. None when something came
        since the claim, or another text is stored.

        Args:
            superseded: a later turn replaces this one: Redis takes nothing more of this turn.
        """
        turn, since = text if text is not None else ("", None)
        with self._errors:
            args: list[Any] = [
                str(key),
                _or_empty(claimed),
                turn,
                _or_empty(since),
                "1" if superseded else "",
            ]
            return _text(await self._run(self._close, self._keys(key), args))

    async def end(self, key: Key, turn: str, since: int, *, dropped: bool = False) -> bool:
        """Delete a text that has ended. Subscribers see its message, or (``dropped``) a notice on
        the pub/sub channel. Of a text with a message Redis remembers the beginning.
        """
        args: list[Any] = [
            str(key),
            turn,
            since,
            self.channel(key),
            "1" if dropped else "",
            REMEMBERED_BYTES,
            REMEMBERED,
        ]
        with self._errors:
            return bool(await self._run(self._end, self._keys(key), args))

    async def ended(self, key: Key, turn: str) -> list[EndedText]:
        """The texts of a turn that ended with a message in the last ten minutes."""
        at = self._keys(key)[4]
        with self._errors:
            found: list[bytes] = await self.servers.run(at, lambda node: _entries(node, at))
        return [text for text in map(EndedText.parse, found) if text.turn == turn]

    async def repeated(self, key: Key, text: EndedText, upto: int) -> None:
        """Note that the first ``upto`` characters of a text that ended were said again."""
        with self._errors:
            await self._run(self._repeat, self._keys(key)[4:], [text.stored(), text.stored(upto)])

    async def forget(self, key: Key, erased: bool = False) -> bool:
        """Delete everything of a conversation; returns whether there was anything. Of one that was
        ``erased``, what other gateways have under way is not taken for an hour: they know it then.
        """
        args = [str(key), self.channel(key), "1" if erased else ""]
        with self._errors:
            return bool(await self._run(self._forget, self._keys(key), args))

    async def _run(self, script: Script, keys: list[str], args: Sequence[Any] = ()) -> Any:
        return await self.servers.run(keys[0], lambda node: script(node, keys, args))

    def _keys(self, key: Key) -> list[str]:
        shard = crc32(str(key).encode()) % SHARDS
        of_one = f"{self._prefix}:partial:{{p{shard}}}:{key}"
        meta, text, over, ended = (f"{of_one}:{part}" for part in ("meta", "text", "over", "ended"))
        return [meta, text, self._deadlines(shard), over, ended]

    def _deadlines(self, shard: int) -> str:
        return f"{self._prefix}:partial:{{p{shard}}}:deadlines"


async def _entries(node: Node, at: str) -> Any:
    return await node.redis.lrange(at, 0, -1)


def parse_message(message: bytes) -> tuple[bool, Delta]:
    """What was published: whether it is a delta (else the end of a text without a message), and of
    which text.

    Raises:
        ValueError: the message is neither.
    """
    kind, since, offset, turn, text = message.decode().split("\n", 4)
    if kind not in ("said", "dropped"):
        raise ValueError(f"{kind[:20]!r} is no message of this channel")
    return kind == "said", Delta(turn, int(since), int(offset), text)


def _text(found: list[Any]) -> Text | None:
    return Text(found[0].decode(), int(found[1]), found[2].decode()) if found else None


def _or_empty(value: int | None) -> str:
    return "" if value is None else str(value)
