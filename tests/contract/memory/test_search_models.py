"""Searches that ask a model, behind a real HTTP server, for their plan and for an imagined skill."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web

from projections.events import types as events
from projections.memory.identity import id_of, normalize
from projections.memory.news import Fact
from projections.names import users_log
from streams.compaction.summarizers.budgets import Budgets, Spending
from streams.memory.search_models import SearchModels
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store import Filter
from streams.memory.vectors import MemoryVectors
from streams.settings.quotas import Quota
from streams.settings.settings import Settings
from tests.support.embeddings import Fixed, WordVectors
from tests.support.memories import saved
from tests.support.model_server import (
    Behaviour,
    ModelServer,
    completion,
    fails,
    model_server,
    says,
    stalls,
)
from tests.support.own_lines import own_lines
from tests.support.ports import closed_port
from tests.support.worker import until
from threadfold.service.question import Question
from threadfold.service.recall import Answer, Recall
from threadfold.service.recall_answers import given_out, search_document
from threadfold.testing import MemoryDailyCounts

OWN = users_log("acme", "ann")
ACME = Filter("acme", "ann")
NOW = 1_715_767_200_000_000
PLAN = {
    "mode": "mixed",
    "semantic_queries": ["what the user drinks"],
    "pragmatic_queries": ["how to serve drinks"],
    "tool_hints": ["kettle"],
    "required_constraints": [],
    "required_affordances": [],
    "missing_slots": [],
    "temporal_filter": {"since": "2024-05-13", "until": "2024-05-14"},
    "depth": 5,
    "reasoning": "It asks for a drink.",
}
SKILLS = {
    "Return a parcel": "1. Ask for the number of the order. 2. Print the label.",
    "Change the seat of a flight": "1. Look the reservation up. 2. Offer free seats.",
    "Reset a forgotten password": "1. Send the link. 2. Wait for the new one.",
    "Refund a double charge": "1. Find both charges. 2. Give one back.",
    "Schedule a visit of a technician": "1. Ask for three days. 2. Book one.",
}
ASKED = {
    "the boots do not fit, what now": ("Return a parcel", "Have the shoes sent back as a parcel"),
    "I would rather sit at the window": (
        "Change the seat of a flight",
        "Give the passenger another seat on the flight",
    ),
    "locked out of my account": (
        "Reset a forgotten password",
        "Let the user choose a new password by a reset",
    ),
    "you took the money twice": (
        "Refund a double charge",
        "Give back what was charged double, as a refund",
    ),
    "my heating is broken": (
        "Schedule a visit of a technician",
        "Arrange for a technician to visit the home",
    ),
}
"""Questions that share no word with the skill that answers them, and what the model imagines."""


def plans(**changes: Any) -> Behaviour:
    return says(json.dumps({**PLAN, **changes}))


async def imagines(
    server: ModelServer, request: web.Request, asked: dict[str, Any]
) -> web.StreamResponse:
    """The same skill for the same question."""
    data = asked["messages"][1]["content"].split("\n")[1]
    _, intent = ASKED.get(json.loads(data)["question"], ("", "Something else altogether"))
    return web.json_response(completion(json.dumps({"intent": intent, "steps": ""})))


def skill(number: int, intent: str, doc: str) -> Fact:
    data = events.SkillSaved(
        memory_id="",
        intent=intent,
        normalized_text=normalize(intent),
        doc_markdown=doc,
        trust="user",
        user="ann",
    )
    data.memory_id = id_of(OWN, data) or ""
    return Fact(OWN, number, 1_715_767_200_000_000 + number, (), data)


def told(number: int, text: str, at: int = NOW - 900 * 86_400_000_000) -> Fact:
    return Fact(OWN, number, at + number, (), saved(OWN, text, user="ann"))


class World:
    """A store that is searched with a model; ``counted`` are its questions."""

    def __init__(self, url: str, budgets: Budgets | None = None, **settings: Any) -> None:
        endpoint = {"base_url": url, "model": "small-1", **settings.pop("endpoint", {})}
        self.counted: list[tuple[str, str, str]] = []
        self.store = SqliteMemories()
        self.models = SearchModels(
            Settings.load(env={}, summarizers={"cheap": endpoint}, **settings),
            budgets=budgets,
            count=lambda *labels: self.counted.append(labels),
        )

    def learn_skills(self) -> None:
        rows = enumerate(SKILLS.items(), 1)
        self.store.apply([skill(n, intent, doc) for n, (intent, doc) in rows], {})

    async def ask(self, query: str, only: Filter = ACME, **more: Any) -> Answer:
        vectors = more.pop("vectors", None)
        recall = Recall(self.store, None, vectors=vectors, models=more.pop("models", self.models))
        return await recall.ask(
            Question(only, query, more.pop("kinds", ("record", "skill")), **more)
        )

    async def skills(self, query: str, **more: Any) -> list[str]:
        return [one.found.text for one in (await self.ask(query, **more)).found]


def explained(answer: Answer) -> dict[str, Any]:
    """The plan as the public interface has it."""
    document = search_document(answer, given_out(answer, None), explain=True)
    shown: dict[str, Any] = document["plan"]
    return shown


@asynccontextmanager
async def searched(
    *behaviours: Behaviour, **settings: Any
) -> AsyncIterator[tuple[World, ModelServer]]:
    async with model_server(*behaviours) as server:
        world = World(settings.pop("url", server.url), **settings)
        try:
            yield world, server
        finally:
            await world.models.close()
            world.store.close()


async def test_a_model_makes_the_plan_and_the_answer_says_so() -> None:
    async with searched(plans(), memory_planner="cheap") as (world, server):
        answer = await world.ask("A cup please", tools=("kettle",))
        shown = explained(answer)
    assert (shown["made_by"], shown["fell_back"], shown["imagined_skill"]) == ("cheap", {}, None)
    assert shown["mode"] == "mixed" and shown["reasoning"] == "It asks for a drink."
    assert shown["semantic_queries"] == ["A cup please", "what the user drinks"]
    assert shown["temporal_filter"]["since"] == "2024-05-13T00:00:00.000Z"
    data = server.calls[0]["messages"][1]["content"]
    assert '"query":"A cup please"' in data and '"tools":["kettle"]' in data
    assert world.counted == [("plan", "cheap", "ok")]


async def test_what_is_private_in_a_question_is_sent_to_no_model() -> None:
    async with searched(plans(), memory_planner="cheap") as (world, server):
        await world.ask(
            "A cup <private>hidden</private> please",
            recent="Hi. <private>hidden",
            tools=["kettle", "<private>hidden</private>"],
            constraints=["no milk <private>hidden"],
            failures=["<private>hidden</private> is empty"],
        )
        (call,) = server.calls
        sent = call["messages"][1]["content"]
        assert "hidden" not in sent and "no milk" in sent and "is empty" in sent
        assert (await world.ask("<private>hidden</private>")).found == []
        assert len(server.calls) == 1


async def test_the_same_question_of_the_same_tenant_is_asked_once() -> None:
    async with searched(plans(), memory_planner="cheap") as (world, server):
        for _ in range(3):
            await world.ask("A cup please")
        assert len(server.calls) == 1
        await world.ask("A cup please", Filter("other"))
        await world.ask("A cup please", mode="action")
        await world.ask("Two cups please")
        assert len(server.calls) == 4


@pytest.mark.parametrize(
    ("behaviour", "reason", "said"),
    [
        (says("Let me think."), "rejected", "it is no JSON object"),
        (plans(mode="secret guess"), "rejected", "its field mode is not what was asked for"),
        (fails(503), "busy", "answered 503"),
        (fails(401), "refused", "answered 401"),
        (stalls, "timed_out", "did not answer within"),
    ],
)
async def test_the_rules_make_the_plan_where_the_model_does_not_and_explain_says_why(
    behaviour: Behaviour, reason: str, said: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with searched(behaviour, memory_planner="cheap", memory_model_seconds=1) as (
        world,
        server,
    ):
        begun = time.monotonic()
        answer = await world.ask("What does Ann drink?")
        assert time.monotonic() - begun < 3
        shown = explained(answer)
    assert shown["made_by"] == "rules" and said in shown["fell_back"]["plan"]
    assert shown["reasoning"].startswith("mode answer:")
    assert world.counted == [("plan", "cheap", reason)] and len(server.calls) == 1
    (line,) = own_lines(caplog, logging.WARNING)
    assert line.tenant == "acme"  # type: ignore[attr-defined]
    assert "secret" not in line.getMessage() and "drink" not in line.getMessage()


async def test_a_model_that_is_away_is_left_alone_after_failures_in_a_row() -> None:
    url = f"http://127.0.0.1:{closed_port()}/v1"
    options = {"memory_planner": "cheap", "summary_breaker_failures": 2}
    async with searched(plans(), url=url, **options) as (world, _):
        for n in range(3):
            assert (await world.ask(f"question {n}")).sought.planned_by == "rules"
    assert [outcome for *_, outcome in world.counted] == [
        "unreachable",
        "unreachable",
        "breaker_open",
    ]


async def slow_for_some(
    server: ModelServer, request: web.Request, asked: dict[str, Any]
) -> web.StreamResponse:
    """No answer in time to a question that says so."""
    behaviour = stalls if "slowly" in str(asked["messages"]) else plans()
    return await behaviour(server, request, asked)


async def test_questions_of_one_tenant_that_time_out_take_the_model_from_no_other() -> None:
    options = {"memory_planner": "cheap", "summary_breaker_failures": 2}
    async with searched(slow_for_some, endpoint={"timeout": 0.3}, **options) as (world, server):
        for n in range(5):
            answer = await world.ask(f"slowly {n}")
        assert "is open for tenant acme after" in explained(answer)["fell_back"]["plan"]
        assert len(server.calls) == 2, "the tenant itself is kept away"
        other = await world.ask("What does Ann drink?", Filter("other"))
        assert other.sought.planned_by == "cheap"


async def test_a_model_that_answers_nobody_in_time_is_left_alone_by_all() -> None:
    options = {"memory_planner": "cheap", "summary_breaker_failures": 3}
    async with searched(stalls, endpoint={"timeout": 0.3}, **options) as (world, server):
        for tenant in ("acme", "other", "third", "fourth"):
            answer = await world.ask("What does Ann drink?", Filter(tenant))
        assert "is open after failures in a row" in explained(answer)["fell_back"]["plan"]
        assert len(server.calls) == 3


async def test_a_tenant_whose_budget_is_used_up_asks_no_model() -> None:
    budgets = Budgets(MemoryDailyCounts(), lambda _: Quota(summary_tokens_per_day=100))
    await budgets.reserve("acme", Spending(100, 0.0))
    async with searched(plans(), memory_planner="cheap", budgets=budgets) as (world, server):
        answer = await world.ask("A cup please")
        assert "has used up its quota" in answer.sought.fell_back["plan"] and server.calls == []
        assert (await world.ask("A cup please", Filter("other"))).sought.planned_by == "cheap"


async def test_a_plain_search_and_one_without_models_ask_nobody() -> None:
    async with searched(imagines, memory_planner="cheap", memory_hyde="cheap") as (world, server):
        world.learn_skills()
        await world.ask("A cup please", facts=True)
        await world.ask("A cup please", models=None)
        assert server.calls == []


async def test_the_plans_depth_says_how_many_results_there_are_and_how_deep_it_looks() -> None:
    async with searched(plans(depth=20), memory_planner="cheap") as (world, _):
        texts = (f"Tea of the kind {n} is fine." for n in range(1, 71))
        world.store.apply([told(n, text) for n, text in enumerate(texts, 1)], {})
        assert len((await world.ask("tea")).found) == 20
        assert len((await world.ask("tea", models=None)).found) == 10
        assert len((await world.ask("tea", limit=3)).found) == 3
        hits = []
        for models in (world.models, None):
            recall = Recall(world.store, None, models=models)
            channels, _ = await recall.channels(Question(ACME, "tea"), NOW)
            hits.append({channel: len(found) for channel, found in channels}["text"])
        assert hits == [70, 50]


async def test_what_the_plan_says_is_missing_is_searched_for_and_named_if_it_is_not_found() -> None:
    slots = ["seat preference", "time"]
    async with searched(plans(missing_slots=slots), memory_planner="cheap") as (world, _):
        texts = ["The seat that Ann has a preference for is the aisle.", "Oslo has no metro."]
        world.store.apply([told(n, text) for n, text in enumerate(texts, 1)], {})
        answer = await world.ask("Book me to Oslo")
        assert {one.found.text for one in answer.found} == set(texts)
        document = search_document(answer, given_out(answer, None))
        assert document["missing"] == ["time"]
        rules = await world.ask("Book me to Oslo", models=None)
        assert [one.found.text for one in rules.found] == texts[1:]
        asked = search_document(rules, given_out(rules, None))
        assert asked["missing"] == []


async def test_an_imagined_skill_finds_those_that_share_no_word_with_the_question() -> None:
    async with searched(imagines, memory_hyde="cheap") as (world, server):
        world.learn_skills()
        for query, (wanted, _) in ASKED.items():
            assert await world.skills(query, models=None) == []
            found = await world.skills(query)
            assert found[0] == wanted and len(found) <= 3
        assert len(server.calls) == len(ASKED)
        shown = explained(await world.ask(query))
        assert shown["imagined_skill"]["intent"] == ASKED[query][1]
        assert shown["made_by"] == "rules"


async def test_an_imagined_skill_is_compared_by_its_meaning_too() -> None:
    alike = WordVectors(synonyms={"shoes": "parcel"})
    async with searched(says('{"intent": "Shoes"}'), memory_hyde="cheap") as (world, _):
        world.learn_skills()
        vectors = MemoryVectors(world.store.vectors, Fixed(alike))
        vectors.start()

        async def are_made() -> bool:
            return world.store.vectors.model == alike.model

        await until(are_made, 10, "the vectors are made")
        answer = await world.ask("the boots do not fit", kinds=("skill",), vectors=vectors)
        assert answer.found[0].found.text == "Return a parcel"
        assert "vectors" in answer.found[0].channels
        await vectors.stop()


async def test_nothing_is_imagined_where_the_caller_has_no_skills() -> None:
    async with searched(imagines, memory_hyde="cheap") as (world, server):
        world.learn_skills()
        await world.ask("my heating is broken", Filter("acme", "bob"))
        await world.ask("my heating is broken", kinds=("record",))
        assert server.calls == []


async def test_without_an_answer_skills_are_found_by_text_and_explain_says_why() -> None:
    async with searched(says('{"intent": ""}'), memory_hyde="cheap") as (world, _):
        world.learn_skills()
        answer = await world.ask("how do I return this")
        assert [one.found.text for one in answer.found] == ["Return a parcel"]
        assert "it has no intent" in answer.sought.fell_back["imagined_skill"]
    assert world.counted == [("hyde", "cheap", "rejected")]
