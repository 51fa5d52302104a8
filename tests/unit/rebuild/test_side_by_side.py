"""A conversation's two windows side by side: which messages are paired, and which rows differ."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from projections.errors import CallableUnavailable, InvalidRequest, UnknownConversation
from projections.policy.policy import Rules
from projections.render.render import render_openai
from streams.rebuild.losses import Side
from streams.rebuild.side_by_side import WantedWindow, side_by_side
from tests.support.compacted_talk import SMALL, CutLog, Talk
from tests.support.mirror import KEY
from tests.unit.rebuild.test_losses import BEHIND, BOUNDED, CUT, SMALLER, stored, summarised, under
from threadfold.gateway.routes.side_by_side import TwoWindows


async def shown(talk: Talk, after: dict[str, Any], **wanted: Any) -> dict[str, Any]:
    store, live = await stored(talk.window), Side(1, talk.rules)
    asked = WantedWindow(*KEY, **{"text": True, **wanted})
    found = await side_by_side(talk.messages, store, live, Rules(after), asked)
    msgspec.convert(found, TwoWindows)  # it is what the route declares
    return found


def side(found: dict[str, Any], name: str) -> list[dict[str, Any]]:
    return [row[name] for row in found["rows"] if row[name] is not None]


async def test_each_side_is_the_window_that_a_model_is_sent() -> None:
    talk = await summarised(BOUNDED)
    found = await shown(talk, SMALLER)
    renders = render_openai(talk.window), render_openai(under(SMALLER, talk.log))
    for name, render in zip(("before", "after"), renders, strict=True):
        assert found["tokens"][name] == render.tokens
        roles = [msgspec.json.decode(body)["role"] for body in render.bodies]
        assert [one["role"] for one in side(found, name)] == roles
        for body, one in zip(render.bodies, side(found, name), strict=True):
            said = " ".join(str(msgspec.json.decode(body)["content"]).split())
            assert " ".join(one["text"].rstrip("…").split()) in said
    assert found["events"] == len(talk.log) and found["lost"] is None


async def test_the_message_of_one_event_stands_in_one_row_and_what_one_side_lacks_is_marked() -> (
    None
):
    talk = await summarised(BOUNDED)
    found = await shown(talk, SMALLER)
    for row in found["rows"]:
        before, after = row["before"], row["after"]
        if before and after:
            assert before["position"] == after["position"]
            assert row["differs"] == (before["text"] != after["text"])
        else:
            assert row["differs"]
    assert 0 < found["differing"] == sum(row["differs"] for row in found["rows"])
    alike = await shown(talk, BOUNDED)
    assert alike["differing"] == 0 and all(row["before"] == row["after"] for row in alike["rows"])


async def test_what_the_log_has_lost_is_named_before_any_rule() -> None:
    talk = await summarised(BOUNDED)
    store, live = await stored(talk.window), Side(1, talk.rules)
    log, asked = CutLog(talk.messages, CUT), WantedWindow(*KEY)
    found = await side_by_side(log, store, live, Rules(BOUNDED), asked)
    assert found["lost"] == BEHIND


async def test_without_the_right_to_it_no_text_is_shown() -> None:
    talk = Talk(BOUNDED)
    talk.say("message", role="user", content="a secret of the tenant")
    found = await shown(talk, SMALL, text=False)
    assert side(found, "before") and "secret" not in str(found)
    assert {one["text"] for name in ("before", "after") for one in side(found, name)} == {None}
    assert found["text"] is False


async def test_calls_are_shown_and_a_result_that_one_policy_shortens_differs() -> None:
    talk = Talk(BOUNDED)
    talk.call("a")
    talk.say("tool.result", tool_call_id="a", content="the weather is fine " * 50)
    talk.chat(12)
    reducer = {"name": "compact_tool_results", "replacement": "template"}
    found = await shown(talk, {**BOUNDED, "reducers": [reducer], "cuts": "exact"})
    call = next(one for one in side(found, "before") if one["role"] == "assistant")
    assert "[calls " in call["text"]
    (result,) = (row for row in found["rows"] if row["before"]["role"] == "tool")
    assert result["differs"] and result["after"]["tokens"] < result["before"]["tokens"]
    assert result["after"]["shortened"] == ["compact_tool_results"]
    assert len(result["before"]["text"]) == 500 and result["before"]["text"].endswith("…")


async def test_a_conversation_that_is_unknown_too_long_or_needs_code_is_refused() -> None:
    talk = await summarised(BOUNDED)
    store, live = await stored(talk.window), Side(1, talk.rules)
    with pytest.raises(UnknownConversation):
        await side_by_side(
            talk.messages, store, live, Rules(SMALLER), WantedWindow(KEY.tenant, "other")
        )
    with pytest.raises(InvalidRequest, match="too many"):
        await shown(talk, SMALLER, events=len(talk.log) - 1)
    coded = Talk(BOUNDED)
    coded.call("a")
    coded.say("tool.result", tool_call_id="a", content="the weather is fine " * 50)
    coded.chat(12)
    reducer = {"name": "compact_tool_results", "replacement": "callable:shorten"}
    with pytest.raises(CallableUnavailable, match="shorten"):
        await shown(coded, {**SMALL, "reducers": [reducer]})
