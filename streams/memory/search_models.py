"""What a search of the long-term memory asks models: its plan, and an imagined skill that the real
ones are compared with (hypothetical document embeddings, Gao and others 2022).

A search waits a short time for them, and goes on without: the rules make the plan, and skills are
found by the query alone. Answers are kept for a short time, for the same question of the same
tenant.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256
from typing import Annotated, Any, NamedTuple, TypeVar

import msgspec
from msgspec import Meta

from projections.memory.model_plan import plan_of, rows_of
from projections.memory.planner import ActionState, SearchPlan
from projections.redis.shared_buckets import SharedBuckets
from streams.compaction.summarizers.attempts import Attempts
from streams.compaction.summarizers.budgets import Budgets
from streams.compaction.summarizers.chat_model import ChatModel
from streams.compaction.summarizers.circuit import Circuit
from streams.compaction.summarizers.endpoint import ChargedChat, ChatEndpoint
from streams.compaction.summarizers.endpoint_call import HttpSession, ModelEndpoint
from streams.compaction.summarizers.endpoint_limits import EndpointLimits
from streams.compaction.summarizers.failures import AttemptFailed, EndpointTimedOut
from streams.memory.model_questions import ModelQuestion, ask_model
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
Kept = TypeVar("Kept")

RULES = "rules"
KEEP = 60.0
"""Seconds for which an answer is kept."""
MOST_KEPT = 1_024
GRACE = 0.5
"""Seconds beyond its time for a call that waits for something else than the endpoint."""
PLAN = ModelQuestion(
    kind="plan",
    task="""\
You plan a search of an agent's long-term memory: short records of what users said, prefer and
decided, and of how tools have to be used. They are found by words, meaning, tags and time.""",
    lines='{"today", "query", "recent"? (said just before), "tools"?, "constraints"?, "failures"?}',
    answer="""\
{"mode": "answer" (a question about what is known), "action" (something is to be done) or "mixed",
 "semantic_queries": 1 to 4 ways in which what is wanted may have been said,
 "pragmatic_queries": up to 4 on how it is done, what to mind and what fails; [] in mode answer,
 "tool_hints": of the tools of the data those that matter,
 "required_constraints": [], "required_affordances": [] (what a tool must do): short words,
 "missing_slots": what the answer needs and the query does not say: "time", "place", "person",
  "reason", "quantity", "duration", "age", or a few words such as "seat preference",
 "temporal_filter": null, or {"since", "until"} where the query names a time: days like 2026-03-14,
  until is the day after it,
 "depth": how many records may be needed: 5 for one fact, up to 20 where many things are asked for,
 "reasoning": one short sentence}""",
    tokens=500,
)
SKILL = ModelQuestion(
    kind="hyde",
    task="""\
