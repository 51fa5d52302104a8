"""What searches give out is counted in the log: bounded, once, and without anybody waiting."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from hashlib import sha256
from typing import Any

from projections.errors import Erased, KafkaUnavailable, UnderMaintenance
from projections.events.validation import make_record
from projections.memory.background import background
from projections.memory.identity import Scope
from projections.memory.recall import Recalled
from projections.memory.resolution import Record
from projections.names import Key, users_log
from threadfold.service.use_counts import MAX_SCOPES, UseCounts

ANN, BOB = Scope("acme", "ann"), Scope("acme", "bob", "web")


class Log:
    """Takes events as the service does, unless it is told what goes wrong."""

    def __init__(self) -> None:
        self.events: list[tuple[Key, dict[str, Any]]] = []
        self.tried: list[str] = []
        self.broken: Exception | None = None
        self.closed = ""

    async def append(self, tenant: str, items: Any, *, noun: str, operator: bool) -> None:
        ((key, flat),) = items
        assert (key.tenant, noun, operator) == (tenant, "use count", True)
        await asyncio.sleep(0)
        self.tried.append(flat["id"])  # from here on it cannot be cancelled
        if tenant == self.closed:
            raise UnderMaintenance("it is under maintenance", "later")
        if self.broken is not None:
            raise self.broken
        make_record(key, flat, where="e", now="2024-05-15T10:00:00Z", new_id="e", operator=True)
        self.events.append((key, flat))

    def counts(self) -> list[dict[str, tuple[int, int]]]:
        return [
            {one["memory_id"]: (one["retrieved"], one.get("hits", 0)) for one in flat["records"]}
            for _, flat in self.events
        ]


@asynccontextmanager
async def counting(log: Log, **options: Any) -> AsyncIterator[UseCounts]:
    made = UseCounts(log.append, **{"soon": 0.01, "every": 0.05, **options})
    yield made
    await made.stop()


def found(scope: Scope, *names: str) -> list[Recalled]:
    return [
        Recalled(Record(name, "record", scope, "fact", name, name, "user", 0, 0), relevance=0.9)
        for name in names
    ]


def prompt(given: Iterable[Recalled]) -> Any:
    return background(list(given), 10_000)


async def until(reached: Any) -> None:
    async with asyncio.timeout(10):
        while not reached():  # noqa: ASYNC110 - the log's list changes
            await asyncio.sleep(0.005)


async def test_what_several_searches_give_out_is_one_event_of_each_scope() -> None:
    log = Log()
    async with counting(log) as uses:
        uses.note(found(ANN, "a", "b"), prompt(found(ANN, "a")))
        uses.note([*found(ANN, "a"), *found(BOB, "c")], None)
        assert log.tried == []
        await until(lambda: len(log.events) == 2)
    assert log.counts() == [{"a": (2, 1), "b": (1, 0)}, {"c": (1, 0)}]
    assert [key for key, _ in log.events] == [users_log("acme", "ann"), users_log("acme", "bob")]
    assert log.events[1][1]["channel"] == "web"


async def test_what_a_prompt_says_by_way_of_a_composite_is_a_hit() -> None:
    log = Log()
    (both,) = found(ANN, "both")
    assert isinstance(both.found, Record)
    both.found.sources = ["a", "b"]
    async with counting(log) as uses:
        given = [both, *found(ANN, "a", "c")]
        uses.note(given, prompt([both]))
    assert log.counts() == [{"a": (1, 1), "both": (1, 1), "c": (1, 0)}]


async def test_what_an_anonymous_conversation_taught_is_counted_in_the_tenants_own_log() -> None:
    log = Log()
    async with counting(log) as uses:
        uses.note(found(Scope("acme", None, None, "c1"), "a"), None)
    ((key, flat),) = log.events
    assert key == users_log("acme", None) and flat["taught_by"] == "c1"


async def test_a_scope_has_one_event_a_minute_however_often_it_is_asked() -> None:
    log = Log()
    async with counting(log, every=60.0) as uses:
        uses.note(found(ANN, "a"), None)
        await until(lambda: log.events)
        for _ in range(50):
            uses.note(found(ANN, "a"), None)
            await asyncio.sleep(0.001)
        uses.note(found(BOB, "c"), None)
        await until(lambda: len(log.events) == 2)
        assert log.counts() == [{"a": (1, 0)}, {"c": (1, 0)}]
    assert log.counts()[2:] == [{"a": (50, 0)}], "the end writes what there is"


async def test_while_the_log_is_away_nothing_is_lost_and_nothing_is_said_twice() -> None:
    log = Log()
    log.broken = KafkaUnavailable("away")
    async with counting(log, again=0.01) as uses:
        uses.note(found(ANN, "a"), None)
        await until(lambda: len(log.tried) > 2)
        uses.note(found(ANN, "a"), None)
        log.broken = None
        await until(lambda: len(log.events) == 2)
    assert log.counts() == [{"a": (1, 0)}, {"a": (1, 0)}]
    assert len(set(log.tried)) == 2, "a repeat has the same id"


async def test_a_tenant_under_maintenance_keeps_no_other_waiting() -> None:
    log = Log()
    log.closed = "acme"
    async with counting(log, again=0.01) as uses:
        uses.note(found(ANN, "a"), None)
        uses.note(found(Scope("rival"), "r"), None)
        await until(lambda: log.events)
        assert log.counts() == [{"r": (1, 0)}]
        log.closed = ""
        await until(lambda: len(log.events) == 2)


async def test_what_cannot_be_counted_any_more_is_dropped_and_the_rest_goes_on() -> None:
    log = Log()
    async with counting(log) as uses:
        for error in (Erased("the user is erased"), ValueError("unforeseen")):
            log.broken = error
            uses.note(found(ANN, "a"), None)
            tried = len(log.tried)
            await until(lambda tried=tried: len(log.tried) > tried)
        log.broken = None
        uses.note(found(BOB, "c"), None)
    assert log.counts() == [{"c": (1, 0)}]


async def test_a_tenant_and_a_scope_have_their_bounds() -> None:
    log = Log()
    async with counting(log, soon=60.0) as uses:
        for n in range(MAX_SCOPES + 5):
            uses.note(found(Scope("acme", f"u-{n}"), "a"), None)
        uses.note(found(Scope("rival"), *(f"r{n}" for n in range(600))), None)
    assert len(log.events) == MAX_SCOPES + 1
    assert [len(one) for one in log.counts() if len(one) > 1] == [500]


async def test_counts_that_are_too_large_for_one_event_are_several_events_and_none_is_lost() -> (
    None
):
    log = Log()
    names = [sha256(str(n).encode()).hexdigest() for n in range(500)]
    log.broken = KafkaUnavailable("away")
    async with counting(log, again=0.01) as uses:
        uses.note(found(ANN, *names), None)
        await until(lambda: len(log.tried) > 2)
        log.broken = None
        await until(lambda: len(log.events) == 2)
    first, second = log.counts()
    assert first | second == dict.fromkeys(names, (1, 0))
    assert len(first) + len(second) == len(names), "each counts once"
    assert len(set(log.tried)) == 2, "a repeat has the same id"


async def test_nothing_is_counted_where_nobody_wants_it() -> None:
    log = Log()
    async with counting(log, wanted=False) as uses:
        uses.note(found(ANN, "a"), None)
    assert log.tried == []
