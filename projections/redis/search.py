"""Redis' query engine, as a store of records uses it from threads: a client that blocks, of the
server that keeps one key, and the index's commands.

All keys of a store share a hash tag, so they and their index are on one server also in a cluster:
the index is that server's own, and a transaction covers all that a store writes.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import redis
from redis.crc import key_slot
from redis.exceptions import RedisError, ResponseError, WatchError

from projections.errors import RedisUnavailable, SearchUnavailable
from projections.redis.address import Address, Kind, read_address, shown

T = TypeVar("T")
MINIMUM = 21000
"""The version of the search module that vectors of 16-bit numbers need: 2.10."""
_UNKNOWN_COMMAND = re.compile("unknown command", re.IGNORECASE)
_OTHER_DATABASE = re.compile("db != 0")
_NO_INDEX = re.compile("no such index|unknown index name|index not found", re.IGNORECASE)


class Found(NamedTuple):
    """A key that a search found, and the fields that were asked for."""

    key: str
    fields: dict[bytes, bytes]


class NotAsExpected(Exception):
    """A watched key changed, or is not as the transaction expects: nothing was written."""


class SearchServer:
    """The server that keeps a key. Calls may come from any thread; nothing is connected before the
    first.
    """

    def __init__(self, url: str, key: str, timeout: float = 5.0) -> None:
        """Args: ``timeout``: seconds for one answer.

        Raises:
            InvalidSettings: the address is none.
        """
        self._address = read_address(url)
        self._where = f"Redis at {shown(url)}"
        self._key = key
        self._timeout = timeout
        self._lock = threading.Lock()
        self._client: Any = None

    def call(self, work: Callable[[Any], T]) -> T:
        """Do something with a client of redis-py. Where the server moved, the next call finds it.

        Raises:
            RedisUnavailable: it does not answer, or refuses.
            SearchUnavailable: it has no query engine.
        """
        with self._errors():
            return work(self._connected())

    def transaction(
        self, watched: Sequence[str], prepare: Callable[[Any], None], fill: Callable[[Any], None]
    ) -> None:
        """Write what ``fill`` queues, in one transaction, if ``prepare``, which reads, raises
        nothing and none of the watched keys changed meanwhile.

        Raises:
            NotAsExpected: nothing was written.
            RedisUnavailable: unknown whether it was.
        """

        def work(client: Any) -> None:
            with client.pipeline(transaction=True) as pipe:
                pipe.watch(*watched)
                prepare(client)
                pipe.multi()
                fill(pipe)
                try:
                    pipe.execute()
                except WatchError:
                    raise NotAsExpected from None

        self.call(work)

    def make_index(self, name: str, prefix: str, fields: Sequence[str]) -> None:
        """Make an index of the hashes whose keys begin with ``prefix``, unless it is there. No word
        is left out or changed: who writes makes the words.
        """

        def work(client: Any) -> None:
            try:
                client.execute_command(
                    "FT.CREATE",
                    name,
                    "ON",
                    "HASH",
                    "PREFIX",
                    1,
                    prefix,
                    "STOPWORDS",
                    0,
                    "SCHEMA",
                    *" ".join(fields).split(),
                )
            except ResponseError as error:
                if "already exists" not in str(error).lower():
                    raise

        self.call(work)

    def drop_index(self, name: str) -> None:
        """Delete an index where it is there; its hashes stay."""

        def work(client: Any) -> None:
            try:
                client.execute_command("FT.DROPINDEX", name)
            except ResponseError as error:
                if _NO_INDEX.search(str(error)) is None:
                    raise

        self.call(work)

    def search(self, name: str, query: str, *options: Any) -> tuple[int, list[Found]]:
        """How many hashes an index finds, and those asked for, in order; nothing where there is no
        such index.
        """

        def work(client: Any) -> Any:
            try:
                return client.execute_command("FT.SEARCH", name, query, *options, "DIALECT", 2)
            except ResponseError as error:
                if _NO_INDEX.search(str(error)) is None:
                    raise
                return [0]

        return _found(self.call(work))

    def module_version(self) -> int:
        """The version of the search module, 0 if it has none."""
        listed = self.call(lambda client: client.execute_command("MODULE", "LIST"))
        for module in listed:
            pairs = module if isinstance(module, dict) else _pairs(module)
            named = {_text(name): value for name, value in pairs.items()}
            if _text(named.get("name", "")) in ("search", "searchlight"):
                return int(named.get("ver", 0))
        return 0

    def check(self) -> str:
        """The version of the query engine, as it is shown.

        Raises:
            SearchUnavailable: there is none, or one that is too old.
        """
        found = self.module_version()
        version = f"{found // 10000}.{found // 100 % 100}.{found % 100}"
        if not found:
            raise self._no_module()
        if found < MINIMUM:
            raise SearchUnavailable(
                f"{self._where} has version {version} of the query engine: the memory store needs"
                " 2.10 or later. Upgrade it, or name a folder in THREADFOLD_MEMORY_STORE"
            )
        return version

    def close(self) -> None:
        """Close all connections."""
        with self._lock:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Any:
        with self._lock:
            if self._client is None:
                self._client = self._connect()
            return self._client

    def _connect(self) -> Any:
        if self._address.kind is Kind.ONE:
            return self._client_of(self._address.url_of(self._address.nodes[0]))
        place = _master(self._address) if self._address.kind is Kind.SENTINEL else self._owner()
        return self._client_of(self._address.url_of(place))

    def _client_of(self, url: str) -> Any:
        return redis.Redis.from_url(
            url, protocol=2, socket_timeout=self._timeout, socket_connect_timeout=self._timeout
        )

    def _owner(self) -> str:
        """The node of a cluster that has the key's slot."""
        slot = key_slot(self._key.encode())
        last: BaseException = ResponseError("the cluster has no node")
        for node in self._address.nodes:
            try:
                with self._client_of(self._address.url_of(node)) as client:
                    ranges = client.execute_command("CLUSTER", "SLOTS")
                for first, end, master, *_ in ranges:
                    if first <= slot <= end:
                        return f"{_text(master[0]) or node.rpartition(':')[0]}:{master[1]}"
            except (RedisError, OSError) as error:
                last = error
        raise last

    def _no_module(self) -> SearchUnavailable:
        return SearchUnavailable(
            f"{self._where} has no query engine, which THREADFOLD_MEMORY_STORE=redis needs: use"
            " Redis 8, or load its search module (redisearch.so), or name a folder instead"
        )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except ResponseError as error:
            if _UNKNOWN_COMMAND.search(str(error)):
                raise self._no_module() from error
            if _OTHER_DATABASE.search(str(error)):
                raise SearchUnavailable(
                    f"{self._where}: the query engine, which THREADFOLD_MEMORY_STORE=redis needs,"
                    " works in database 0 alone: name that one in THREADFOLD_REDIS"
                ) from error
            self.close()
            raise RedisUnavailable(f"{self._where} refused: {error}") from error
        except (RedisError, OSError) as error:
            self.close()  # what answers there may have moved
            raise RedisUnavailable(
                f"{self._where} does not answer the memory store"
                f" ({(str(error) or type(error).__name__).splitlines()[0][:160]})"
            ) from error


def _master(address: Address) -> str:
    """The master that the first sentinel names that answers."""
    last: BaseException = ResponseError(f"no sentinel knows a master called {address.service}")
    for node in address.nodes:
        try:
            with redis.Redis.from_url(address.sentinel_url(node), socket_timeout=1.0) as client:
                found = client.execute_command(
                    "SENTINEL", "GET-MASTER-ADDR-BY-NAME", address.service
                )
            if found:
                return f"{_text(found[0])}:{_text(found[1])}"
        except (RedisError, OSError) as error:
            last = error
    raise last


def _found(answer: Any) -> tuple[int, list[Found]]:
    if len(answer) > 2 and not isinstance(answer[2], list):  # without fields
        return int(answer[0]), [Found(_text(key), {}) for key in answer[1:]]
    pairs = zip(answer[1::2], answer[2::2], strict=True)
    return int(answer[0]), [Found(_text(key), _pairs(fields)) for key, fields in pairs]


def _pairs(flat: Sequence[Any]) -> dict[Any, Any]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _text(value: Any) -> str:
    return value.decode() if isinstance(value, bytes) else str(value)
