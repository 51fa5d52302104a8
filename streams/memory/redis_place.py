"""Where the memory store of a deployment lies in Redis: which store counts, and who feeds it.

``BASE:live`` holds the number of the store that counts; another one is built beside it and takes
its place in one step. ``BASE:feeding`` is a lease: the process that holds it feeds the live store.
What it writes is fenced: the transaction sees that the lease is its own, that the store is still
the live one, and that its checkpoints are where this process left them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext, suppress
from typing import Any, TypeVar
from uuid import uuid4

from projections.errors import DataFolderInUse, Healing, ThreadfoldError
from projections.redis.search import NotAsExpected, SearchServer
from streams.memory.redis_keys import INDEX, StoreKeys
from streams.memory.redis_reads import ReadByKey

T = TypeVar("T")
LEASE = 5.0
"""Seconds for which a process that said nothing more still holds the lease."""
LOOK_EVERY = 0.5
"""Seconds between two looks at which store is the live one."""
TRIES = 3
"""Times that something is written, if others write the same keys just then."""
_MOVED = "the memory store in Redis moved on under who fed it: it is fed from where it is"
_HOLD = """
if redis.call('SET', KEYS[1], ARGV[1], 'NX', 'PX', ARGV[2]) then return 1 end
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
"""
_LET_GO = "if redis.call('GET', KEYS[1]) == ARGV[1] then return redis.call('DEL', KEYS[1]) end"
AT_ONCE = 1_000
"""Keys that are deleted at once."""


def base_of(prefix: str) -> str:
    """What all keys of a deployment's memory stores begin with."""
    return f"{prefix}:{{memories}}"


