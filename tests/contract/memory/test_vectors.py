"""The vectors of a memory store: found by meaning, never mixed, gone with their texts."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from projections.errors import EmbeddingsUnavailable
from projections.events import types as events
from projections.memory.news import Fact, LogErased, WentBack
from projections.names import Key, Position
from streams.embeddings.embedder import Vectors
from streams.embeddings.registry import Embeddings
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store import Filter, LocalStore, VectorStore
from streams.memory.turns import Said, SqliteTurns
from streams.memory.vector_index import NewVector
from streams.memory.vectors import MemoryVectors
from streams.settings.settings import Settings
from tests.support.embeddings import Fixed, WordVectors
from tests.support.histories import make_event
from tests.support.memories import USER, saved
from threadfold.service.question import Question
from threadfold.service.recall import Recall

C1, C2 = Key("acme", "c1"), Key("acme", "c2")
ACME = Filter("acme", user=USER)
MINUTE = 60_000_000
ALIKE = {"tea": "drink", "beverage": "drink", "train": "railway"}


def said(offset: int, text: str, log: Key = C1, **more: Any) -> Fact:
    return Fact(log, offset, offset * MINUTE, (), saved(log, text, **more))


async def until(reached: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not reached():  # noqa: ASYNC110 - a thread changes it
            await asyncio.sleep(0.01)


async def indexed(store: VectorStore, *inner: WordVectors) -> MemoryVectors:
    """A store's vectors, once all are made."""
    vectors = MemoryVectors(store.vectors, Fixed(*inner))
    vectors.start()
    model = inner[0].model
    await until(lambda: store.vectors.model == model and not store.vectors.missing(model, 0, 1))
    return vectors


async def texts(vectors: MemoryVectors, query: str, only: Filter = ACME) -> list[str]:
    return [hit.record.text for hit in await vectors.search(only, [query], 2)]


def words(*texts: str) -> WordVectors:
    return WordVectors(*texts, synonyms=ALIKE)


async def test_a_record_is_found_by_what_it_means(store: VectorStore) -> None:
    store.apply([said(1, "likes green tea"), said(2, "takes the train"), said(3, "is late")], {})
    vectors = await indexed(store, words())
    assert (await texts(vectors, "which beverage"))[0] == "likes green tea"
    assert (await texts(vectors, "the railway"))[0] == "takes the train"
    store.apply([said(4, "black beverage")], {})
    await until(lambda: vectors.made == 4)
    assert await texts(vectors, "beverage") == ["black beverage", "likes green tea"]
    hits = await vectors.search(ACME, ["likes green tea", "is late"], 2)
    assert [hit.score for hit in hits] == pytest.approx([1, 1], abs=1e-3)
    await vectors.stop()


async def test_a_store_that_begins_empty_is_searched_from_its_first_text_on(
    store: VectorStore,
) -> None:
    vectors = await indexed(store, words())
    assert await texts(vectors, "tea") == []
    store.apply([said(1, "likes tea")], {})
    await until(lambda: vectors.made == 1)
    assert await texts(vectors, "beverage") == ["likes tea"]
    await vectors.stop()


async def test_nobody_finds_what_is_another_tenants_or_users(store: VectorStore) -> None:
    strangers = [
        (Key("other", "c1"), {}),
        (C2, {"user": "u-2"}),
        (C2, {"user": None}),
        (C2, {"channel": "web"}),
    ]
    store.apply([said(n, "likes tea", log, **more) for n, (log, more) in enumerate(strangers)], {})
    vectors = await indexed(store, words())
    assert await texts(vectors, "tea", Filter("acme", user=USER, channel="mail")) == []
    assert await texts(vectors, "tea", Filter("acme", user="u-9")) == []
    assert await texts(vectors, "tea", Filter("nobody")) == []
    assert len(await vectors.search(Filter("acme"), ["tea"], 9)) == 3
    await vectors.stop()


async def test_what_no_longer_stands_is_not_found_but_as_of_then(store: VectorStore) -> None:
    store.apply([said(1, "likes tea"), said(5, "likes tea at noon")], {})
    vectors = await indexed(store, words())
    store.apply([WentBack(C1, 9, 3, 9 * MINUTE)], {})
    assert await texts(vectors, "tea") == ["likes tea"]
    store.apply(
        [said(10, "likes coffee", topic="drink"), said(11, "likes water", topic="drink")], {}
    )
    await until(lambda: vectors.made >= 4)
    assert "likes coffee" not in await texts(vectors, "likes coffee")
    then = Filter("acme", user=USER, as_of=10 * MINUTE)
    assert "likes coffee" in await texts(vectors, "likes coffee", then)
    await vectors.stop()


