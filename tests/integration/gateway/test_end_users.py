"""End users: which conversations and verbs a token opens, and which it does not."""

from __future__ import annotations

import asyncio
import base64
from typing import Any
from uuid import uuid4

import pytest

from tests.support.end_users import World
from tests.support.gateway import is_problem, say
from threadfold.service import conversation_list


async def test_a_user_reads_follows_and_continues_his_own_conversation(world: World) -> None:
    mine = await world.begin("ann", "hello")
    token = await world.token("ann")
    for path in ("context", "history", "summaries"):
        assert (await world("GET", f"/conversations/{mine}/{path}", token)).status_code == 200
    said = await world(
        "POST",
        f"/conversations/{mine}/messages?wait=applied",
        token,
        {"role": "user", "content": "and more"},
    )
    assert [event["status"] for event in said.json()["events"]] == ["applied"]
    position = said.json()["position"]
    one = await world("GET", f"/conversations/{mine}/events/{position}", token)
    assert one.json()["content"] == "and more"
    flat = {"id": str(uuid4()), **say("as an event")}
    again = [
        await world("POST", f"/conversations/{mine}/events?wait=applied", token, flat)
        for _ in range(2)
    ]
    assert [answer.json()["events"][0]["status"] for answer in again] == ["applied", "duplicate"]
    parts = [{"type": "text", "text": "in parts"}]
    for form in ("openai", "anthropic"):
        body = {"role": "user", "content": parts}
        answer = await world("POST", f"/conversations/{mine}/messages?format={form}", token, body)
        assert answer.status_code == 202, answer.text


async def test_what_is_not_the_users_own_looks_like_what_does_not_exist(world: World) -> None:
    theirs, nobodys = await world.begin("bob", "secret"), await world.begin(None, "secret")
    token = await world.token("ann")

    async def tried(name: str) -> list[tuple[int, str]]:
        answers = [
            await world(method, f"/conversations/{name}{path}", token, body)
            for method, path, body in (
                ("GET", "/context", None),
                ("GET", "/history", None),
                ("GET", "/summaries", None),
                ("GET", "/events/0-1", None),
                ("GET", "/stream", None),
                ("POST", "/messages", {"role": "user", "content": "x"}),
                ("POST", "/events", say("x")),
            )
        ]
        return [(answer.status_code, answer.text.replace(name, "NAME")) for answer in answers]

    missing = await tried("nothing-here")
    assert {status for status, _ in missing} == {404}
    assert await tried(theirs) == missing
    assert await tried(nobodys) == missing
    rival = await world.token("ann", "rival")
    mine = await world.begin("ann", "hello")
    is_problem(await world("GET", f"/conversations/{mine}/context", rival), 404, "not known")


async def test_a_token_that_names_conversations_opens_these_alone_and_may_begin_them(
    world: World,
) -> None:
    mine, other = await world.begin("ann", "one"), await world.begin("ann", "two")
    theirs = await world.begin("bob", "three")
    new = f"new-{uuid4().hex[:12]}"
    token = await world.token("ann", conversations=[mine, theirs, new])
    assert (await world("GET", f"/conversations/{mine}/context", token)).status_code == 200
    for name in (other, theirs, new):
        is_problem(await world("GET", f"/conversations/{name}/context", token), 404)
    for name in (other, theirs):
        body = {"role": "user", "content": "x"}
        is_problem(await world("POST", f"/conversations/{name}/messages", token, body), 404)
    body = {"role": "user", "content": "first"}
    first = await world("POST", f"/conversations/{new}/messages?wait=applied", token, body)
    assert first.status_code == 200, first.text
    assert len(first.json()["events"]) == 1
    history = (await world("GET", f"/conversations/{new}/history", token)).json()["events"]
    assert [event["type"] for event in history] == ["message", "conversation.opened"]
    assert history[1]["user"] == "ann"
    # Without its name in the token nobody takes the name of what the tenant may write to later.
    anyone = await world.token("ann")
    body = {"role": "user", "content": "x"}
    is_problem(await world("POST", "/conversations/tenants-own/messages", anyone, body), 404)


