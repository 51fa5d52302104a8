"""What the memory store in Redis does beside what every store does: one process feeds it, another
store takes its place, an erasure leaves nothing, and a Redis without the query engine says so.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from projections.errors import DataFolderInUse, Healing, RedisUnavailable, SearchUnavailable
from projections.events import types as events
from projections.memory.news import Fact, LogErased
from projections.memory.words import stems_of
from projections.names import Key
from projections.redis.search import SearchServer
from streams.memory import redis_place
from streams.memory.keyed_store import CANDIDATES
from streams.memory.redis_keys import StoreKeys
from streams.memory.redis_store import RedisMemories
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store import Filter
from streams.runtime.steps import at_once
from tests.support.memories import USER, saved
from tests.support.redis_cluster import RedisCluster
from tests.support.redis_sentinel import RedisSentinel
from tests.support.redis_servers import Server
from threadfold.embedded.redis import EmbeddedRedis

C1, C2 = Key("acme", "c1"), Key("acme", "c2")
ACME = Filter("acme", user=USER)
MINUTE = 60_000_000
_prefixes = count()


@pytest.fixture
def opened(search_redis: Server, request: pytest.FixtureRequest) -> Callable[..., RedisMemories]:
    """Opens the store of a deployment of the test's own, any number of times."""
    prefix = f"own-{next(_prefixes)}"

    def open_one(**more: bool) -> RedisMemories:
        made = RedisMemories(search_redis.url, prefix, **more)
        request.addfinalizer(made.close)
        return made

    return open_one


def said(offset: int, text: str, log: Key = C1) -> Fact:
    return Fact(log, offset, offset * MINUTE, (), saved(log, text))


def texts(store: RedisMemories, query: str, only: Filter = ACME) -> list[str]:
    return [hit.record.text for hit in store.search(only, stems_of(query), 10)]


def test_one_process_feeds_and_another_goes_on_where_it_ended(
    opened: Callable[..., RedisMemories],
) -> None:
    first, second = opened(), opened()
    assert first.place.hold() and first.place.hold() and not second.place.hold()
    first.apply([said(1, "Likes tea.")], {0: 1})
    assert texts(second, "tea") == ["Likes tea."] and second.checkpoints() == {0: 1}
    first.place.let_go()
    assert second.place.hold() and not first.place.hold()
    second.apply([said(2, "Likes gin.")], {0: 2})
    assert first.checkpoints() == {0: 2} and texts(first, "gin") == ["Likes gin."]


def test_who_ends_while_redis_is_away_lets_go_without_an_error(tmp_path: Path) -> None:
    server = Server(tmp_path / "redis")
    server.start()
    store = RedisMemories(server.url, f"own-{next(_prefixes)}")
    assert store.place.hold()
    server.kill()
    store.place.let_go()
    store.close()


def test_who_lost_the_lease_without_knowing_writes_nothing(
    opened: Callable[..., RedisMemories], search_redis: Server
) -> None:
    first, second = opened(), opened()
    assert first.place.hold()
    first.apply([said(1, "Likes tea.")], {0: 1})
    assert search_redis.ask("DEL", f"{first.place.base}:feeding") == 1, "it ends"
    assert second.place.hold()
    with pytest.raises(Healing, match="moved on"):
        first.apply([said(2, "Likes gin.")], {0: 2})
    assert second.checkpoints() == {0: 1} and texts(second, "gin") == []


def test_two_that_feed_at_once_lose_nothing(opened: Callable[..., RedisMemories]) -> None:
    first, second = opened(), opened()
    assert first.checkpoints() == second.checkpoints() == {}
    first.apply([said(1, "Likes tea.")], {0: 1})
    second.apply([said(1, "Likes tea."), said(2, "Likes gin.")], {0: 2})
    with pytest.raises(Healing):
        first.apply([said(3, "Likes rum.")], {0: 3})
    assert first.checkpoints() == {0: 2}
    first.apply([said(3, "Likes rum.")], {0: 3})
    assert len(at_once(second.page(ACME, None, 10))) == 3