async def test_what_a_log_says_whose_erasure_has_begun_is_not_found(store: VectorStore) -> None:
    store.apply([said(1, "likes tea"), said(2, "takes the train"), said(3, "likes tea", C2)], {})
    vectors = await indexed(store, words())
    begun = replace(ACME, erased={C2}.__contains__)
    assert (await texts(vectors, "beverage", begun))[0] == "likes tea"
    begun = replace(ACME, erased={C1}.__contains__)
    assert await texts(vectors, "beverage", begun) == ["likes tea"]
    begun = replace(ACME, erased={C1, C2}.__contains__)
    assert await texts(vectors, "beverage", begun) == []
    await vectors.stop()


async def test_an_erasure_reaches_vectors_and_their_cache(store: VectorStore) -> None:
    inner = words()
    store.apply([said(1, "likes tea"), said(2, "likes milk", C2)], {})
    before = store.digests()
    vectors = await indexed(store, inner)
    assert store.digests() == before
    store.apply([LogErased(C1)], {})
    assert await texts(vectors, "tea") == ["likes milk"] and store.vectors.count == 1
    store.apply([said(2, "likes tea", C2)], {})
    await until(lambda: inner.asked.count("likes tea") == 2)
    data = events.MemoryDeleted(memory_id=saved(C2, "likes tea").memory_id, hard=True, user=USER)
    store.apply([Fact(C2, 9, 9 * MINUTE, (), data)], {})
    await until(lambda: store.vectors.count == 1)
    await vectors.stop()


async def test_a_changed_model_takes_over_once_it_has_all(store: VectorStore) -> None:
    class Slow(WordVectors):
        gate = asyncio.Event()

        async def embed(self, texts: Sequence[str], tenant: str) -> Vectors:
            await self.gate.wait()
            return await super().embed(texts, tenant)

    store.apply([said(n, f"likes tea {n}") for n in range(40)], {})
    first, second = words("one"), Slow("two", ALIKE, width=96)
    await (await indexed(store, first)).stop()
    assert store.vectors.model == "one"
    vectors = MemoryVectors(store.vectors, Fixed(second, first))
    vectors.start()
    assert (await texts(vectors, "beverage 7"))[0] == "likes tea 7"
    assert first.asked[-1] == "beverage 7" and store.vectors.model == "one"
    second.gate.set()
    await until(lambda: store.vectors.model == "two")
    assert (await texts(vectors, "beverage 8"))[0] == "likes tea 8"
    assert second.asked[-1] == "beverage 8" and store.vectors.count == 40
    await vectors.stop()
    # The old model is no longer configured: until the new one has all, there are no vectors.
    alone = MemoryVectors(store.vectors, Fixed(words("three")))
    with pytest.raises(EmbeddingsUnavailable, match="vectors of model three are being made"):
        await alone.search(ACME, ["tea"], 1)


