"""Which events of a log rollbacks abandoned, for LangGraph's adapter: history shows rejected rollbacks
like others.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

pytest.importorskip("langgraph", reason="langgraph is not installed (the extra langgraph)")

from threadfold_client import AsyncClient, Call
from threadfold_client.adapters.langgraph_history import Backwards, is_lost


class Answers:
    """A transport over a log, and over a window that holds these positions."""

    def __init__(self, log: Sequence[dict[str, Any]], shown: Sequence[str] = ()) -> None:
        self._log = log
        self._shown = shown
        self.contexts = 0

    async def request(self, call: Call) -> bytes:
        if call.name == "history":
            end = int(call.query.get("before", len(self._log)))
            begin = max(0, end - int(call.query["limit"]))
            before = str(begin) if begin else None
            return msgspec.json.encode(
                {"events": self._log[begin:end][::-1], "next_before": before}
            )
        assert call.name == "context"
        self.contexts += 1
        messages = [{"type": "message", "position": position} for position in self._shown]
        return msgspec.json.encode({**_CONTEXT, "messages": messages})

    def stream(self, call: Call) -> Any:
        raise NotImplementedError

    async def close(self) -> None:
        pass


_CONTEXT = {
    "tokens": 1,
    "budget": 1,
    "ceiling": 1,
    "utilization": 0.0,
    "position": "0-0",
    "count": 1,
    "digest": "",
    "render_digest": "",
    "summary": None,
    "suspensions": [],
    "state": "active",
    "awaits": "model",
    "guard": None,
    "trace": [],
}


def said(count: int) -> list[dict[str, Any]]:
    return [{"id": f"e{i}", "type": "message", "position": f"0-{i}"} for i in range(count)]


def back(at: int, to: str) -> dict[str, Any]:
    return {"id": f"r{at}", "type": "rollback", "position": f"0-{at}", "to": to}


async def standing(answers: Answers) -> list[str]:
    log = Backwards(AsyncClient.over(answers), "c", None)
    return [event["id"] async for event, by in log.events() if by is None]


@pytest.mark.parametrize("to", ["e1", "0-1"])
async def test_what_is_behind_the_event_that_a_rollback_names_is_abandoned(to: str) -> None:
    log = [*said(4), back(4, to), {**said(6)[5]}]
    assert await standing(Answers(log)) == ["e5", "e1", "e0"]


async def test_what_an_earlier_rollback_had_abandoned_is_its_own() -> None:
    log = [*said(4), back(4, "e1"), {**said(6)[5]}, back(6, "0-0")]
    found = Backwards(AsyncClient.over(Answers(log)), "c", None).events()
    by = {event["id"]: rollback async for event, rollback in found}
    assert by == {"e5": "r6", "e3": "r4", "e2": "r4", "e1": "r6", "e0": None}


@pytest.mark.parametrize("to", ["typo", "0-9", "1-1", "0-2"])
async def test_a_rollback_that_names_no_event_before_it_abandons_nothing(to: str) -> None:
    first, second, _, last = said(4)
    answers = Answers([first, second, last, back(4, to)])
    assert await standing(answers) == ["e3", "e1", "e0"]
    assert answers.contexts == 0


async def test_a_rollback_abandons_nothing_if_the_window_has_a_message_behind_its_target() -> None:
    log = [*said(4), back(4, "e1")]
    assert await standing(Answers(log, ["0-1", "0-3"])) == ["e3", "e2", "e1", "e0"]


async def test_a_rollback_in_what_a_rejected_one_names_counts() -> None:
    log = [*said(4), back(4, "e2"), {**said(6)[5]}, back(6, "typo")]
    assert await standing(Answers(log)) == ["e5", "e2", "e1", "e0"]


@pytest.mark.parametrize(("behind", "stands"), [(1023, ["e0"]), (1024, None)])
async def test_an_id_is_found_among_the_last_1024_events(
    behind: int, stands: list[str] | None
) -> None:
    log = [*said(behind + 1), back(behind + 1, "e0")]
    found = await standing(Answers(log))
    assert found == (stands or [f"e{i}" for i in range(behind, -1, -1)])


async def test_a_rollback_to_a_piece_of_a_long_result_abandons_the_result() -> None:
    result = {
        "id": "t1",
        "type": "tool.result",
        "position": "0-5",
        "spill": {"chunks": ["0-3", "0-4"]},
    }
    log = [*said(3), result, back(6, "0-3")]
    assert await standing(Answers(log)) == ["e2", "e1", "e0"]


@pytest.mark.parametrize(
    ("event", "lost"),
    [
        ({"type": "message", "id": "m1"}, True),
        ({"type": "message", "id": "langgraph-m1"}, False),
        ({"type": "memory.saved", "id": "s1"}, True),
        ({"type": "memory.saved", "id": "s1", "origin": "rules"}, False),
        ({"type": "memory.retrieved", "id": "s1"}, False),
        ({"type": "memory.deleted", "id": "s1", "origin": "explicit"}, True),
        ({"type": "skill.saved", "id": "s1"}, True),
        ({"type": "turn.started", "id": "t1"}, False),
        ({"type": "acme.reaction.v1", "id": "a1"}, False),
    ],
)
def test_what_others_said_or_saved_would_be_lost(event: dict[str, Any], lost: bool) -> None:
    assert is_lost(event) is lost
