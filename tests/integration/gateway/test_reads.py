"""The gateway shows contexts, histories, windows, model calls, a key's owner and its routes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.gateway import Client, is_problem, say
from tests.support.worker import until

# -- context
# ------------------------------------------------------------------------------------------


async def test_context_stays_under_ceiling_and_max_tokens_while_summaries_come(
    call: Client,
) -> None:
    path = "/v1/conversations/long"
    for turn in range(12):
        flats = [
            say(
                f"turn {turn} part {i}: the parcel 4711 of Alice was late in Oslo, because of snow."
            )
            for i in range(10)
        ]
        position = (await call("POST", f"{path}/events", flats)).json()["position"]
    await call("GET", f"{path}/context?after={position}")

    async def summarised() -> dict[str, Any] | None:
        found: dict[str, Any] = (await call("GET", f"{path}/context")).json()
        return found if found["summary"] and found["tokens"] < 1000 else None

    context = await until(summarised)
    assert context["tokens"] <= context["ceiling"]
    assert context["messages"][0]["role"] == "assistant"
    assert context["summary"]["text"] in context["messages"][0]["content"]
    small = (await call("GET", f"{path}/context?max_tokens=400")).json()
    assert small["tokens"] <= 400
    is_problem(await call("GET", f"{path}/context?max_tokens=1"), 422, "cannot be rendered")
    is_problem(await call("GET", f"{path}/context?max_tokens=0"), 422, "max_tokens")


async def test_after_must_be_a_position_of_the_conversation(call: Client) -> None:
    position = (await call("POST", "/v1/conversations/mine/events", say("x"))).json()["position"]
    partition, _, offset = position.partition("-")
    is_problem(await call("GET", "/v1/conversations/mine/context?after=nonsense"), 422, "nonsense")
    is_problem(
        await call("GET", f"/v1/conversations/mine/context?after={int(partition) + 1}-{offset}"),
        422,
        "mine",
    )


async def test_a_position_not_reached_in_time_answers_503(call: Client) -> None:
    from projections.errors import WaitTimedOut

    position = (await call("POST", "/v1/conversations/far/events?wait=applied", say("x"))).json()[
        "position"
    ]
    partition, _, offset = position.partition("-")
    with pytest.raises(WaitTimedOut) as caught:
        await call.backend.window(
            "acme", "far", after=f"{partition}-{int(offset) + 10_000}", timeout=0.1
        )
    assert caught.value.problem == 503


async def test_an_unknown_conversation_is_404(call: Client) -> None:
    is_problem(await call("GET", "/v1/conversations/never/context"), 404, "never")
    is_problem(await call("GET", "/v1/conversations/never/history"), 404, "never")


async def test_an_erased_conversation_is_410_for_every_read(call: Client) -> None:
    appended = await call.backend.append(
        "acme", [("gone", say("secret")), ("gone", {"type": "conversation.erased"})], operator=True
    )
    await call.backend.wait_for(appended[-1].position)
    for path in ("context", "history", f"events/{appended[0].position}"):
        is_problem(await call("GET", f"/v1/conversations/gone/{path}"), 410, "gone")


# -- history
# ------------------------------------------------------------------------------------------


async def test_history_pages_hold_every_event_once_newest_first_across_summaries(
    call: Client,
) -> None:
    path = "/v1/conversations/pages"
    sent = []
    for turn in range(15):
        flats = [
            {
                "id": f"p{turn}-{i}",
                **say(f"turn {turn} part {i}: the harbour in Oslo, order 4711, snow and wind."),
            }
            for i in range(8)
        ]
        answer = (await call("POST", f"{path}/events?wait=applied", flats)).json()
        sent += [(event["id"], event["position"]) for event in answer["events"]]

    async def calm() -> bool:
        window = await call.backend.window("acme", "pages")
        return (
            window.meta.due is None
            and window.meta.summary is not None
            and window.meta.summary.previous is not None
        )

    await until(calm)
    found, cursor, pages = [], None, 0
    while True:
        page = (
            await call("GET", f"{path}/history?limit=17" + (f"&before={cursor}" if cursor else ""))
        ).json()
        assert len(page["events"]) <= 17
        assert pages < 100, "the cursor does not move on"
        found += page["events"]
        cursor, pages = page["next_before"], pages + 1
        if cursor is None:
            break
    assert pages > 5
    offsets = [int(event["position"].partition("-")[2]) for event in found]
    assert offsets == sorted(set(offsets), reverse=True)
    messages = [(event["id"], event["position"]) for event in found if event["type"] == "message"]
    assert messages == sent[::-1]
    assert {event["type"] for event in found} == {"message", "summary"}
    assert found[-1]["content"].startswith("turn 0 part 0")
    assert {"id", "type", "time", "position", "role", "content"} <= set(found[-1])
    one = await call("GET", f"{path}/events/{found[-1]['position']}")
    assert one.json() == found[-1]


async def test_a_cursor_or_position_of_another_conversation_is_refused(call: Client) -> None:
    for name in ("ca", "cb"):
        position = (
            await call(
                "POST", f"/v1/conversations/{name}/events?wait=applied", [say("x"), say("y")]
            )
        ).json()["position"]
    cursor = (await call("GET", "/v1/conversations/cb/history?limit=1")).json()["next_before"]
    assert cursor
    is_problem(await call("GET", f"/v1/conversations/ca/history?before={cursor}"), 422, "cursor")
    is_problem(await call("GET", "/v1/conversations/ca/history?before=%C3%A9!"), 422, "cursor")
    is_problem(await call("GET", f"/v1/conversations/ca/events/{position}"), 422, position)
    is_problem(await call("GET", "/v1/conversations/ca/events/0-99999999"), 422, "0-99999999")
    for limit in ("0", "501", "x"):
        is_problem(await call("GET", f"/v1/conversations/ca/history?limit={limit}"), 422, "limit")


async def test_what_was_acknowledged_is_in_the_history_that_waits_for_it(call: Client) -> None:
    path = "/v1/conversations/read-back"
    for i in range(10):
        sent = await call("POST", f"{path}/events", say(f"message {i}"))
        assert sent.status_code == 202
        query = f"after={sent.json()['position']}" if i % 2 else "wait=applied"
        page = (await call("GET", f"{path}/history?limit=1&{query}")).json()
        assert page["events"][0]["position"] == sent.json()["position"]
    closed = {"type": "session.closed", "reason": "explicit"}
    await call("POST", f"{path}/events", [closed, say("again"), closed])
    page = (await call("GET", f"{path}/history?wait=applied&type=session.closed&limit=1")).json()
    assert [event["type"] for event in page["events"]] == ["session.closed"]
    query = f"type=session.closed,rollback&before={page['next_before']}"
    page = (await call("GET", f"{path}/history?{query}")).json()
    assert [event["type"] for event in page["events"]] == ["session.closed"]
    assert page["next_before"] is None
    is_problem(await call("GET", f"{path}/history?type=messages"), 422, "'messages' is not one of")
    is_problem(await call("GET", f"{path}/history?wait=1"), 422, "query parameter wait")


# -- windows for people
# ------------------------------------------------------------------------------------------


async def test_a_window_is_shown_message_by_message_now_and_as_it_was(call: Client) -> None:
    path = "/v1/conversations/inspected"
    first = [say("You help.", "system"), say("one"), say("two", "assistant")]
    await call("POST", f"{path}/events?wait=applied", first)
    then = (await call("GET", f"{path}/context")).json()
    await call("POST", f"{path}/events?wait=applied", [say("three"), say("four", "assistant")])
    now = (await call("GET", f"{path}/context")).json()
    for context, query in ((then, f"?at={then['position']}"), (now, "")):
        answer = await call("GET", f"{path}/window{query}")
        assert answer.status_code == 200, answer.text
        shown = answer.json()
        assert [item["message"] for item in shown["messages"]] == context["messages"]
        for name in ("position", "count", "digest", "render_digest", "tokens", "ceiling"):
            assert shown[name] == context[name], name
        lanes = [item["lane"] for item in shown["messages"]]
        assert lanes == ["system"] + ["tail"] * (len(lanes) - 1)
    found = (await call("GET", f"{path}/positions")).json()
    assert found["all"] and found["positions"] == [p for p in now["positions"] if p]
    newest = (await call("GET", f"{path}/positions?limit=2")).json()
    assert newest == {"positions": found["positions"][-2:], "all": False}


async def test_a_window_of_a_position_that_is_not_there_is_refused(call: Client) -> None:
    path = "/v1/conversations/inspected"
    await call("POST", f"{path}/events?wait=applied", say("here"))
    position = (await call("GET", f"{path}/context")).json()["position"]
    partition = int(position.partition("-")[0])
    is_problem(await call("GET", f"{path}/window?at={partition}-99999"), 422, "the log ends before")
    other = f"{(partition + 1) % 4}-0"
    is_problem(await call("GET", f"{path}/window?at={other}"), 422, "not one of conversation")
    is_problem(await call("GET", "/v1/conversations/never/window"), 404, "not known")


async def test_recorded_model_calls_are_listed_newest_first(call: Client) -> None:
    path = "/v1/conversations/called"
    await call("POST", f"{path}/events?wait=applied", say("a question"))
    context = (await call("GET", f"{path}/context")).json()
    record = {name: context[name] for name in ("render_digest", "position", "tokens")}
    made = [
        await call("POST", f"{path}/renders", {**record, "model": model, "format": "openai"})
        for model in ("m1", "m2")
    ]
    ids = [answer.json()["id"] for answer in made]
    found = (await call("GET", f"{path}/renders")).json()["renders"]
    assert [one["id"] for one in found] == ids[::-1]
    assert [one["record"]["model"] for one in found] == ["m2", "m1"]
    assert len((await call("GET", f"{path}/renders?limit=1")).json()["renders"]) == 1


# -- keys and routes
# ------------------------------------------------------------------------------------------


async def test_a_key_is_shown_whose_it_is(call: Client) -> None:
    me = (await call("GET", "/v1/me", tenant="reader")).json()
    assert (me["tenant"], me["scopes"]) == ("acme", ["read"])
    is_problem(await call("GET", "/v1/me", tenant="anon"), 401)


async def test_the_openapi_document_lists_the_routes(call: Client) -> None:
    assert (await call("GET", "/docs", tenant="anon")).status_code == 200
    document = (await call("GET", "/openapi.json", tenant="anon")).json()
    assert "/v1/conversations/{conversation}/context" in document["paths"]
    assert document["paths"]["/v1/events"]["post"]["requestBody"]