async def test_a_model_that_is_away_says_so_and_is_tried_again(
    store: VectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("streams.memory.vectors.AGAIN", 0.02)
    inner = words()
    store.apply([said(1, "likes tea")], {})
    vectors = await indexed(store, inner)
    inner.away = True
    with pytest.raises(EmbeddingsUnavailable, match="do not answer"):
        await vectors.search(ACME, ["tea"], 1)
    store.apply([said(2, "likes milk")], {})
    await until(lambda: "do not answer" in vectors.reason)
    inner.away = False
    await until(lambda: vectors.made == 2 and not vectors.reason)
    assert await texts(vectors, "milk") == ["likes milk", "likes tea"]
    await vectors.stop()


async def test_texts_that_a_model_refuses_keep_no_other_waiting(
    store: VectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Moderated(WordVectors):
        takes = ""

        async def embed(self, texts: Sequence[str], tenant: str) -> Vectors:
            if any("curse" in text for text in texts) or self.takes == "nothing":
                error = EmbeddingsUnavailable("embeddings 'words' answered 400")
                error.refused = True
                raise error
            return await super().embed(texts, tenant)

    monkeypatch.setattr("streams.memory.vectors.AGAIN", 0.02)
    inner = Moderated("words-1", ALIKE)
    inner.takes = "nothing"
    curses, fine = (1, 5, 6, 20), range(30)
    said_all = [said(n, f"{'curse' if n in curses else 'tea'} {n}") for n in fine]
    store.apply([*said_all, said(31, "tea", Key("other", "c"))], {})
    vectors = MemoryVectors(store.vectors, Fixed(inner))
    vectors.start()
    await until(lambda: "answered 400" in vectors.reason)
    assert store.vectors.model is None  # which takes nothing: none of its texts is to blame
    inner.takes = "all but curses"
    await until(lambda: store.vectors.model is not None and not vectors.reason)
    assert vectors.made == len(said_all) - len(curses) + 1
    assert vectors.own == {}
    assert (await texts(vectors, "beverage 7"))[0] == "tea 7"
    inner.asked.clear()
    store.apply([said(40, "curse 40"), said(41, "green tea 41")], {})
    await until(lambda: vectors.made == len(said_all) - len(curses) + 2)
    assert sorted(inner.asked) == ["green tea 41", "text"]  # former refusals are not sent again
    await vectors.stop()


async def test_without_embeddings_a_search_says_so(store: VectorStore) -> None:
    vectors = MemoryVectors(store.vectors, Embeddings(Settings()))
    vectors.start()
    with pytest.raises(EmbeddingsUnavailable, match="none are configured"):
        await vectors.search(ACME, ["tea"], 1)
    await vectors.stop()


async def test_one_tenant_whose_budget_is_used_up_keeps_no_other_waiting(
    store: VectorStore,
) -> None:
    class Picky(WordVectors):
        async def embed(self, texts: Sequence[str], tenant: str) -> Vectors:
            if tenant == "acme":
                away = EmbeddingsUnavailable("tenant acme has used up its quota")
                away.own = True
                raise away
            return await super().embed(texts, tenant)

    store.apply([said(1, "likes tea"), said(2, "likes tea", Key("other", "c"))], {})
    vectors = MemoryVectors(store.vectors, Fixed(Picky("words-1", ALIKE)))
    with pytest.raises(EmbeddingsUnavailable, match="are being made"):
        await vectors.search(Filter("other"), ["tea"], 1)
    vectors.start()
    await until(lambda: "quota" in vectors.own.get("acme", "") and store.vectors.model is not None)
    assert vectors.made == 1 and not vectors.reason
    assert len(await vectors.search(Filter("other"), ["tea"], 1)) == 1
    with pytest.raises(EmbeddingsUnavailable, match="quota"):
        await vectors.search(ACME, ["tea"], 1)
    await vectors.stop()


async def test_a_store_that_takes_anothers_place_has_its_vectors(
    local: Callable[..., LocalStore],
) -> None:
    inner = words()
    live, other = local("a"), local("b")
    news = [said(n, f"likes tea {n}") for n in range(20)]
    live.apply(news, {})
    vectors = await indexed(live, inner)
    asked = len(inner.asked)
    other.apply([*reversed(news), said(30, "likes milk")], {})
    live.adopt(other)
    await until(lambda: live.vectors.count == 21)
    assert len(inner.asked) == asked + 1 and live.vectors.model == inner.model
    assert await texts(vectors, "likes tea 7") != []
    await vectors.stop()
    live.close()


@pytest.mark.long
async def test_of_very_many_the_nearest_are_found(
    store: VectorStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """More than are compared exactly: signs choose."""
    monkeypatch.setattr("streams.memory.vector_index.EXACT", 200)
    random = np.random.default_rng(3)
    base = random.normal(size=(2_000, 64)).astype(np.float32)
    base /= np.linalg.norm(base, axis=1, keepdims=True)

    class Drawn(WordVectors):
        batch = 256

        async def embed(self, texts: Sequence[str], tenant: str) -> Vectors:
            return np.stack([base[int(text.split()[-1])] for text in texts])

    store.apply([said(n, f"number {n}") for n in range(len(base))], {})
    vectors = await indexed(store, Drawn())
    for wanted in range(0, 2_000, 200):
        near = base[wanted] + random.normal(size=64).astype(np.float32) * 0.05
        exact = int(np.argmax(base @ near))
        hits = store.vectors.nearest(ACME, (near / np.linalg.norm(near)).astype(np.float32), 1)
        assert hits[0].record.text == f"number {exact}"
    await vectors.stop()


def test_vectors_of_another_length_are_refused(store: VectorStore) -> None:
    store.apply([said(1, "likes tea"), said(2, "likes milk")], {})
    (one, *_), (two, *_) = store.vectors.missing("m", 0, 2)
    store.vectors.add("m", [NewVector(one, "acme", USER, np.ones(64, np.float32))])
    with pytest.raises(EmbeddingsUnavailable, match="give the endpoint another name"):
        store.vectors.add("m", [NewVector(two, "acme", USER, np.ones(32, np.float32))])


async def test_recall_joins_words_and_meaning_and_says_when_vectors_are_away(
    store: VectorStore,
) -> None:
    inner = words()
    news = ["likes green tea", "the train is late", "orders are late", "sells cups"]
    store.apply([said(n, text) for n, text in enumerate(news)], {})
    vectors = await indexed(store, inner)
    recall = Recall(store, None, vectors=vectors)
    question = Question(ACME, "which beverage", kinds=("record",))
    answer = await recall.ask(question)
    first = answer.found[0]
    assert first.found.text == "likes green tea" and first.channels == ["vectors"]
    assert "vectors" not in answer.away
    inner.away = True
    answer = await recall.ask(replace(question, query="which tea"))
    assert [one.found.text for one in answer.found] == ["likes green tea"]
    assert "do not answer" in answer.away["vectors"]
    await vectors.stop()


def talked(offset: int, data: Any, log: Key = C1) -> Said:
    return Said(log, Position(0, offset), offset * MINUTE, make_event(data, f"e{offset}"))


async def test_a_turn_is_found_by_what_it_means_and_its_vector_goes_with_what_it_is_read_with(
    tmp_path: Path,
) -> None:
    inner = words()
    turns = SqliteTurns(tmp_path / "turns.db")
    said_ = [
        talked(0, events.Opened(user=USER)),
        talked(1, events.Message("user", "nobody is late")),
        talked(2, events.Message("user", "likes green tea")),
        talked(3, events.Message("assistant", "thanks, I have noted all of that for later")),
        talked(4, events.Message("user", "likes tea", name="eve"), Key("other", "c1")),
    ]
    turns.apply(said_, {})
    vectors = MemoryVectors(turns.vectors, Fixed(inner))
    vectors.start()
    await until(lambda: vectors.ready)
    assert "likes green tea\nnobody is late" in inner.asked
    hits = await vectors.search(ACME, ["beverage"], 1)
    assert [(hit.turn.position, hit.turn.conversation) for hit in hits] == [("0-2", "c1")]

    store = SqliteMemories()
    recall = Recall(store, turns, turn_vectors=vectors)
    question = Question(ACME, "which beverage", kinds=("turn",))
    answer = await recall.ask(question)
    assert (answer.found[0].found.text, answer.found[0].channels) == (
        "likes green tea",
        ["vectors"],
    )
    inner.away = True
    assert "do not answer" in (await recall.ask(replace(question, query="tea"))).away["vectors"]
    inner.away = False

    # What was dropped is in no vector either: the turn behind it was read with it.
    made = vectors.made
    turns.apply([talked(5, events.EventDropped("0-1"))], {})
    await until(lambda: vectors.made == made + 1 and inner.asked.count("likes green tea") == 1)
    turns.apply([talked(6, events.Erased())], {})
    assert turns.vectors.count == 1 and await vectors.search(ACME, ["beverage"], 1) == []
    await vectors.stop()
    store.close()
    turns.close()


async def test_a_text_with_the_number_of_one_that_went_meanwhile_gets_a_vector_of_its_own() -> None:
    turns = SqliteTurns()
    bobs = Key("other", "c9")
    late = [
        talked(2, events.EventDropped("0-1")),
        talked(3, events.Opened(user="bob"), bobs),
        talked(4, events.Message("user", "likes tea"), bobs),
    ]

    class Slow(WordVectors):
        """While the first text is embedded, it goes, and another one comes."""

        async def embed(self, texts: Sequence[str], tenant: str) -> Vectors:
            while late:
                turns.apply([late.pop(0)], {})
            return await super().embed(texts, tenant)

    turns.apply(
        [talked(0, events.Opened(user=USER)), talked(1, events.Message("user", "a train"))], {}
    )
    vectors = MemoryVectors(turns.vectors, Fixed(Slow(synonyms=ALIKE)))
    vectors.start()
    await until(lambda: turns.vectors.count == 1 and not late)
    hits = await vectors.search(Filter("other", user="bob"), ["beverage"], 1)
    assert [hit.turn.text for hit in hits] == ["likes tea"]
    await vectors.stop()
    turns.close()


def test_a_text_that_became_anothers_while_its_vector_was_made_gets_none_of_the_former() -> None:
    turns = SqliteTurns()
    opened = [talked(0, events.Opened(user=USER)), talked(1, events.Opened(user="bob"))]
    turns.apply([*opened, talked(2, events.Message("user", "likes tea"))], {})
    ((number, _, text),) = turns.vectors.missing("m", 0, 9)
    epoch = turns.vectors.epoch
    turns.apply([talked(3, events.EventDropped("0-1"))], {})
    made = np.ones(64, np.float32)
    turns.vectors.add("m", [NewVector(number, "acme", "bob", made, text)])
    assert turns.vectors.count == 0 and turns.vectors.epoch != epoch
    turns.vectors.add("m", [NewVector(number, "acme", USER, made, text)])
    assert turns.vectors.count == 1
    turns.close()
