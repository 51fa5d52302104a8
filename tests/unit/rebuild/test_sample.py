"""Two policies side by side on a bounded sample: windows as they are stored, and the same events
under other rules.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from projections.policy.policy import Callables, Rules
from projections.render.render import render_openai
from streams.rebuild.losses import Side
from streams.rebuild.sample import Wanted, compared
from tests.support.compacted_talk import SMALL, CutLog, Talk
from tests.support.mirror import KEY
from tests.unit.rebuild.test_losses import (
    BEHIND,
    BOUNDED,
    CUT,
    SMALLER,
    report,
    stored,
    summarised,
    under,
)
from threadfold.gateway.routes.reprojection import Comparison
from threadfold.testing.memory_log import MemoryLog


async def sample(
    talk: Talk, after: dict[str, Any], log: MemoryLog | None = None, **wanted: Any
) -> dict[str, Any]:
    store, live = await stored(talk.window), Side(1, talk.rules)
    found = await compared(log or talk.messages, store, live, Rules(after), Wanted(**wanted))
    msgspec.convert(found, Comparison)  # it is what the route declares
    return found


async def test_a_sample_shows_both_policies_and_that_nothing_is_lost() -> None:
    talk = await summarised(BOUNDED)
    found = await sample(talk, SMALLER)
    assert found["conversations"] == {"known": 1, "compared": 1, "too_long": 0}
    assert found["events"] == len(talk.log) and found["lost"] == 0
    (window,) = found["windows"]
    before, after = render_openai(talk.window), render_openai(under(SMALLER, talk.log))
    assert window["tokens"] == {"before": before.tokens, "after": after.tokens}
    assert window["messages"] == {"before": len(before.bodies), "after": len(after.bodies)}
    assert found["tokens"]["after"]["sum"] == after.tokens < before.tokens
    assert found["left_out"]["before"] == 0 < found["left_out"]["after"]
    assert found["summaries"] == {"before": 1, "after": 1}


async def test_a_sample_names_the_conversation_that_would_forget_and_why() -> None:
    talk = await summarised(BOUNDED)
    found = await sample(talk, BOUNDED, CutLog(talk.messages, CUT))
    assert found["lost"] == 1
    assert (found["windows"][0]["conversation"], found["windows"][0]["lost"]) == (
        KEY.conversation,
        BEHIND,
    )


async def test_a_sample_is_bounded_in_events_and_may_be_of_one_tenant() -> None:
    talk = await summarised(BOUNDED)
    short = await sample(talk, SMALLER, events=len(talk.log) - 1)
    assert short["conversations"] == {"known": 1, "compared": 0, "too_long": 1}
    assert short["events"] == 0 and short["tokens"]["before"]["sum"] == 0
    assert (await sample(talk, SMALLER, tenant="nobody"))["conversations"]["known"] == 0
    assert (await sample(talk, SMALLER, tenant=KEY.tenant))["conversations"]["compared"] == 1


SHORTENING: dict[str, Any] = {
    **SMALL,
    "reducers": [{"name": "compact_tool_results", "replacement": "callable:shorten"}],
}


def raises(tool: str, call_id: str, text: str) -> str:
    raise KeyError(text[:1])


def panics(_tool: str, _call: str, text: str) -> str:
    class Panic(BaseException):
        pass

    raise Panic(text[:1])


def with_a_result(policy: dict[str, Any], callables: Callables | None = None) -> Talk:
    talk = Talk(policy, callables=callables)
    talk.chat(1)
    talk.call("a")
    talk.say("tool.result", tool_call_id="a", content="the weather is fine " * 50)
    talk.chat(12)
    return talk


@pytest.mark.parametrize(
    ("callables", "why"),
    [
        ({}, "is not registered"),
        ({"shorten": raises}, "raised KeyError"),
        ({"shorten": panics}, "raised Panicked"),
    ],
)
async def test_a_callable_of_the_other_policy_that_does_nothing_here_is_named(
    callables: Callables, why: str
) -> None:
    talk, after = with_a_result(BOUNDED), Rules(SHORTENING, callables=callables)
    store, live = await stored(talk.window), Side(1, talk.rules)
    found = await compared(talk.messages, store, live, after, Wanted())
    msgspec.convert(found, Comparison)
    failure = {"name": "shorten", "why": why, "conversations": 1, "first": str(KEY)}
    assert found["callable_failures"] == [failure]
    document, lines = await report(talk, after)
    assert document["callable_failures"] == [failure]
    assert any(line.startswith(f"callable 'shorten' {why} here: in 1 conv") for line in lines)


async def test_a_callable_of_the_live_policy_that_each_render_lacks_is_named() -> None:
    talk = with_a_result(
        {**SHORTENING, **BOUNDED, "cuts": "exact"}, {"shorten": lambda *_: "short"}
    )
    store, here = await stored(talk.window), Rules(talk.rules.deployment)
    found = await compared(talk.messages, store, Side(1, here), Rules(BOUNDED), Wanted())
    assert [one["name"] for one in found["callable_failures"]] == ["shorten"]


async def test_no_callable_is_named_that_works() -> None:
    talk = with_a_result(BOUNDED)
    after = Rules(SHORTENING, callables={"shorten": lambda *_: "short"})
    store = await stored(talk.window)
    found = await compared(talk.messages, store, Side(1, talk.rules), after, Wanted())
    assert found["callable_failures"] == []
    assert (await report(talk, after))[0]["callable_failures"] == []
