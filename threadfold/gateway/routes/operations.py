"""The routes of the platform's operator beside those of tenants: the generations of windows."""

from __future__ import annotations

from functools import partial
from typing import Any, Literal

from msgspec import Struct

from threadfold.gateway.access import Caller
from threadfold.gateway.answers import Count
from threadfold.gateway.declaration import Answer, Cost, Routes
from threadfold.gateway.examples import TIME

routes = Routes("Operations")
_admin = partial(routes.add, scope="admin", cost=Cost.ADMINISTRATION)


class ListedGeneration(Struct):
    """A set of windows under its own rules. `stage`: `live`, `building`, `ready` to become live, or
    `retired`. `created` and `live_at` are null if that was not noted.
    """

    number: Count
    stage: Literal["live", "building", "ready", "retired"]
    partitions: Count
    created: str | None
    live_at: str | None
    policy: dict[str, Any]


class Generations(Struct):
    """All generations, the newest first."""

    generations: list[ListedGeneration]


_GENERATION = {
    "number": 2,
    "stage": "live",
    "partitions": 16,
    "created": TIME,
    "live_at": TIME,
    "policy": {"working_budget": 20000},
}


@_admin(
    "GET",
    "/v1/generations",
    "List generations",
    Answer(Generations, example={"generations": [_GENERATION]}),
)
async def get_generations(caller: Caller) -> dict[str, Any]:
    """All generations of windows, each with its stage and the deployment's policy in it.
    `threadfold rebuild` makes them.
    """
    state = await caller.backend.control.sync()
    return {
        "generations": [
            {
                "number": one.number,
                "stage": state.stage_of(one),
                "partitions": one.partitions,
                "created": one.created,
                "live_at": one.live_at,
                "policy": one.policy,
            }
            for one in sorted(state.generations.values(), key=lambda one: -one.number)
        ]
    }
