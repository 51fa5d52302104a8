"""The stores of the long-term memory that are held against the same tests."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from streams.memory.redis_store import RedisMemories
from streams.memory.store import LocalStore, VectorStore
from streams.memory.store_folder import LANCE, SQLITE
from streams.memory.turns import SqliteTurns
from tests.support.local_stores import stores_of
from tests.support.redis_servers import Server
from tests.support.search_module import search_server

_prefixes = count()


@pytest.fixture(scope="module")
def search_redis(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A Redis with the query engine."""
    server = search_server(tmp_path_factory.mktemp("search"))
    server.start()
    yield server
    server.stop()


@pytest.fixture(params=["memory", "file", "lancedb", "redis"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[VectorStore]:
    """A store that is empty."""
    made: VectorStore
    if request.param == "redis":
        server: Server = request.getfixturevalue("search_redis")
        made = RedisMemories(server.url, f"test-{next(_prefixes)}")
    elif request.param == "memory":
        made = stores_of(SQLITE)()
    else:
        kind = LANCE if request.param == "lancedb" else SQLITE
        made = stores_of(kind)(tmp_path / f"memories{kind}")
    yield made
    made.close()


@pytest.fixture(params=[SQLITE, LANCE])
def local(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., LocalStore]:
    """Opens the stores of one kind: by its name in a folder of the test's own."""
    kind = stores_of(request.param)

    def open_one(name: str = "memories", **more: bool) -> LocalStore:
        return kind(tmp_path / f"{name}{request.param}", **more)

    return open_one


@pytest.fixture(params=["memory", "file"])
def turns(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[SqliteTurns]:
    made = SqliteTurns(tmp_path / "turns.db" if request.param == "file" else None)
    yield made
    made.close()
