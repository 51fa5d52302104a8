"""What has ended a text in progress is found by the conversation's own events, not by reading its
partition.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace
from typing import Any

import pytest

from projections.errors import WaitTimedOut
from projections.names import Key, Position, make_key, partition_of
from projections.window.recent_ids import LIMIT
from streams.log.log import Log
from tests.support.stream_pair import Pair, history, piece, say
from tests.support.worker import until
from threadfold.streaming import partials, text_endings
from threadfold.streaming.partial_end import Ending
from threadfold.streaming.partial_store import Text
from threadfold.streaming.text_endings import TextEndings


@contextmanager
def read_of(log: Log) -> Iterator[list[int]]:
    """The offsets that are read of a log within: scanned, or asked for one by one."""
    read: list[int] = []
    scan, read_within = log.scan, log.read_within

    async def scanned(*args: Any) -> AsyncIterator[Any]:
        async for raw in scan(*args):
            read.append(raw.offset)
            yield raw

    async def asked(positions: list[Position], most: int) -> Any:
        read.extend(position.offset for position in positions)
        return await read_within(positions, most)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(log, "scan", scanned)
        patch.setattr(log, "read_within", asked)
        yield read


@asynccontextmanager
async def unswept(pair: Pair) -> AsyncIterator[None]:
    """Within, no text times out."""
    gateways = [gateway.app.state.live for gateway in (pair.a, pair.b)]
    for running in gateways:
        await running.sweeper.stop()
    try:
        yield
    finally:
        for running in gateways:
            running.sweeper.start()


def beside(name: str) -> str:
    """Another conversation of the same partition."""
    partition = partition_of(make_key("acme", name), 4)
    names = (f"{name}-beside-{n}" for n in range(1_000))
    return next(one for one in names if partition_of(make_key("acme", one), 4) == partition)


async def fill(pair: Pair, name: str, count: int) -> int:
    """Append messages of a user, and return the offset after the last, once they are applied."""
    for left in range(count, 0, -500):
        last = left <= 500
        said = await pair.append(name, *[say("a")] * min(left, 500), wait=last)
    return int(said[-1].split("-")[1]) + 1


async def begun(pair: Pair, name: str) -> Text:
    """A text that nobody follows: it began now."""
    live, key = pair.a.app.state.live, make_key("acme", name)
    since = (await live.backend.log.end_offsets())[partition_of(key, 4)]
    assert (await live.store.append(key, "t", "half a sen", 0, since)).name == "ok"
    return Text("t", since, "half a sen")


async def test_a_delta_that_differs_reads_nothing_of_what_others_append_to_the_partition(
    pair: Pair,
) -> None:
    log = pair.a.app.state.live.backend.log
    async with unswept(pair):
        assert (await piece(pair, "quiet", "t", "A", offset=0)).status_code == 202
        await fill(pair, beside("quiet"), 2_000)
        with read_of(log) as read:
            for _ in range(3):
                answer = await piece(pair, "quiet", "t", "other", offset=0)
                assert answer.status_code == 409 and "another text is stored" in answer.text
    assert len(read) <= text_endings.AT_ONCE


async def test_events_of_the_conversation_are_read_once_however_often_it_is_asked(
    pair: Pair,
) -> None:
    live, key = pair.a.app.state.live, make_key("acme", "asked")
    async with unswept(pair):
        text = await begun(pair, "asked")
        await fill(pair, "asked", 40)
        with read_of(live.backend.log) as read:
            assert await live.endings.find(key, text) is None
            assert len(read) == 40
            assert await live.endings.find(key, text) is None
            assert len(read) == 40
            (at,) = await pair.append("asked", say("done", "assistant"), wait=True)
            found = await live.endings.find(key, text)
        assert found == Ending(int(at.split("-")[1])) and len(read) == 41


async def test_a_message_behind_thousands_of_others_records_ends_the_text_once(pair: Pair) -> None:
    live, key = pair.a.app.state.live, make_key("acme", "behind")
    async with unswept(pair):
        text = await begun(pair, "behind")
        (at,) = await pair.append("behind", say("half a sentence", "assistant"))
        await fill(pair, beside("behind"), 1_500)
        await pair.append("behind", say("thanks"), say("Well.", "assistant"), wait=True)
        assert await live.endings.find(key, text) == Ending(int(at.split("-")[1]))

    async def gone() -> bool:
        return await live.store.read(key) is None

    await until(gone)
    said = [event["content"] for event in await history(pair, "behind")]
    assert said == ["Well.", "thanks", "half a sentence"]


@pytest.mark.parametrize("near", [True, False])
async def test_a_text_with_more_events_since_than_its_window_knows_passes_for_ended_unless_they_are_near(
    pair: Pair, monkeypatch: pytest.MonkeyPatch, near: bool
) -> None:
    if not near:
        monkeypatch.setattr(text_endings, "SCAN", 100)
    name = f"flooded-{near}"
    live, key = pair.a.app.state.live, make_key("acme", name)
    async with unswept(pair):
        text = await begun(pair, name)
        await fill(pair, name, 200)
        (at,) = await pair.append(name, say("half a sentence", "assistant"))
        end = await fill(pair, name, LIMIT)
        found = await live.endings.find(key, text)
    if near:
        assert found == Ending(int(at.split("-")[1]))
    else:
        assert found is not None and found.unknown and found.offset >= end - 1

    async def gone() -> bool:
        return await live.store.read(key) is None

    await until(gone)
    page = await pair.a.http.get(f"/v1/conversations/{name}/history?limit=5", headers=pair.auth())
    assert "interrupted" not in page.text


async def test_a_look_waits_for_a_window_that_is_behind_and_then_is_refused_by_name(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = pair.a.app.state.live
    head, waited = live.backend.windows.head, list[float]()

    async def old(key: Key) -> Any:
        checkpoint, stored = await head(key)
        at = checkpoint.offset - 20
        return replace(checkpoint, offset=at, ahead=at), stored

    async def late(position: Position, limit: float, whose: Key) -> None:
        waited.append(limit)
        raise WaitTimedOut("not yet")

    monkeypatch.setattr(text_endings, "AT_ONCE", 5)
    async with unswept(pair):
        assert (await piece(pair, "slow", "t", "A", offset=0)).status_code == 202
        await fill(pair, beside("slow"), 30)
        with pytest.MonkeyPatch.context() as patch, read_of(live.backend.log) as read:
            patch.setattr(live.backend.windows, "head", old)
            patch.setattr(live.backend, "wait_for", late)
            assert (await piece(pair, "slow", "t", "B", offset=0)).status_code == 409
            assert len(read) == 20 and waited == [text_endings.PATIENCE]
            # Asked again, it has nothing to look at: nothing came since.
            assert (await piece(pair, "slow", "t", "B", offset=0)).status_code == 409
            assert len(read) == 20
            patch.undo()
            await fill(pair, beside("slow"), 21)
            patch.setattr(live.backend.windows, "head", old)
            patch.setattr(live.backend, "wait_for", late)
            patch.setattr(text_endings, "SCAN", 19)
            refused = await piece(pair, "slow", "t", "B", offset=0)
        assert refused.status_code == 503 and "20 records behind the log" in refused.text
        assert refused.headers["retry-after"] == str(text_endings.AGAIN)


async def test_of_deltas_that_differ_a_tenant_has_two_looked_at_and_others_do_not_wait(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    looking: list[str] = []
    go, find = asyncio.Event(), TextEndings.find

    async def held(self: TextEndings, key: Key, text: Text, patience: float = 1.0) -> Any:
        if key.tenant == "acme" and key.conversation.startswith("differs-"):
            looking.append(key.conversation)
            await go.wait()
        return await find(self, key, text, patience)

    async def two_look() -> bool:
        return len(looking) == partials.ENDINGS

    names = [f"differs-{i}" for i in range(5)]
    monkeypatch.setattr(TextEndings, "find", held)
    async with unswept(pair):
        for name in names:
            assert (await piece(pair, name, "t", "A", offset=0)).status_code == 202
        rest = asyncio.gather(*(piece(pair, name, "t", "B", offset=0) for name in names))
        await until(two_look)
        for delta, status in (("A", 202), ("B", 409)):
            answer = await pair.a.http.post(
                "/v1/conversations/differs-0/partial",
                json={"turn_id": "t", "delta": delta, "offset": 0},
                headers=pair.auth("rival"),
            )
            assert answer.status_code == status, answer.text
        assert len(looking) == partials.ENDINGS
        go.set()
        assert {answer.status_code for answer in await rest} == {409}


async def test_a_text_that_cannot_be_ended_now_keeps_no_other_one_from_its_end(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    find = TextEndings.find

    async def fails(self: TextEndings, key: Key, text: Text, patience: float = 1.0) -> Any:
        if key.conversation == "stuck":
            raise WaitTimedOut("it is behind")
        return await find(self, key, text, patience)

    monkeypatch.setattr(TextEndings, "find", fails)
    for name in ("stuck", "free"):
        await begun(pair, name)

    async def kept() -> bool:
        return bool(await history(pair, "free"))

    await until(kept)
    live = pair.a.app.state.live
    assert await live.store.read(make_key("acme", "stuck")) is not None
    assert await live.forget("acme", "stuck")
