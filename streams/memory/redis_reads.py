"""What is read of a memory store in Redis."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from projections.memory.resolution import Record
from projections.names import Key
from streams.memory.kept import Code, Kept, LogState, Place, Size, Taught
from streams.memory.key_reads import kept_from, records_of
from streams.memory.key_words import code_of
from streams.memory.redis_keys import StoreKeys

T = TypeVar("T")
PAGE = 200
"""Records that are read at once."""
_state = msgspec.msgpack.Decoder(LogState).decode
_taught = msgspec.msgpack.Decoder(Taught).decode


class ReadByKey:
    """What a store has, read through a client or a pipeline of redis-py."""

    def __init__(self, client: Any, keys: StoreKeys) -> None:
        self._client = client
        self._keys = keys

    def logs(self, logs: Collection[Key]) -> dict[Key, LogState]:
        found = self._values(list(logs), lambda log: self._keys("b", str(log)))
        return {log: _state(value) for log, value in found.items()}

    def taught(self, logs: Collection[Key]) -> dict[Key, dict[int, Taught]]:
        answers = self._each([("HGETALL", self._keys("g", str(log))) for log in logs])
        return {
            log: {int(offset): _taught(value) for offset, value in pairs(answer)}
            for log, answer in zip(logs, answers, strict=True)
            if answer
        }

    def kept(self, places: Collection[Place]) -> dict[Place, Kept]:
        answers = self._each([("HGET", self._keys.of_place(one), "kept") for one in places])
        return {
            place: kept_from(value)
            for place, value in zip(places, answers, strict=True)
            if value is not None
        }

    def records(self, places: Collection[Place]) -> list[list[Record]]:
        """What ids come to now, in their order."""
        answers = self._each([("HGET", self._keys.of_place(one), "records") for one in places])
        return [[] if value is None else records_of(value) for value in answers]

    def fusing(self, places: Collection[Place]) -> set[Place]:
        """The composites that some of these ids of one tenant are sources of."""
        answers = self._each([("SMEMBERS", self._keys.fusing(one)) for one in places])
        return {
            (tenant, member.decode())
            for (tenant, _), answer in zip(places, answers, strict=True)
            for member in answer
        }

    def tenants(self) -> list[str]:
        """The tenants that there are."""
        return [name.decode() for name in self._client.hvals(self._keys("tenants"))]

    def by_time(
        self, tenant: str, user: str | None, after: tuple[int, str] | None, *, older: bool
    ) -> Iterator[list[tuple[int, str]]]:
        """What a tenant has, or a user, by time, as ``(created, id)``, a page at a time, from
        behind such a place on. What comes or goes meanwhile may be missing, nothing comes twice.
        """
        name, offset, seen = self._keys.by_time(tenant, user), 0, set[str]()
        first, last = ("-inf", "+inf") if after is None else (after[0], after[0])
        while True:
            rows = (
                self._client.zrevrangebyscore(name, last, "-inf", offset, PAGE, withscores=True)
                if older
                else self._client.zrangebyscore(name, first, "+inf", offset, PAGE, withscores=True)
            )
            if not rows:
                return
            offset += len(rows)
            found = [(int(score), member.decode()) for member, score in rows]
            if after is not None:
                found = [one for one in found if (one < after if older else one > after)]
            yield [one for one in found if one[1] not in seen]
            seen.update(memory_id for _, memory_id in found)

    def sizes(self, codes: Collection[Code]) -> dict[Code, Size]:
        found = self._values(list(codes), lambda code: self._keys("z", code_of(*code)))
        return {code: _size(value) for code, value in found.items()}

    def next_text(self) -> int:
        return int(self._each([("GET", self._keys("n"))])[0] or 1)

    def checkpoints(self) -> dict[int, int]:
        (answer,) = self._each([("HGETALL", self._keys("c"))])
        return {int(partition): int(at) for partition, at in pairs(answer)}

    def models(self) -> dict[str, int]:
        """The models that have vectors, and how long these are."""
        (answer,) = self._each([("HGETALL", self._keys("m"))])
        return {name.decode(): int(size) for name, size in pairs(answer)}

    def _values(self, names: Sequence[T], key: Any) -> dict[T, bytes]:
        if not names:
            return {}
        (values,) = self._each([("MGET", *map(key, names))])
        return {name: value for name, value in zip(names, values, strict=True) if value is not None}

    def _each(self, commands: Sequence[tuple[Any, ...]]) -> list[Any]:
        if not commands:
            return []
        pipe = self._client.pipeline(transaction=False)
        for command in commands:
            pipe.execute_command(*command)
        return list(pipe.execute())


def pairs(answer: Any) -> list[tuple[bytes, bytes]]:
    """The fields and values of a hash."""
    if isinstance(answer, Mapping):
        return list(answer.items())
    return list(zip(answer[::2], answer[1::2], strict=True))


def _size(value: bytes) -> Size:
    texts, _, words = value.partition(b" ")
    return int(texts), int(words)
