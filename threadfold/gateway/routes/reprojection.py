"""The routes of re-projection, for the platform's operator: generations of windows, what another
policy would change, and building, switching to and dropping a generation.

A task goes on after its answer. The list of generations says how far it is, and why it failed.
"""

from __future__ import annotations

import re
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from projections.errors import InvalidRequest
from projections.names import check_name
from streams.control.generations import UnknownGeneration
from streams.rebuild.sample import MOST_CONVERSATIONS, MOST_EVENTS, Wanted
from threadfold.gateway.access import Caller
from threadfold.gateway.answers import Count
from threadfold.gateway.declaration import Answer, Cost, Routes
from threadfold.gateway.examples import CONVERSATION, TIME
from threadfold.gateway.parameters import Path
from threadfold.gateway.request import Body, Request
from threadfold.schemas.policy import policy_schema
from threadfold.schemas.structs import NAME
from threadfold.service.generation_tasks import GenerationTasks

routes = Routes("Operations")
_admin = partial(routes.add, scope="admin", cost=Cost.ADMINISTRATION)
_ALL = "/v1/generations"
_ONE = f"{_ALL}/{{number}}"
PolicyBody = Annotated[dict[str, Any], Meta(extra_json_schema=policy_schema())]
GenerationNumber = Annotated[int, Meta(ge=1, le=1 << 31)]
_At = Annotated[str, Path(example="2"), Meta(extra_json_schema={"pattern": "^[1-9][0-9]{0,8}$"})]


class LossOfSwitch(Struct):
    """What a conversation would lose or lost by a switch, or why that is not known (`because`)."""

    conversation: str
    because: str


class Task(Struct):
    """What is or was done with a generation, from when to when (null: it goes on), and why it
    failed. `would_lose`: the switch was refused because conversations would forget what their
    windows hold. `lost` counts these, also after a switch that accepted the loss; `losses` names
    the first 100.
    """

    generation: Count
    doing: Literal["build", "switch", "drop"]
    begun: str
    ended: str | None
    error: str | None
    would_lose: bool
    lost: Count
    losses: list[LossOfSwitch]


class ListedGeneration(Struct):
    """A set of windows under its own rules. `stage`: `live`, `building`, `ready` to become live, or
    `retired`. `created` and `live_at` are null if that was not noted.

    `left`: of one that is building or ready, how many of the log's events it has not folded yet.
    `task`: what gateways did with it last, as long as they run.
    """

    number: Count
    stage: Literal["live", "building", "ready", "retired"]
    partitions: Count
    created: str | None
    live_at: str | None
    policy: dict[str, Any]
    left: Count | None
    task: Task | None


class Generations(Struct):
    """All generations, the newest first."""

    generations: list[ListedGeneration]


class NewGeneration(Struct, forbid_unknown_fields=True):
    """A generation to build: the deployment's policy in it (null: the live one's)."""

    policy: PolicyBody | None = None


class Begun(Struct):
    """A build has begun. `resumed`: the generation was begun before, and is gone on with."""

    generation: Count
    resumed: bool


class Switch(Struct, forbid_unknown_fields=True):
    """`accept_loss`: switch even if conversations lose what their windows hold."""

    accept_loss: bool = False


class TaskBegun(Struct):
    """The task has begun."""

    generation: Count
    doing: Literal["switch", "drop"]


class ToCompare(Struct, forbid_unknown_fields=True):
    """What to compare with the live generation: a `policy` of the deployment, or that of a
    `generation`; on a sample of all tenants' conversations, or of one tenant's.
    """

    policy: PolicyBody | None = None
    generation: GenerationNumber | None = None
    tenant: Annotated[str, Meta(extra_json_schema=NAME)] | None = None
    conversations: Annotated[int, Meta(ge=1, le=MOST_CONVERSATIONS)] = 50


NOT_BOTH = {
    "anyOf": [{"properties": {name: {"type": "null"}}} for name in ("policy", "generation")]
}
"""A comparison has a policy or a generation."""


def check_not_both(policy: dict[str, Any] | None, generation: int | None) -> None:
    """Raises InvalidRequest for a comparison with both."""
    if policy is not None and generation is not None:
        raise InvalidRequest("give policy or generation, not both")


class Sides(Struct):
    """A count under the live generation's rules, and under the others."""

    before: Count
    after: Count


class TokenSides(Struct):
    """The tokens of a context under the two policies; null: it cannot be rendered."""

    before: Count | None
    after: Count | None


class FlagSides(Struct):
    """Whether it holds under the two policies."""

    before: bool
    after: bool


class Spread(Struct):
    """The sum of all values, their median, their 95th percentile and the largest one."""

    sum: Count
    p50: Count
    p95: Count
    max: Count


class SpreadSides(Struct):
    """The tokens of all contexts under the two policies."""

    before: Spread
    after: Spread


class Sampled(Struct):
    """How many conversations there are, how many were compared, and how many of the sample had more
    events than could be folded.
    """

    known: Count
    compared: Count
    too_long: Count


class ComparedWindow(Struct):
    """One conversation under the two policies: its context's tokens and messages, older messages
    that are left out, whether a summary is in force, and whether one is due. `lost`: why the switch
    would lose what its summaries hold.
    """

    tenant: str
    conversation: str
    events: Count
    tokens: TokenSides
    messages: Sides
    left_out: Sides
    summary: FlagSides
    due: FlagSides
    lost: str | None


class FailedCallable(Struct):
    """A callable of a policy that the gateway lacks, or in which it raised an error (`why`): in how
    many `conversations` of the sample, and the `first` of them. The default template is used there.
    """

    name: str
    why: str
    conversations: Count
    first: str