def test_another_store_is_built_beside_the_live_one_and_switched_to(
    opened: Callable[..., RedisMemories], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(redis_place, "LOOK_EVERY", 0.0)
    live, reader = opened(), opened()
    live.apply([said(1, "Likes tea.")], {0: 1})
    built = opened(building=True)
    built.place.begin_building()
    with pytest.raises(DataFolderInUse, match="another process builds"):
        opened(building=True).place.begin_building()
    built.apply([said(1, "Likes tea."), said(2, "Likes gin.")], {0: 2})
    assert texts(reader, "gin") == [] and reader.checkpoints() == {0: 1}
    built.place.switch()
    assert texts(reader, "gin") == ["Likes gin."] and live.checkpoints() == {0: 2}
    built.place.tidy()
    built.place.end_building()
    names = reader.place.server.call(lambda client: client.keys(f"{reader.place.base}:*"))
    numbers = {name.decode().rsplit("}:", 1)[1].split(":")[0] for name in names}
    assert numbers - {"live", "last", "stores"} == {str(reader.place.keys.number)}
    live.apply([said(3, "Likes rum.")], {0: 3})
    assert len(at_once(reader.page(ACME, None, 10))) == 3


def test_who_feeds_the_live_store_keeps_its_lease_while_another_is_built(
    opened: Callable[..., RedisMemories],
) -> None:
    live, built = opened(), opened(building=True)
    assert live.place.hold()

    def prepare(_client: Any, _keys: StoreKeys) -> None:
        assert live.place.hold(), "as it does many times a second"

    built.place.write((), prepare, lambda pipe, keys: pipe.set(keys("written"), "yes"))
    assert built.place.read(lambda client, keys: client.get(keys("written"))) == b"yes"
    built.apply([said(1, "Likes tea.")], {0: 1})
    assert built.checkpoints() == {0: 1}


def test_an_erasure_leaves_nothing_under_any_key_and_no_word_in_the_index(
    opened: Callable[..., RedisMemories], search_redis: Server
) -> None:
    store = opened()
    store.apply([said(1, "Hides marmalade."), said(2, "Hoards zirconium.", C2)], {0: 1})
    assert held(store, b"armalade") and held(store, b"irconium")
    memory_id = saved(C2, "Hoards zirconium.").memory_id
    hard = events.MemoryDeleted(memory_id=memory_id, user=USER, hard=True)
    store.apply([LogErased(C1), Fact(C2, 9, 9 * MINUTE, (), hard)], {0: 2})
    assert not held(store, b"armalade") and not held(store, b"irconium")
    index = store.place.keys.records
    search_redis.ask("FT.CONFIG", "SET", "FORK_GC_CLEAN_THRESHOLD", "0")
    search_redis.ask("FT.DEBUG", "GC_FORCEINVOKE", index)
    assert search_redis.ask("FT.DEBUG", "DUMP_TERMS", index) == []


def held(store: RedisMemories, text: bytes) -> list[str]:
    """The keys of all stores that have a text."""

    def work(client: object) -> list[str]:
        found = []
        for name in client.keys(f"{store.place.base}*"):  # type: ignore[attr-defined]
            kind = client.type(name)  # type: ignore[attr-defined]
            value = {
                b"string": lambda n: client.get(n),  # type: ignore[attr-defined]
                b"hash": lambda n: client.hgetall(n),  # type: ignore[attr-defined]
                b"set": lambda n: client.smembers(n),  # type: ignore[attr-defined]
                b"zset": lambda n: client.zrange(n, 0, -1),  # type: ignore[attr-defined]
            }[kind](name)
            if text in repr((name, value)).encode():
                found.append(name.decode())
        return found

    return store.place.server.call(work)


def test_a_name_is_no_part_of_a_query(opened: Callable[..., RedisMemories]) -> None:
    store = opened()
    wild = Key("acme", "c3")
    store.apply([said(1, "Likes tea.")], {})
    store.apply([Fact(wild, 2, MINUTE, (), saved(wild, "Tea at six.", user="*"))], {})
    for user in ("*", "u-1} | @user:{*", "u*", "{u-1}", "u-1|*"):
        found = texts(store, "tea", Filter("acme", user=user))
        assert found == (["Tea at six."] if user == "*" else [])
    assert texts(store, "tea) | @tenant:{*} (tea") == ["Likes tea."]
    assert store.search(ACME, ["*", "@tenant:{*}", "tea|*", "", "-tea"], 10) == []


def test_of_more_than_are_scored_the_best_come_first_with_the_same_scores(
    opened: Callable[..., RedisMemories],
) -> None:
    store, other = opened(), SqliteMemories()
    news = [said(n, f"Fact {n} of tea.") for n in range(1, CANDIDATES + 100)]
    news.append(said(CANDIDATES + 200, "Tea with lemon and ginger."))
    for one in (store, other):
        one.apply(news, {0: 1})
    question = stems_of("lemon tea")
    (mine, *_), (theirs, *_) = (one.search(ACME, question, 3) for one in (store, other))
    assert mine.record == theirs.record
    assert mine.score == pytest.approx(theirs.score, rel=0.1)
    assert mine.relevance == pytest.approx(theirs.relevance, abs=0.05)
    assert store.digests() == other.digests()
    other.close()


def test_readers_go_on_while_it_is_fed(opened: Callable[..., RedisMemories]) -> None:
    store, reader = opened(), opened()
    store.apply([said(0, "Likes tea.")], {})
    ended = threading.Event()
    seen: list[int] = []

    def read() -> None:
        while not ended.is_set():
            seen.append(len(at_once(reader.page(ACME, None, 1_000))))

    thread = threading.Thread(target=read)
    thread.start()
    for n in range(1, 40):
        store.apply([said(n, f"Fact {n}.")], {0: n})
    ended.set()
    thread.join()
    assert seen == sorted(seen) and len(at_once(reader.page(ACME, None, 1_000))) == 40


def test_a_redis_without_the_query_engine_says_what_to_do(tmp_path: Path) -> None:
    with EmbeddedRedis(tmp_path, persist=False) as plain:
        store = RedisMemories(plain.url, "any")
        for call in (store.place.check, store.checkpoints):
            with pytest.raises(SearchUnavailable, match="load its search module"):
                call()
        store.close()


def test_a_redis_that_is_away_is_named(search_redis: Server) -> None:
    store = RedisMemories("redis://127.0.0.1:1/0", "any")
    with pytest.raises(RedisUnavailable, match="does not answer the memory store"):
        store.checkpoints()
    store.close()
    other = RedisMemories(search_redis.url.replace("/0", "/1"), "any")
    with pytest.raises(SearchUnavailable, match="database 0"):
        other.checkpoints()
    other.close()


def test_in_a_cluster_it_goes_to_the_node_that_keeps_its_keys(redis_cluster: RedisCluster) -> None:
    for n in range(8):
        name = f"own-{n}:{{memories-{n}}}:live"
        server = SearchServer(redis_cluster.url, name)
        assert server.call(lambda client, name=name: client.set(name, 1)) is True
        with pytest.raises(SearchUnavailable, match="no query engine"):
            server.check()
        server.close()


@pytest.mark.long
def test_behind_sentinels_it_goes_to_the_master(tmp_path: Path) -> None:
    with RedisSentinel(tmp_path) as sentinels:
        server = SearchServer(sentinels.url, "any")
        assert server.call(lambda client: client.set("any", 1)) is True
        server.close()