You imagine the entry of a handbook that tells how what is asked for is done. It need not be true:
real entries are compared with its words.""",
    lines='{"question", "recent"? (said just before), "tools"?}',
    answer="""\
{"intent": what the entry is for, one short sentence in other words than the question's,
 "steps": how it is done, at most 40 words}""",
    tokens=300,
)


class Planned(NamedTuple):
    """A plan, who made it (``rules``, or an endpoint), and why no model did though one is
    configured.
    """

    plan: SearchPlan
    made_by: str = RULES
    fell_back: str | None = None


class Imagined(msgspec.Struct, frozen=True):
    """An imagined skill."""

    intent: Annotated[str, Meta(min_length=1, max_length=1_000)]
    steps: Annotated[str, Meta(max_length=4_000)] = ""


class SearchModels:
    """The models that searches of one process ask. Nothing connects before the first call. Belongs
    to one event loop; ``close`` ends the connections.
    """

    def __init__(
        self,
        settings: Settings,
        env: Mapping[str, str] | None = None,
        *,
        shared: SharedBuckets | None = None,
        budgets: Budgets | None = None,
        count: Callable[[str, str, str], None] = lambda kind, endpoint, outcome: None,
    ) -> None:
        """Args: as ``Summarizers`` has them; ``count`` is called with each question's kind, its
        endpoint, and ``ok`` or why there was no answer.

        Raises:
            InvalidSettings: an endpoint's key is not in the environment variable that should hold
                it.
        """
        env = os.environ if env is None else env
        self._http = HttpSession()
        self._count = count
        self._seconds = settings.memory_model_seconds
        self._kept: dict[bytes, tuple[float, Any]] = {}
        budgets = budgets or Budgets()
        models: dict[str, ChatModel] = {}
        for name in filter(None, {settings.memory_planner, settings.memory_hyde}):
            options = settings.summarizers[name]
            limits = EndpointLimits(name, options, shared, budgets=budgets)
            circuit = Circuit(settings.summary_breaker_failures, settings.summary_breaker_seconds)
            key = options.find_key(name, env)
            endpoint = ChatEndpoint(ModelEndpoint(name, options, key, self._http.get))
            chat = ChargedChat(endpoint, limits, budgets)
            models[name] = ChatModel(chat, Attempts(limits, circuit, 1, self._seconds))
        self._planner = models.get(settings.memory_planner)
        self._hyde = models.get(settings.memory_hyde)

    @property
    def imagines(self) -> bool:
        """Whether a model is configured that imagines skills."""
        return self._hyde is not None

    async def plan(self, tenant: str, state: ActionState) -> tuple[Planned | None, str | None]:
        """The plan of a search that the model makes; None, and why, where there is none."""
        model = self._planner
        if model is None:
            return None, None
        made, why = await self._asked(
            model, tenant, PLAN, rows_of(state), lambda answer: plan_of(answer, state)
        )
        return (None if made is None else Planned(made, model.name)), why

    async def imagine(self, tenant: str, state: ActionState) -> tuple[Imagined | None, str | None]:
        """The imagined skill that answers a query; None, and why, where there is none."""
        model = self._hyde
        if model is None:
            return None, None
        row = {
            "question": state.query,
            **({"recent": state.recent} if state.recent else {}),
            **({"tools": state.tools} if state.tools else {}),
        }
        return await self._asked(model, tenant, SKILL, [row], _imagined_of)

    async def close(self) -> None:
        """End the connections to endpoints."""
        await self._http.close()

    # -- parts

    async def _asked(
        self,
        model: ChatModel,
        tenant: str,
        question: ModelQuestion,
        rows: Sequence[Mapping[str, Any]],
        read: Callable[[dict[str, Any]], Kept],
    ) -> tuple[Kept | None, str | None]:
        place = sha256(msgspec.json.encode([question.kind, model.model, tenant, rows])).digest()
        self._drop_old()
        if place in self._kept:
            return self._kept[place][1], None
        try:
            made = await self._in_time(ask_model(model, tenant, question, rows, read))
        except Exception as error:
            reason = error.kind if isinstance(error, AttemptFailed) else "error"
            self._count(question.kind, model.name, reason)
            if not isinstance(error, AttemptFailed):
                logger.exception("model %r failed (%s)", model.name, question.kind)
                return None, f"an unexpected error ({type(error).__name__})"
            logger.warning("%s", error, extra={"tenant": tenant})
            return None, str(error)
        self._count(question.kind, model.name, "ok")
        self._kept.pop(place, None)
        self._kept[place] = time.monotonic() + KEEP, made
        return made, None

    async def _in_time(self, asking: Awaitable[Kept]) -> Kept:
        try:
            async with asyncio.timeout(self._seconds + GRACE):
                return await asking
        except TimeoutError:
            raise EndpointTimedOut(f"there was no answer within {self._seconds:g} s") from None

    def _drop_old(self) -> None:
        """Drop the answers that were kept for long enough, and more if there are very many."""
        while self._kept:
            place, (end, _) = next(iter(self._kept.items()))
            if end > time.monotonic() and len(self._kept) < MOST_KEPT:
                return
            del self._kept[place]


def _imagined_of(answer: dict[str, Any]) -> Imagined:
    try:
        return msgspec.convert(answer, Imagined)
    except msgspec.ValidationError:
        raise ValueError("it has no intent") from None