class Comparison(Struct):
    """Two policies on a sample: totals, and each conversation, losses and the largest changes
    first. `summaries` and `due` count conversations; `cost_of_a_summary` is the mean of those in
    the sample that have a cost. With `callable_failures`, workers may come to other windows. No
    text is shown.
    """

    generation: Count
    conversations: Sampled
    events: Count
    tokens: SpreadSides
    messages: Sides
    does_not_fit: Sides
    left_out: Sides
    summaries: Sides
    due: Sides
    cost_of_a_summary: float | None
    lost: Count
    callable_failures: list[FailedCallable]
    windows: list[ComparedWindow]


_GENERATION = {
    "number": 2,
    "stage": "live",
    "partitions": 16,
    "created": TIME,
    "live_at": TIME,
    "policy": {"working_budget": 20000},
    "left": None,
    "task": None,
}
_POLICY = {"policy": {"working_budget": 10000}}


def _sides(before: Any, after: Any) -> dict[str, Any]:
    return {"before": before, "after": after}


_COMPARISON = {
    "generation": 1,
    "conversations": {"known": 1, "compared": 1, "too_long": 0},
    "events": 120,
    "tokens": _sides(
        {"sum": 18000, "p50": 18000, "p95": 18000, "max": 18000},
        {"sum": 9000, "p50": 9000, "p95": 9000, "max": 9000},
    ),
    "messages": _sides(60, 31),
    "does_not_fit": _sides(0, 0),
    "left_out": _sides(0, 0),
    "summaries": _sides(0, 0),
    "due": _sides(0, 1),
    "cost_of_a_summary": None,
    "lost": 0,
    "callable_failures": [],
    "windows": [
        {
            "tenant": "nord",
            "conversation": CONVERSATION,
            "events": 120,
            "tokens": _sides(18000, 9000),
            "messages": _sides(60, 31),
            "left_out": _sides(0, 0),
            "summary": _sides(False, False),
            "due": _sides(False, True),
            "lost": None,
        }
    ],
}


@_admin(
    "GET",
    _ALL,
    "List generations",
    Answer(Generations, example={"generations": [_GENERATION]}),
)
async def get_generations(request: Request, caller: Caller) -> dict[str, Any]:
    """All generations of windows, each with its stage, the deployment's policy in it, and what is
    done with it. `threadfold rebuild` makes them, too.
    """
    return {"generations": await tasks_of(request, caller).listed()}


@_admin(
    "POST",
    f"{_ALL}/compare",
    "Compare policies",
    Answer(Comparison, example=_COMPARISON),
    body=Body(
        Annotated[ToCompare, Meta(extra_json_schema=NOT_BOTH)],
        {"a policy": {**_POLICY, "conversations": 20}},
    ),
    problems=(404,),
)
async def post_compare(request: Request, caller: Caller, body: ToCompare) -> dict[str, Any]:
    """What another policy would change: a sample of conversations as their windows are, and folded
    from the log under the other rules. Nothing is written.

    At most 20,000 events are folded. Comparisons take turns. `threadfold rebuild --dry-run`
    compares more.
    """
    check_not_both(body.policy, body.generation)
    if body.tenant is not None:
        check_name("tenant", body.tenant)
    wanted = Wanted(body.policy, body.generation, body.tenant, body.conversations, MOST_EVENTS)
    return await tasks_of(request, caller).compare(caller.tenant, wanted)


@_admin(
    "POST",
    _ALL,
    "Build a generation",
    Answer(Begun, example={"generation": 3, "resumed": False}),
    status=202,
    body=Body(NewGeneration, {"under a policy": _POLICY}, required=False),
    problems=(409,),
)
async def post_generation(request: Request, caller: Caller, body: NewGeneration) -> dict[str, Any]:
    """Fold the whole log into a new generation beside the live one, which keeps serving. What was
    begun under the same policy is gone on with. 409 while this gateway works on a generation.
    """
    number, resumed = await tasks_of(request, caller).build(body.policy)
    return {"generation": number, "resumed": resumed}


@_admin(
    "POST",
    f"{_ONE}/switch",
    "Switch to a generation",
    Answer(TaskBegun, example={"generation": 2, "doing": "switch"}),
    status=202,
    body=Body(Switch, {"only without loss": {"accept_loss": False}}, required=False),
    problems=(409,),
)
async def post_switch(
    request: Request, caller: Caller, body: Switch, number: _At
) -> dict[str, Any]:
    """Make a generation live: a new one, or an earlier one. It is first folded up to the live one's
    position. If conversations would lose what their windows hold, the task fails with
    `would_lose`, unless the loss is accepted.
    """
    found = _number(number)
    await tasks_of(request, caller).switch(found, accept_loss=body.accept_loss)
    return {"generation": found, "doing": "switch"}


@_admin(
    "DELETE",
    _ONE,
    "Drop a generation",
    Answer(TaskBegun, example={"generation": 2, "doing": "drop"}),
    status=202,
    problems=(409,),
)
async def delete_generation(request: Request, caller: Caller, number: _At) -> dict[str, Any]:
    """Delete a generation's windows and its record. The log stays. 409 for the live one."""
    found = _number(number)
    await tasks_of(request, caller).drop(found)
    return {"generation": found, "doing": "drop"}


def _number(text: str) -> int:
    if re.fullmatch("[1-9][0-9]{0,8}", text) is None:
        raise UnknownGeneration(f"{text[:20]!r} is not a generation's number")
    return int(text)


def tasks_of(request: Request, caller: Caller) -> GenerationTasks:
    return request.state.generation_tasks(caller.backend)
