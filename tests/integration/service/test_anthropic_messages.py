"""Messages in Anthropic's format come back through the gateway as they were."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import orjson

from tests.support import anthropic_checker
from tests.support.gateway import Client, is_problem
from threadfold.service.conversations import ConversationService


async def test_anthropic_messages_come_back_as_they_were(call: Client) -> None:
    path = "/v1/conversations/claude"
    use = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Oslo"}}
    answer = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "content": [{"type": "text", "text": "rain"}],
    }
    messages = [
        {"role": "system", "content": "You help."},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}], "id": "m1"},
        {"role": "assistant", "content": [{"type": "text", "text": "I look."}, use]},
        {
            "role": "user",
            "content": [answer, {"type": "text", "text": "And tomorrow?"}],
            "id": "m2",
        },
    ]
    landed = (
        await call("POST", f"{path}/messages?format=anthropic&wait=applied", messages)
    ).json()["events"]
    assert [event["status"] for event in landed] == ["applied"] * 5
    assert [event["id"] for event in landed if event["id"].startswith("m")] == ["m1", "m2", "m2-2"]
    context = (await call("GET", f"{path}/context?format=anthropic")).json()
    assert context["system"] == "You help."
    assert context["messages"] == [
        {name: message[name] for name in ("role", "content")} for message in messages[1:]
    ]
    assert context["render_digest"] == sha256(orjson.dumps(context["messages"])).hexdigest()
    events = (await call("GET", f"{path}/context?format=events")).json()
    assert [event["type"] for event in events["messages"]] == [
        "message",
        "message",
        "message",
        "tool.result",
        "message",
    ]
    assert [event["position"] for event in events["messages"]] == [
        event["position"] for event in landed
    ]
    assert events["render_digest"] == sha256(orjson.dumps(events["messages"])).hexdigest()
    assert (await call("GET", f"{path}/context?format=anthropic&max_tokens=1")).status_code == 422


async def test_images_and_documents_of_a_result_come_back(call: Client) -> None:
    path = "/v1/conversations/claude-shown"
    image = {"type": "image", "source": {"type": "url", "url": "https://example.org/a.png"}}
    text = {"type": "text", "media_type": "text/plain", "data": "hello"}
    shown = [image, {"type": "document", "source": text}]
    messages = [
        {"role": "user", "content": [{"type": "text", "text": "Look."}]},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "screenshot", "input": {}}],
        },
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "t1", "content": shown}],
        },
    ]
    await call("POST", f"{path}/messages?format=anthropic&wait=applied", messages)
    context = (await call("GET", f"{path}/context?format=anthropic")).json()
    assert context["messages"] == messages
    openai = (await call("GET", f"{path}/context")).json()
    assert openai["tokens"] == context["tokens"]
    assert [part["text"] for part in openai["messages"][-1]["content"]] == [
        "[an image]",
        "[a file]",
    ]


async def test_an_answer_that_was_cut_while_the_model_thought_does_not_spoil_contexts(
    call: Client,
) -> None:
    path = "/v1/conversations/claude-cut"
    thought = {"type": "thinking", "thinking": "hm", "signature": "sig"}
    cut = {
        "type": "message",
        "role": "assistant",
        "content": [thought],
        "stop_reason": "max_tokens",
    }
    messages = [{"role": "user", "content": "q"}, cut, {"role": "user", "content": "Go on."}]
    await call("POST", f"{path}/messages?format=anthropic&wait=applied", messages)
    context = (await call("GET", f"{path}/context?format=anthropic")).json()
    assert context["messages"][1]["content"] == [thought, {"type": "text", "text": "[empty]"}]
    assert anthropic_checker.problems(None, context["messages"]) == []


async def test_a_list_whose_ids_would_meet_is_refused_and_nothing_of_it_is_appended(
    call: Client,
) -> None:
    path = "/v1/conversations/claude-ids"
    two = {
        "id": "m",
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "a"}, {"type": "text", "text": "x"}],
    }
    own = {"id": "m-2", "role": "assistant", "content": "Not lost."}
    route = f"{path}/messages?format=anthropic&wait=applied"
    is_problem(await call("POST", route, [two, own]), 422, "message 2", "m-2", "message 1")
    assert (await call("GET", f"{path}/context")).status_code == 404
    landed = (await call("POST", route, [two, {**own, "id": "n"}])).json()["events"]
    assert [event["status"] for event in landed] == ["applied"] * 3


async def test_anthropic_errors_name_message_and_field(call: Client) -> None:
    path = "/v1/conversations/claude-errors/messages?format=anthropic"
    fine: dict[str, Any] = {"role": "user", "content": "x"}
    is_problem(await call("POST", path, b"{"), 400, "line 1")
    is_problem(
        await call("POST", path, [fine, {"role": "user", "content": [{"type": "video"}]}]),
        422,
        "message 2",
        "content[0].type",
    )
    two = {
        "role": "user",
        "content": [{"type": "tool_result", "tool_use_id": "a"}, {"type": "text", "text": "x"}],
    }
    bad = {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "", "name": "f", "input": {}}],
    }
    is_problem(await call("POST", path, [two, bad]), 422, "message 2", "tool_calls[0].id")
    many = {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a"}] * 501}
    is_problem(await call("POST", path, many), 422, "501 events", "500")
    assert isinstance(call.backend, ConversationService)
