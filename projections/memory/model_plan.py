"""A search plan that a model made, checked. Where anything of it is not what was asked for, all of
it is refused, and the rules make the plan.
"""

from __future__ import annotations

import re
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from projections.events.times import parse_micros, time_at
from projections.memory.planner import ActionState, Mode, SearchPlan, TemporalFilter

MOST_QUERIES = 4
MOST_DEPTH = 20
_LONGEST_REASON = 300
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_Query = Annotated[str, Meta(min_length=1, max_length=400)]
_Queries = Annotated[list[_Query], Meta(max_length=MOST_QUERIES)]
_Word = Annotated[str, Meta(min_length=1, max_length=100)]
_Words = Annotated[list[_Word], Meta(max_length=16)]


class _ModelTime(msgspec.Struct):
    since: str | None = None
    until: str | None = None


class _ModelPlan(msgspec.Struct):
    mode: Mode
    semantic_queries: Annotated[list[_Query], Meta(min_length=1, max_length=MOST_QUERIES)]
    pragmatic_queries: _Queries
    tool_hints: _Words
    required_constraints: _Words
    required_affordances: _Words
    missing_slots: _Words
    reasoning: str
    temporal_filter: _ModelTime | None = None
    depth: Annotated[int, Meta(ge=1, le=MOST_DEPTH)] = 5


def rows_of(state: ActionState) -> list[dict[str, Any]]:
    """What a model is sent of a state: one row of data."""
    fields = msgspec.structs.asdict(state)
    row = {name: value for name, value in fields.items() if value and name != "now"}
    return [{"today": time_at(state.now)[:10], **row}]


def plan_of(answer: Any, state: ActionState) -> SearchPlan:
    """The plan of a model's answer to a state.

    What the caller asked for stays: the mode, the query itself, and its constraints.

    Raises:
        ValueError: a field is missing, or not what was asked for; the message says which.
    """
    try:
        made = msgspec.convert(answer, _ModelPlan)
    except msgspec.ValidationError as error:
        # Its sentence may quote the answer.
        place = re.search(r"field `(\w+)`|at `\$\.(\w+)", str(error))
        named = f"its field {place[1] or place[2]}" if place else "its plan"
        raise ValueError(f"{named} is not what was asked for") from None
    if state.tools and not set(made.tool_hints) <= set(state.tools):
        raise ValueError("its field tool_hints names tools that there are not")
    return SearchPlan(
        mode=state.mode or made.mode,
        semantic_queries=list(dict.fromkeys([state.query, *made.semantic_queries])),
        pragmatic_queries=list(dict.fromkeys(made.pragmatic_queries)),
        tool_hints=list(dict.fromkeys([*made.tool_hints, *state.tools])),
        required_constraints=list(dict.fromkeys([*state.constraints, *made.required_constraints])),
        required_affordances=made.required_affordances,
        missing_slots=made.missing_slots,
        temporal_filter=_filter_of(made.temporal_filter),
        depth=made.depth,
        reasoning=" ".join(made.reasoning.split())[:_LONGEST_REASON],
    )


def _filter_of(given: _ModelTime | None) -> TemporalFilter | None:
    if given is None or (given.since is None and given.until is None):
        return None
    found = TemporalFilter(_micros(given.since), _micros(given.until))
    if found.since is not None and found.until is not None and found.since >= found.until:
        raise ValueError("its field temporal_filter ends before it begins")
    return found


def _micros(given: str | None) -> int | None:
    """A day, or an RFC 3339 time, in microseconds since 1970."""
    if given is None:
        return None
    at = parse_micros(f"{given}T00:00:00Z" if _DAY.fullmatch(given) else given)
    if at is None:
        raise ValueError("its field temporal_filter has a value that is not a time")
    return at
