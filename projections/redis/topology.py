"""Which server keeps a key: always the same one, the one that sentinels name, or the one that has
the key's slot of a cluster.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Protocol

import redis.asyncio as aredis
from redis.crc import key_slot
from redis.exceptions import MovedError, RedisError, ResponseError

from projections.redis.address import Address

SLOTS = 16384
ANSWER = 1.0
"""Seconds within which a sentinel, or a node, tells where keys are; the next one is asked then."""


class Topology(Protocol):
    """Where keys are, as far as it is known; ``host:port``, or the URL of the one server."""

    def place_of(self, key: str) -> str | None:
        """The server of a key, None when it is not known (yet)."""

    def places(self) -> list[str]:
        """All servers that keep keys, as far as they are known."""

    async def look(self, suspects: set[str]) -> None:
        """Find out anew, asking ``suspects`` last; raises redis-py's errors when nobody can
        tell.
        """

    def moved(self, error: MovedError) -> None:
        """Take in what a redirect tells."""

    async def close(self) -> None:
        """Close the connections it has of its own."""


class OneServer:
    """The server that the address names."""

    def __init__(self, place: str) -> None:
        self._place = place

    def place_of(self, key: str) -> str | None:
        return self._place

    def places(self) -> list[str]:
        return [self._place]

    async def look(self, suspects: set[str]) -> None:
        """There is nothing to find out."""

    def moved(self, error: MovedError) -> None:
        """A node of a cluster, addressed as one server: the error says so."""
        raise ResponseError(f"it is a node of a cluster ({error}): name it as redis+cluster://…")

    async def close(self) -> None:
        """There is nothing to close."""


class SentinelMaster:
    """The master of a service: all sentinels are asked at once, and the one with the latest
    configuration decides.
    """

    def __init__(self, address: Address) -> None:
        self._address = address
        self._place: str | None = None
        self._sentinels: dict[str, Any] = {
            place: aredis.Redis.from_url(
                address.sentinel_url(place),
                protocol=2,
                socket_timeout=ANSWER,
                socket_connect_timeout=ANSWER,
                max_connections=4,
            )
            for place in address.nodes
        }

    def place_of(self, key: str) -> str | None:
        return self._place

    def places(self) -> list[str]:
        return [self._place] if self._place else []

    async def look(self, suspects: set[str]) -> None:
        answers = await asyncio.gather(*map(self._ask, self._sentinels), return_exceptions=True)
        places = [answer for answer in answers if isinstance(answer, tuple)]
        if places:
            self._place = max(places)[1]
            return
        why = next((answer for answer in answers if isinstance(answer, RedisError)), None)
        raise why or ResponseError(f"no sentinel knows a master called {self._address.service}")

    async def _ask(self, place: str) -> tuple[int, str]:
        async with asyncio.timeout(ANSWER):
            answer = await self._sentinels[place].execute_command(
                "SENTINEL", "MASTER", self._address.service
            )
        fields = _fields(answer)
        return int(fields["config-epoch"]), _place(fields["ip"], int(fields["port"]))

    def moved(self, error: MovedError) -> None:
        raise ResponseError(f"it is a node of a cluster ({error}): name it as redis+cluster://…")

    async def close(self) -> None:
        await asyncio.gather(
            *(sentinel.aclose() for sentinel in self._sentinels.values()), return_exceptions=True
        )


class ClusterSlots:
    """The master of each slot, as the cluster's nodes tell (``CLUSTER SLOTS``) and as redirects
    correct.
    """

    def __init__(self, address: Address, client: Callable[[str], Awaitable[Any]]) -> None:
        """Args: ``client`` gives a client of the server at ``host:port``; it is not closed here."""
        self._seeds = address.nodes
        self._client = client
        self._slots: list[str | None] = [None] * SLOTS

    def place_of(self, key: str) -> str | None:
        return self._slots[key_slot(key.encode())]

    def places(self) -> list[str]:
        return sorted({place for place in self._slots if place is not None})

    async def look(self, suspects: set[str]) -> None:
        known = dict.fromkeys([*self.places(), *self._seeds])
        last: BaseException = ResponseError("the cluster has no node")
        for place in sorted(known, key=suspects.__contains__):
            try:
                async with asyncio.timeout(ANSWER):
                    client = await self._client(place)
                    self._slots = _slots(await client.execute_command("CLUSTER", "SLOTS"), place)
                return
            except (RedisError, OSError) as error:  # TimeoutError among them: the next one is asked
                suspects.add(place)
                last = error
        try:
            raise last
        finally:
            del last  # its traceback refers to this frame

    def moved(self, error: MovedError) -> None:
        if error.host:
            self._slots[error.slot_id] = _place(error.host, error.port)

    async def close(self) -> None:
        """There is nothing to close: clients belong to who gave them."""


def _slots(answer: list[Any], asked: str) -> list[str | None]:
    """Each slot's master; a node that does not know its own address is where it was asked."""
    slots: list[str | None] = [None] * SLOTS
    for first, last, master, *_ in answer:
        host = _text(master[0]) if master[0] is not None else ""
        place = (
            _place(host, int(master[1]))
            if host not in ("", "?")
            else f"{asked.rpartition(':')[0]}:{int(master[1])}"
        )
        slots[int(first) : int(last) + 1] = [place] * (int(last) + 1 - int(first))
    return slots


def _fields(answer: Any) -> dict[str, str]:
    pairs = (
        answer.items() if isinstance(answer, dict) else zip(answer[::2], answer[1::2], strict=True)
    )
    return {_text(name): _text(value) for name, value in pairs}


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)


def _place(host: str, port: int) -> str:
    return f"[{host}]:{port}" if ":" in host and not host.startswith("[") else f"{host}:{port}"
