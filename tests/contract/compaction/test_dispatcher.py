"""Who is answered when: the dispatcher over a log in memory, with models behind a real HTTP server."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest

from projections.errors import KafkaUnavailable
from projections.events.validation import Record
from projections.fold.extraction_due import Extraction
from projections.names import Key, Position
from streams.compaction import dispatcher as dispatcher_module
from streams.compaction.compactor import Compactor
from streams.compaction.deliveries import Deliveries
from streams.compaction.dispatcher import Dispatcher
from streams.memory.extraction_requests import (
    RULES,
    ExtractionRequest,
    decode_extraction,
    request_of,
)
from streams.metrics.declared import EXTRACTION_FALLBACKS, EXTRACTIONS
from streams.metrics.metrics import Metrics
from streams.runtime.processor import Processes
from streams.settings.settings import Settings
from tests.support.dispatch import SUMMARY, World, endpoint
from tests.support.metrics import read
from tests.support.model_server import fails, model_server, says, stalls, takes
from tests.support.worker import until
from threadfold.testing import MemoryLog


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(MemoryLog(3), {})
    yield made
    await made.close()


async def test_a_slow_endpoint_holds_up_nobody_who_does_not_ask_it() -> None:
    async with model_server(stalls) as slow, model_server(takes(0.01, SUMMARY)) as quick:
        world = World(MemoryLog(1), {"slow": endpoint(slow.url), "quick": endpoint(quick.url)})
        for i in range(20):
            await world.ask("acme", f"slow{i}", "slow")
        await world.ask("acme", "same tenant", "quick")
        await world.ask("other", "another summarizer", "extractive")
        await world.ask("other", "another endpoint", "quick")
        await world.until_done(
            "acme/same tenant", "other/another summarizer", "other/another endpoint"
        )
        assert len(world.done) == 3 and slow.under_way == 20
        await world.close()


async def test_a_tenant_with_few_requests_does_not_wait_for_one_with_many() -> None:
    async with model_server(takes(0.05, SUMMARY)) as server:
        world = World(MemoryLog(1), {"cheap": endpoint(server.url, max_concurrent=2)})
        for i in range(150):
            await world.ask("many", str(i), "cheap")
        before = len(world.done)
        await world.ask("few", "a", "cheap")
        await world.ask("few", "b", "cheap")
        await world.until_done("few/a", "few/b")
        # Those whose places were taken already, and one for each of few's.
        assert len(world.done) - before <= 25
        await world.close()


async def test_a_tenant_of_thrice_the_weight_is_answered_thrice_as_often() -> None:
    async with model_server(takes(0.01, SUMMARY)) as server:
        weights = {"heavy": 3.0, "light": 1.0}
        options = endpoint(server.url, max_concurrent=1)
        world = World(MemoryLog(1), {"cheap": options}, weight=weights.__getitem__)
        values = [
            (tenant, await world.request(tenant, str(i), "cheap"))
            for tenant in weights
            for i in range(40)
        ]
        for tenant, value in values:
            await world.dispatcher.take(value, lambda tenant=tenant: world.done.append(tenant))  # type: ignore[misc]
        await until(lambda: asyncio.sleep(0, len(world.done) >= 40))
        assert 27 <= world.done[:40].count("heavy") <= 33
        await world.close()


async def test_who_waits_too_long_for_an_endpoint_is_answered_by_the_extractive_summariser() -> (
    None
):
    async with model_server(stalls) as server:
        options = endpoint(server.url, max_concurrent=1, max_wait=0.3)
        world = World(MemoryLog(1), {"cheap": options})
        for i in range(12):
            await world.ask("acme", str(i), "cheap")
        await until(lambda: asyncio.sleep(0, len(world.done) >= 3))
        assert {name for names in (await world.made_by()).values() for name in names} == {
            "extractive"
        }
        await world.close()


async def test_each_fallback_counts_once_under_its_cause() -> None:
    async with model_server(says("The garden. " * 60), fails(401), stalls) as server:
        options = endpoint(server.url, max_concurrent=1, timeout=0.3, max_wait=60)
        world = World(MemoryLog(1), {"cheap": options}, attempts=1)
        for name in ("repeats", "refused", "silent"):
            await world.ask("acme", name, "cheap")
            await world.until_done(f"acme/{name}")
        await world.close()
    reasons = {("cheap", reason): 1 for reason in ("rejected", "refused", "timed_out")}
    assert world.samples("summary_fallbacks_total") == reasons
    assert world.samples("model_calls_total") == reasons
    assert world.samples("model_answers_refused_total") == {("cheap", "repetition"): 1}
    assert world.samples("compactions_total") == {("made", "budget", "extractive"): 3}
    assert world.samples("model_calls_in_flight") == {("cheap",): 0}
    assert world.samples("compactions_waiting") == {}


async def test_a_request_that_comes_again_while_it_is_under_way_is_answered_once(
    world: World,
) -> None:
    value = await world.request("acme", "talk", "extractive")
    for i in range(3):
        await world.dispatcher.take(value, lambda i=i: world.done.append(str(i)))  # type: ignore[misc]
    assert len(world.dispatcher) == 1
    await world.until_done("0", "1", "2")
    assert await world.made_by() == {"acme/talk": ["extractive"]}


async def test_a_request_that_went_to_another_worker_is_let_go(world: World) -> None:
    deliveries, acknowledged = Deliveries(), []
    value = await world.request("acme", "talk", "extractive")
    done, current = deliveries.add(0, lambda: acknowledged.append(1))
    deliveries.forget()
    await world.dispatcher.take(value, done, current)
    await world.dispatcher.idle()
    assert await world.made_by() == {} and acknowledged == []


async def test_a_request_that_goes_to_another_worker_while_it_waits_is_not_paid_for() -> None:
    async with model_server(takes(0.3, SUMMARY)) as server:
        world = World(MemoryLog(1), {"cheap": endpoint(server.url, max_concurrent=1)})
        await world.ask("acme", "first", "cheap")
        await until(lambda: asyncio.sleep(0, server.under_way == 1))
        deliveries, acknowledged = Deliveries(), []
        value = await world.request("acme", "second", "cheap")
        await world.dispatcher.take(value, *deliveries.add(0, lambda: acknowledged.append(1)))
        await asyncio.sleep(0)  # it waits for its place
        deliveries.forget()
        await world.dispatcher.idle()
        assert await world.made_by() == {"acme/first": ["cheap"]}
        assert len(server.calls) == 1 and acknowledged == []
        await world.close()


class AwayLog(MemoryLog):
    """A log that refuses what is appended so many times."""

    refusals = 2

    async def append(self, records: Sequence[Record]) -> list[Position]:
        if self.refusals:
            self.refusals -= 1
            raise KafkaUnavailable("it is away")
        return await super().append(records)


async def test_while_the_log_is_away_a_request_is_tried_until_its_summary_is_in_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatcher_module, "PAUSE", 0.01)
    world = World(AwayLog(1), {})
    await world.ask("acme", "talk")
    await world.until_done("acme/talk")
    assert await world.made_by() == {"acme/talk": ["extractive"]}
    await world.close()


async def test_no_more_are_held_than_may_be(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatcher_module, "MAX_HELD", 2)
    values = [await world.request("acme", str(i), "extractive") for i in range(6)]
    most = 0
    for value in values:
        await world.dispatcher.take(value, lambda: world.done.append("x"))
        most = max(most, len(world.dispatcher))
    await world.dispatcher.idle()
    assert most == 2 and len(world.done) == 6


class Learns:
    """Learns from what it is asked for once it ``may``."""

    what, failed = "learning from %s", "learning from %s failed"
    fallback, fallbacks, counted = RULES, EXTRACTION_FALLBACKS, EXTRACTIONS

    def __init__(self) -> None:
        self.may = asyncio.Event()
        self.learnt: list[str] = []

    def read(self, value: bytes) -> ExtractionRequest | None:
        return decode_extraction(value)

    async def answer_if_due(self, request: ExtractionRequest, allowed: object = None) -> None:
        await self.may.wait()
        self.learnt.append(f"{request.tenant}/{request.at}")


async def test_of_a_tenant_with_too_much_to_learn_the_rest_is_passed_over_and_nobody_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(dispatcher_module, "MOST_LEARNING", 3)
    learns, done, metrics = Learns(), list[str](), Metrics()
    unused = Compactor(Settings(kafka="unused", redis="unused"), MemoryLog(1))
    dispatcher = Dispatcher(unused, {}, metrics=metrics, encoder=learns)

    async def ask(tenant: str, at: int) -> None:
        due = Extraction(at, "session", gists=False)
        request = request_of(Key(tenant, "talk"), 0, due)
        await dispatcher.take(msgspec.json.encode(request), lambda: done.append(f"{tenant}/{at}"))

    for at in (*range(5), 0):  # the first one is delivered again
        await ask("many", at)
    await ask("few", 0)
    assert done == ["many/3", "many/4"] and len(dispatcher) == 4
    assert caplog.text.count("tenant many has 3 spans that the memory has not learnt from") == 2
    learns.may.set()
    await dispatcher.idle()
    assert sorted(learns.learnt) == ["few/0", "many/0", "many/1", "many/2"]
    learns.learnt.clear()
    await ask("many", 5)
    await dispatcher.idle()
    assert learns.learnt == ["many/5"]
    counted = read(metrics.page())["threadfold_memory_extractions_total"]
    assert counted == {("passed_over", "session", "rules"): 2}


@pytest.mark.long
async def test_a_summary_is_made_although_its_process_was_killed(tmp_path: Path) -> None:
    processes = Processes(1)
    world = World(MemoryLog(1), {}, processes)
    await world.ask("acme", "before")
    await world.until_done("acme/before", limit=60)
    os.kill(await processes.run("acme", os.getpid), signal.SIGKILL)
    await world.ask("acme", "after")
    await world.until_done("acme/after", limit=60)
    assert await world.made_by() == {"acme/before": ["extractive"], "acme/after": ["extractive"]}
    await world.close()
    await processes.close()


def test_deliveries_are_acknowledged_in_their_order_whatever_ends_first() -> None:
    deliveries, acknowledged = Deliveries(), []
    done = [deliveries.add(0, lambda i=i: acknowledged.append(i))[0] for i in range(4)]  # type: ignore[misc]
    other, _ = deliveries.add(1, lambda: acknowledged.append(10))
    done[2]()
    done[1]()
    assert acknowledged == []
    other()
    done[0]()
    assert acknowledged == [10, 0, 1, 2] and len(deliveries) == 1


async def test_summaries_that_wait_for_a_pause_that_the_endpoint_asked_for_are_counted() -> None:
    answers = fails(429, headers={"Retry-After": "2"}), says(SUMMARY)
    async with model_server(*answers) as server:
        world = World(MemoryLog(1), {"cheap": endpoint(server.url)})
        assert world.samples("model_limit_waits_total") == {("cheap",): 0}
        later = await world.request("acme", "later", "cheap")
        await world.ask("acme", "first", "cheap")

        async def paused() -> bool:
            return world.samples("model_calls_total") == {("cheap", "busy"): 1}

        await until(paused, 30, "the endpoint asks for a pause")
        await world.dispatcher.take(later, lambda: world.done.append("acme/later"))
        await world.until_done("acme/first", "acme/later")
        assert set(map(tuple, (await world.made_by()).values())) == {("cheap",)}
        assert world.samples("model_limit_waits_total")["cheap",] > 0
        await world.close()