class StorePlace:
    """The store that counts, or one that is being built. Calls may come from any thread."""

    def __init__(self, url: str, prefix: str, *, building: bool = False) -> None:
        """Args: ``prefix`` is the deployment's."""
        self.base = base_of(prefix)
        self.server = SearchServer(url, f"{self.base}:live")
        self._token = uuid4().hex
        self._lock = threading.Lock()
        self._writing = threading.Lock()
        self._building = building
        self._keys: StoreKeys | None = None
        self._looked = 0.0
        self._leased = False
        self._asked: set[str] = set()
        """The leases that this process may hold."""
        self._done: dict[int, int] | None = None

    @property
    def keys(self) -> StoreKeys:
        """Those of the live store, which is made where there is none; or of the one being built."""
        with self._lock:
            old = time.monotonic() >= self._looked + LOOK_EVERY
            if self._keys is None or (old and not self._building):
                number = self._new() if self._building else self._live()
                self._looked = time.monotonic()
                if self._keys is None or self._keys.number != number:
                    self._keys = StoreKeys(self.base, number)
                    self._done = None
            return self._keys

    def check(self) -> None:
        """See that the server has the query engine, and make the index anew if it is lost.

        Raises:
            SearchUnavailable: it has none, or one that is too old.
        """
        self.server.check()
        keys = self.keys
        self.server.make_index(keys.records, keys("r", ""), INDEX)

    @property
    def exists(self) -> bool:
        """Whether there is a store that counts."""
        return bool(self.server.call(lambda client: client.exists(f"{self.base}:live")))

    def read(self, work: Callable[[Any, StoreKeys], T]) -> T:
        """Read with a client of redis-py."""
        keys = self.keys
        return self.server.call(lambda client: work(client, keys))

    def write(
        self,
        watched: tuple[str, ...],
        prepare: Callable[[Any, StoreKeys], Mapping[int, int] | None],
        fill: Callable[[Any, StoreKeys], None],
    ) -> None:
        """Write what ``fill`` queues, fenced. ``prepare`` reads what it needs, and returns the
        checkpoints after it where they move.

        Raises:
            Healing: this process does not feed the store any more, or not from where it is.
        """
        keys = self.keys
        moved: Mapping[int, int] | None = None
        found: dict[int, int] = {}

        def check(client: Any) -> None:
            nonlocal moved, found
            found = ReadByKey(client, keys).checkpoints()
            at_its_place = self._done is None or found == self._done
            if not at_its_place or not (self._building or self._feeds(client, keys)):
                raise Healing(_MOVED)
            moved = prepare(client, keys)

        # Who feeds the live store renews its lease all the time: a build is not held up by it.
        shared = () if self._building else (f"{self.base}:live", self._lease)
        names = (*shared, *map(keys, ("c", "n", *watched)))
        with self._writing:
            try:
                for left in range(TRIES - 1, -1, -1):
                    with suppress(NotAsExpected) if left else nullcontext():
                        self.server.transaction(names, check, lambda pipe: fill(pipe, keys))
                        break
            except BaseException as error:
                self.forget()  # unknown whether it was written
                if isinstance(error, NotAsExpected):
                    raise Healing(_MOVED) from None
                raise
            if moved is not None:
                self._done = {**found, **moved}

    def _feeds(self, client: Any, keys: StoreKeys) -> bool:
        """Whether this store is the live one, and no other process has the lease."""
        live, leased = client.mget(f"{self.base}:live", self._lease)
        is_live = live is not None and int(live) == keys.number
        return is_live and (not self._leased or leased == self._token.encode())

    def forget(self) -> None:
        """Read anew which store counts, and where it is."""
        with self._lock:
            self._looked, self._done = 0.0, None

    # -- who feeds

    @property
    def _lease(self) -> str:
        return f"{self.base}:feeding"

    def hold(self, what: str = "feeding") -> bool:
        """Become, or stay, the one process that feeds the live store, or makes its vectors; False
        while another is.
        """
        name, milliseconds = f"{self.base}:{what}", int(LEASE * 1000)
        self._asked.add(name)
        held = bool(
            self.server.call(lambda c: c.eval(_HOLD, 1, name, self._token, str(milliseconds)))
        )
        if name == self._lease and held != self._leased:
            self.forget()
            self._leased = held
        return held

    def let_go(self) -> None:
        """Let another process feed at once, and make vectors; after a few seconds it does anyway.
        Redis is asked once, also if it does not answer: a process that ends has no time for more.
        """
        self._leased = False
        names, self._asked = self._asked, set()
        with suppress(ThreadfoldError):
            for name in names:
                self._delete_own(name)

    def close(self) -> None:
        """Let go, and close all connections."""
        self.let_go()
        self.server.close()

    def _delete_own(self, name: str) -> None:
        self.server.call(lambda client: client.eval(_LET_GO, 1, name, self._token))

    # -- which store counts

    def _live(self) -> int:
        found = self.server.call(lambda client: client.get(f"{self.base}:live"))
        if found is not None:
            return int(found)
        number = self._new()
        self.server.call(lambda client: client.set(f"{self.base}:live", number, nx=True))
        return int(self.server.call(lambda client: client.get(f"{self.base}:live")))

    def _new(self) -> int:
        number = int(self.server.call(lambda client: client.incr(f"{self.base}:last")))
        keys = StoreKeys(self.base, number)
        self.server.make_index(keys.records, keys("r", ""), INDEX)
        self.server.call(lambda client: client.sadd(f"{self.base}:stores", number))
        return number

    def drop(self) -> None:
        """Take an empty store in place of this one, and delete this one."""
        before = self.keys.number
        with self._lock:
            number = self._new()
            if not self._building:
                self.server.call(lambda client: client.set(f"{self.base}:live", number))
            self._keys, self._done = StoreKeys(self.base, number), None
        self.delete(before)

    def switch(self) -> None:
        """Let what was built be the live one."""
        number = self.keys.number
        self.server.call(lambda client: client.set(f"{self.base}:live", number))

    def begin_building(self) -> None:
        """Take the one right to build, for a minute; :meth:`go_on_building` keeps it. What a broken
        off build left is deleted.

        Raises:
            DataFolderInUse: another process builds one.
        """
        taken = self.server.call(
            lambda client: client.set(self._build, self._token, nx=True, px=60_000)
        )
        if not taken:
            raise DataFolderInUse(
                f"another process builds a memory store in Redis ({self._build}): wait for it, or a"
                " minute after it has ended"
            )
        self.tidy()

    def go_on_building(self) -> None:
        """Keep the right to build."""
        self.server.call(lambda client: client.pexpire(self._build, 60_000))

    def end_building(self) -> None:
        """Let others build."""
        self._delete_own(self._build)

    @property
    def _build(self) -> str:
        return f"{self.base}:building"

    def tidy(self) -> None:
        """Delete all stores but the live one and this one."""
        stores = self.server.call(lambda client: client.smembers(f"{self.base}:stores"))
        live = self.server.call(lambda client: client.get(f"{self.base}:live"))
        own = None if self._keys is None else self._keys.number
        for number in sorted(int(one) for one in stores):
            if number != own and (live is None or number != int(live)):
                self.delete(number)

    def delete(self, number: int) -> None:
        """Delete a store, a few keys at a time."""
        keys = StoreKeys(self.base, number)

        def work(client: Any) -> None:
            names: list[bytes] = []
            for name in client.scan_iter(match=f"{_plain(keys.prefix)}*", count=AT_ONCE):
                names.append(name)
                if len(names) >= AT_ONCE:
                    client.unlink(*names)
                    names = []
            if names:
                client.unlink(*names)

        models = self.server.call(lambda client: ReadByKey(client, keys).models())
        for index in (keys.records, *map(keys.model, models)):
            self.server.drop_index(index)
        self.server.call(work)
        self.server.call(lambda client: client.srem(f"{self.base}:stores", number))


def _plain(text: str) -> str:
    """A text as a pattern that only it matches."""
    return "".join(f"\\{c}" if c in "*?[]\\^" else c for c in text)