async def test_a_conversation_is_begun_on_the_condition_that_it_is_new(world: World) -> None:
    new, said = f"new-{uuid4().hex[:12]}", {"role": "user", "content": "first"}
    token, path = await world.token("ann", conversations=[new]), f"/conversations/{new}/messages"
    for headers in ({"Fencing-Token": "3"}, {"If-Match": "0-0"}):
        found = await world("POST", path, token, said, **headers)
        is_problem(found, 409, "nothing was changed")
        is_problem(await world("GET", f"/conversations/{new}/context", token), 404)
    only_new = {"If-None-Match": "*"}
    begun = await world("POST", path, token, [said, said], **only_new)
    assert begun.status_code == 200, begun.text
    assert [one["status"] for one in begun.json()["events"]] == ["applied"] * 2
    again = await world("POST", path, token, said, **only_new)
    is_problem(again, 409, "there are events already")


async def test_a_user_lists_the_users_own_conversations(world: World) -> None:
    user, other = f"u-{uuid4().hex[:8]}", f"u-{uuid4().hex[:8]}"
    mine = [await world.begin(user, f"talk {i}") for i in range(3)]
    theirs, lost = await world.begin(other, "secret"), await world.begin(user, "given away")
    await world.begin(other, name=lost)
    token = await world.token(user)
    seen, query = [], "?limit=2"
    while True:
        page = (await world("GET", f"/conversations{query}", token)).json()
        seen += [item["conversation"] for item in page["conversations"]]
        assert {item["user"] for item in page["conversations"]} <= {user}
        if page["next_before"] is None:
            break
        query = f"?limit=2&before={page['next_before']}"
    assert sorted(seen) == sorted(mine)
    named = await world.token(user, conversations=[mine[1], theirs, "never"])
    page = (await world("GET", "/conversations", named)).json()
    assert [item["conversation"] for item in page["conversations"]] == [mine[1]]
    is_problem(await world("GET", f"/conversations?user={other}", token), 403, "user")
    # Cursors of other lists lead nowhere.
    for key, path in (("acme", "/conversations"), (await world.token(other), "/conversations")):
        cursor = (await world("GET", f"{path}?limit=1", key)).json()["next_before"]
        answer = await world("GET", f"/conversations?before={cursor}", token)
        is_problem(answer, 422, "cursor")


