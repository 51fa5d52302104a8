"""Grouping: event by event it is what grouping from scratch gives, and calls and results pair by
occurrence in order.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from hypothesis import given, settings
from hypothesis import strategies as st

from projections.events import types as events
from projections.policy.policy import Rules
from projections.window.groups import Group, Grouper, group_tail
from tests.support.histories import Writer, random_log
from tests.support.profiles import examples

ROOMY = Rules(
    {
        "working_budget": 10**6,
        "model_window": 10**7,
        "compaction": False,
        "trim_tool_results": False,
    }
)


def shape(groups: list[Group]) -> list[tuple[int, list[tuple[int, int]]]]:
    return [
        (group.head.offset, sorted((i, entry.offset) for i, entry in group.results.items()))
        for group in groups
    ]


@given(st.integers(0, 2**32), st.integers(1, 70))
@settings(max_examples=examples(150), deadline=None)
def test_grouping_event_by_event_is_grouping_from_scratch(seed: int, length: int) -> None:
    window = random_log(seed, length).window
    grouper = Grouper()
    for i, entry in enumerate(window.tail):
        grouper.add(entry)
        assert shape(grouper.groups) == shape(group_tail(window.tail[: i + 1]))


@dataclass
class Called:
    """A call of the oracle: its message and place in it, its id, and whether the user or its turn's
    end has passed it.
    """

    message: int
    index: int
    id: str
    dead: bool = False
    result: int | None = None


def paired(log: list[tuple[int, object]]) -> tuple[dict[int, tuple[int, int]], set[int]]:
    """Which call each result answers, told from the whole log by the rule alone; and the results
    that answer none.
    """
    calls: list[Called] = []
    early: list[tuple[int, str]] = []
    links: dict[int, tuple[int, int]] = {}
    orphans: set[int] = set()
    for offset, data in log:
        if (isinstance(data, events.Message) and data.role == "user") or isinstance(
            data, events.TurnEnded
        ):
            for call in calls:
                call.dead = True
        elif isinstance(data, events.Message) and data.tool_calls:
            for index, one in enumerate(data.tool_calls):
                call = Called(offset, index, one.id)
                waits = next((item for item in early if item[1] == one.id), None)
                if waits is not None:
                    early.remove(waits)
                    orphans.discard(waits[0])
                    call.result = waits[0]
                    links[waits[0]] = (offset, index)
                calls.append(call)
        elif isinstance(data, events.ToolResult):
            opened = [
                call for call in calls if call.id == data.tool_call_id and call.result is None
            ]
            alive = [call for call in opened if not call.dead]
            chosen = alive[0] if alive else opened[-1] if opened else None
            if chosen is not None:
                chosen.result = offset
                links[offset] = (chosen.message, chosen.index)
                continue
            orphans.add(offset)
            if all(call.id != data.tool_call_id for call in calls):
                early.append((offset, data.tool_call_id))
    return links, orphans


@given(st.integers(0, 2**32))
@settings(max_examples=examples(150), deadline=None)
def test_results_pair_with_calls_by_occurrence_in_order(seed: int) -> None:
    rng = random.Random(seed)
    writer = Writer(rng, ROOMY)
    said: list[tuple[int, object]] = []
    for _ in range(50):
        data: object
        roll = rng.random()
        if roll < 0.15:
            data = events.Message("user", "go on")
        elif roll < 0.2:
            data = events.TurnEnded("t")
        elif roll < 0.55:
            ids = [rng.choice("abcd") for _ in range(rng.choice([1, 1, 2, 3]))]
            data = events.Message(
                "assistant", None, tool_calls=[events.ToolCall(id_, "look", "{}") for id_ in ids]
            )
        else:
            data = events.ToolResult(rng.choice("abcd"), "found")
        writer.append(data, tokens=10)
        said.append((writer.next_offset, data))
    links, orphans = paired(said)
    groups = group_tail(writer.window.tail)
    assert {
        entry.offset: (g.head.offset, i) for g in groups for i, entry in g.results.items()
    } == links
    assert {group.head.offset for group in groups if group.orphan} == orphans