async def test_a_cursor_names_no_conversation_that_the_token_does_not_name(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(conversation_list, "MAX_LOOKED", 3)
    user, mark = f"u-{uuid4().hex[:8]}", uuid4().hex[:8]
    names = [f"private-{mark}-{i}" for i in range(12)]
    for name in names:
        await world.begin(user, name=name)
    mine = [names[9], names[4], names[1]]
    token = await world.token(user, verbs=["read"], conversations=mine)
    for limit in (1, 2, 10):
        seen, query = [], f"?limit={limit}"
        while True:
            page = (await world("GET", f"/conversations{query}", token)).json()
            seen += [item["conversation"] for item in page["conversations"]]
            cursor = page["next_before"]
            if cursor is None:
                break
            shown = base64.urlsafe_b64decode(cursor + "=" * (-len(cursor) % 4))
            assert [name for name in names if name.encode() in shown] in [[name] for name in mine]
            query = f"?limit={limit}&before={cursor}"
        assert seen == mine


async def test_a_refused_append_begins_nothing_and_an_erased_conversation_is_not_there(
    world: World,
) -> None:
    new, erased = f"new-{uuid4().hex[:12]}", await world.begin("ann", "hello")
    token = await world.token("ann", conversations=[new, erased])
    for body, status in (({"role": "assistant", "content": "x"}, 403), ([], 422)):
        is_problem(await world("POST", f"/conversations/{new}/messages", token, body), status)
    assert (await world("DELETE", f"/conversations/{new}", "eraser")).status_code == 404
    assert (await world("DELETE", f"/conversations/{erased}", "eraser")).status_code == 200
    body = {"role": "user", "content": "x"}
    for given in (token, await world.token("ann")):
        path = f"/conversations/{erased}/messages"
        is_problem(await world("POST", path, given, body), 404, "it has no events")
    is_problem(await world("POST", f"/conversations/{erased}/messages", "acme", body), 410)


async def test_of_two_users_who_begin_one_conversation_one_has_it(world: World) -> None:
    name = f"raced-{uuid4().hex[:12]}"
    users = ("ann", "bob", "cem", "dee")
    tokens = [await world.token(user, conversations=[name]) for user in users]
    answers = await asyncio.gather(
        *(
            world("POST", f"/conversations/{name}/events?wait=applied", token, say(f"I am {user}"))
            for user, token in zip(users, tokens, strict=True)
        )
    )
    assert sorted(answer.status_code for answer in answers)[0] == 200
    assert {answer.status_code for answer in answers} <= {200, 404}
    winner = [answer.status_code for answer in answers].index(200)
    reads = [await world("GET", f"/conversations/{name}/context", token) for token in tokens]
    assert [answer.status_code == 200 for answer in reads] == [i == winner for i in range(4)]
    messages = reads[winner].json()["messages"]
    assert messages == [{"role": "user", "content": f"I am {users[winner]}"}]


@pytest.mark.parametrize(
    ("flat", "status"),
    [
        (say("x", "system"), 403),
        (say("x", "developer"), 403),
        (say("x", "assistant"), 403),
        ({"type": "tool.result", "tool_call_id": "c", "content": "x"}, 403),
        ({"type": "conversation.opened", "user": "bob"}, 403),
        ({"type": "conversation.opened", "policy": {"working_budget": 1000}}, 403),
        ({"type": "rollback", "to": "0-0"}, 403),
        ({"type": "session.closed", "reason": "explicit"}, 403),
        ({"type": "conversation.erased"}, 403),
        ({"type": "app.note.v1", "text": "x"}, 403),
        ([], 422),
        ("text", 422),
        ({**say("x"), "name": "bob"}, 422),
        ({**say("x"), "time": "2000-01-01T00:00:00Z"}, 422),
        ({**say("x"), "id": "order-1182"}, 422),
        ({**say("x"), "conversation": "another"}, 422),
        ({**say("x"), "content": [{"type": "reasoning", "text": "x", "signature": "y"}]}, 422),
        ([say("fine"), say("x", "system")], 403),
    ],
    ids=str,
)  # fmt: skip
async def test_a_user_appends_what_a_user_says_and_nothing_else(
    world: World, flat: Any, status: int
) -> None:
    mine = await world.begin("ann", "hello")
    token = await world.token("ann")
    before = (await world("GET", f"/conversations/{mine}/history")).json()
    is_problem(await world("POST", f"/conversations/{mine}/events", token, flat), status)
    assert (await world("GET", f"/conversations/{mine}/history")).json() == before


async def test_a_message_of_another_role_in_any_format_is_refused(world: World) -> None:
    mine = await world.begin("ann", "hello")
    token = await world.token("ann")
    results = [{"type": "tool_result", "tool_use_id": "c", "content": "paid"}]
    for form, body in (
        ("openai", {"role": "system", "content": "x"}),
        ("openai", {"role": "tool", "tool_call_id": "c", "content": "x"}),
        ("anthropic", {"role": "assistant", "content": "x"}),
        ("anthropic", {"role": "user", "content": results}),
    ):
        path = f"/conversations/{mine}/messages?format={form}"
        is_problem(await world("POST", path, token, body), 403, "role user only")


async def test_an_idempotency_key_of_a_user_takes_no_id_of_the_tenant(world: World) -> None:
    mine = await world.begin("ann", "hello")
    token = await world.token("ann")
    ids = []
    for given in (token, token, "acme"):
        path = f"/conversations/{mine}/events?wait=applied"
        answer = await world("POST", path, given, say("x"), **{"Idempotency-Key": "refund-7"})
        ids.append((answer.json()["events"][0]["id"], answer.json()["events"][0]["status"]))
    assert [status for _, status in ids] == ["applied", "duplicate", "applied"]
    assert ids[0][0] == ids[1][0] != ids[2][0]


async def test_a_conversation_that_becomes_anothers_is_no_longer_the_users(world: World) -> None:
    name = await world.begin("ann", "hello")
    token = await world.token("ann")
    assert (await world("GET", f"/conversations/{name}/context", token)).status_code == 200
    await world.begin("bob", name=name)
    is_problem(await world("GET", f"/conversations/{name}/context", token), 404)
    assert (
        await world("GET", f"/conversations/{name}/context", await world.token("bob"))
    ).status_code == 200


async def test_each_verb_opens_what_it_names_and_needs_the_keys_own_scope(world: World) -> None:
    mine = await world.begin("ann", "hello")
    calls = {
        "read": ("GET", f"/conversations/{mine}/context", None),
        "append": ("POST", f"/conversations/{mine}/events", say("x")),
        "stream": ("GET", f"/conversations/{mine}/stream", None),
    }
    for verb in calls:
        token = await world.token("ann", verbs=[verb])
        for other, (method, path, body) in calls.items():
            if other != verb:
                is_problem(await world(method, path, token, body), 403, "scope")
            elif verb != "stream":
                assert (await world(method, path, token, body)).status_code in (200, 202)
    body = {"user": "ann", "verbs": ["read", "append"]}
    is_problem(await world("POST", "/tokens", "reader", body), 403, "'append'")
    assert (
        await world("POST", "/tokens", "reader", {**body, "verbs": ["read"]})
    ).status_code == 200
    is_problem(await world("POST", "/tokens", await world.token(), body), 403, "end user")


async def test_a_user_is_shown_who_he_is_and_the_own_window_as_it_is(world: World) -> None:
    mine, theirs = await world.begin("ann", "hello"), await world.begin("bob", "secret")
    token = await world.token("ann")
    assert (await world("GET", "/me", token)).json() == {
        "tenant": "acme",
        "user": "ann",
        "scopes": ["append", "read", "subscribe"],
        "quota": {},
        "used_today": None,
        "used_last_minute": None,
    }
    window = await world("GET", f"/conversations/{mine}/window", token)
    assert window.status_code == 200 and "hello" in window.text
    is_problem(await world("GET", f"/conversations/{theirs}/window", token), 404)
    past = f"/conversations/{mine}/window?at={window.json()['position']}"
    is_problem(await world("GET", past, token), 403, "leave out at")


async def test_what_is_not_declared_for_end_users_is_closed_to_them(world: World) -> None:
    mine = await world.begin("ann", "hello")
    token = await world.token("ann")
    for method, path in (
        ("GET", "/suspensions"),
        ("GET", "/summaries/stream"),
        ("POST", "/events"),
        ("POST", f"/conversations/{mine}/turns"),
        ("POST", f"/conversations/{mine}/renders"),
        ("POST", f"/conversations/{mine}/rollback"),
        ("POST", f"/conversations/{mine}/partial"),
        ("DELETE", f"/conversations/{mine}"),
        ("DELETE", "/users/ann"),
        ("GET", "/tenants"),
        ("GET", "/tokens/keys"),
        ("PUT", "/tokens/keys"),
    ):
        body = {} if method in ("POST", "PUT") else None
        answer = await world(method, path, token, body)
        assert answer.status_code == 403, (method, path, answer.text)


@pytest.mark.parametrize("at_once", [True, False])
async def test_what_was_given_to_another_user_is_not_erased_with_its_former_one(
    world: World, at_once: bool
) -> None:
    former, present = f"former-{at_once}", f"present-{at_once}"
    name, own = f"given-{uuid4().hex[:12]}", await world.begin(former, "mine alone")
    opened = [{"type": "conversation.opened", "user": user} for user in (former, present)]
    events = [opened[0], say("of the former"), opened[1]]
    for body in [events] if at_once else [[event] for event in events]:
        await world("POST", f"/conversations/{name}/events?wait=applied", "acme", body)
    answer = await world("DELETE", f"/users/{former}", "eraser")
    assert [one["conversation"] for one in answer.json()["conversations"]] == [own]
    context = await world("GET", f"/conversations/{name}/context", await world.token(present))
    assert "of the former" in context.text
    repeated = await world("DELETE", f"/users/{former}", "eraser")
    assert repeated.json() == answer.json()
    answer = await world("DELETE", f"/users/{present}", "eraser")
    assert [one["conversation"] for one in answer.json()["conversations"]] == [name]
