"""A saved memory or skill is found, by whom it may be, and gone when it must go."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.gateway import is_problem
from tests.support.memory_routes import World
from tests.support.worker import until
from threadfold_client import AsyncClient, NotFound


async def test_a_saved_memory_is_found_at_once_and_saving_it_again_confirms_it(
    world: World, user: str
) -> None:
    tea = {"text": "Prefers green tea.", "type": "preference", "user": user, "confidence": 0.5}
    (first,), (again,) = (
        await world.save(tea),
        await world.save({**tea, "text": "prefers green TEA"}),
    )
    assert (first["status"], again["status"]) == ("created", "confirmed")
    assert first["id"] == again["id"]
    found = await world.ok("POST", "/memories/search", {"query": "drinks teas?", "user": user})
    (hit,) = found["results"]
    assert (hit["kind"], hit["id"], hit["channels"]) == ("record", first["id"], ["text"])
    assert hit["score"] > 0 and found["tokens"] > 0
    record = hit["record"]
    assert (record["type"], record["user"], record["trust"]) == ("preference", user, "user")
    assert record["duplicates"] == 1 and record["confirmed_at"] >= record["created"]
    assert record["use"] == {"retrieved": 0, "hits": 0, "succeeded": 0, "failed": 0}
    assert await world.ok("GET", f"/memories/{first['id']}") == record


async def test_a_topic_is_revised_and_what_was_known_before_can_be_asked(
    world: World, user: str
) -> None:
    (one,) = await world.save({"text": "The flight is at six.", "topic": "flight", "user": user})
    record = await world.ok("GET", f"/memories/{one['id']}")
    (two,) = await world.save({"text": "The flight is at nine.", "topic": "flight", "user": user})
    assert (two["id"], two["status"]) == (one["id"], "revised")
    assert await world.search("flight", user=user) == ["The flight is at nine."]
    then = {"as_of": record["created"].replace("Z", "999Z"), "user": user}
    assert await world.search("flight", **then) == ["The flight is at six."]
    assert (await world.ok("GET", f"/memories?user={user}&topic=flight"))["memories"][0][
        "revision"
    ] == 2


async def test_what_a_conversation_teaches_is_its_users_and_goes_back_with_it(
    world: World, user: str
) -> None:
    name = await world.opened(user, "web")
    here = f"/conversations/{name}"
    context = await world.ok("GET", f"{here}/context")
    (saved,) = await world.save({"text": "Allergic to nuts.", "conversation": name})
    record = await world.ok("GET", f"/memories/{saved['id']}")
    assert (record["user"], record["channel"], record["conversation"]) == (user, "web", name)
    assert (await world.ok("GET", f"{here}/context"))["messages"] == context["messages"]
    before = {"type": "rollback", "to": context["position"]}
    back = await world.ok("POST", f"{here}/events?wait=applied", before)

    async def gone() -> bool:
        return await world.search("nuts", user=user) == []

    await until(gone)
    is_problem(await world("GET", f"/memories/{saved['id']}"), 404)
    page = await world.ok("GET", f"{here}/history")
    taught = next(e for e in page["events"] if e["type"] == "memory.saved")
    again = {"type": "rollback", "to": taught["position"]}
    assert back["position"] != taught["position"]
    await world.ok("POST", f"{here}/events?wait=applied", again)

    async def there() -> bool:
        return await world.search("nuts", user=user) == ["Allergic to nuts."]

    await until(there)


async def test_outcomes_count_and_deleted_memories_are_gone(world: World, user: str) -> None:
    (saved,) = await world.save({"text": "Restart the printer twice.", "user": user})
    for succeeded in (True, True, False):
        path = f"/memories/{saved['id']}/outcome"
        record = await world.ok("POST", path, {"succeeded": succeeded})
    assert (record["use"]["succeeded"], record["use"]["failed"]) == (2, 1)
    assert await world.ok("DELETE", f"/memories/{saved['id']}") == {
        "id": saved["id"],
        "hard": False,
    }
    assert await world.search("printer", user=user) == []
    is_problem(await world("GET", f"/memories/{saved['id']}"), 404)
    (again,) = await world.save({"text": "Restart the printer twice.", "user": user})
    assert again["status"] == "created"
    hard = await world.ok("DELETE", f"/memories/{saved['id']}?hard=true")
    states = {name: store["state"] for name, store in hard["stores"].items()}
    assert states == {"memories": "deleted", "log": "kept"}
    assert await world.search("printer", user=user) == []


async def test_a_deletion_counts_where_the_gateways_clock_is_behind(
    world: World, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved = await world.save(
        {"text": "Owns a loom.", "user": user}, {"text": "Weaves.", "user": user}
    )
    for place in ("drafts", "memories"):
        name = f"threadfold.service.{place}.present"
        monkeypatch.setattr(name, lambda: "2020-01-01T00:00:00.000Z", raising=False)
    for one, hard in zip(saved, ("true", "false"), strict=True):
        await world.ok("DELETE", f"/memories/{one['id']}?hard={hard}")
        is_problem(await world("GET", f"/memories/{one['id']}"), 404)


async def test_what_is_given_out_is_counted_of_those_who_were_asked_for(
    world: World, user: str
) -> None:
    saved = await world.save(
        {"text": "Prefers green tea.", "user": user}, {"text": "Has a tea shop.", "user": user}
    )
    (other,) = await world.save({"text": "Prefers green tea.", "user": f"{user}-2"})
    ids = [one["id"] for one in saved]
    for _ in range(2):
        assert len(await world.search("green tea", user=user)) == 2
    asked = {"query": "green tea", "user": user, "as_of": "2100-01-01T00:00:00Z"}
    await world.ok("POST", "/memories/search", asked)

    async def uses() -> list[dict[str, Any]]:
        return [await world.ok("GET", f"/memories/{one}") for one in (*ids, other["id"])]

    async def counted() -> bool:
        return bool((await uses())[0]["use"]["retrieved"])

    await until(counted)
    found = await uses()
    assert [one["use"]["retrieved"] for one in found] == [2, 2, 0]
    assert found[0]["use"]["hits"] == 2 and found[2]["last_retrieved_at"] is None
    assert found[0]["last_retrieved_at"] > found[0]["confirmed_at"]


async def test_pages_and_timelines_are_in_the_order_of_time(world: World, user: str) -> None:
    ids = [
        (await world.save({"text": f"Fact number {n}.", "user": user}))[0]["id"] for n in range(5)
    ]
    first = await world.ok("GET", f"/memories?user={user}&limit=3")
    cursor = first["next_before"]
    rest = await world.ok("GET", f"/memories?user={user}&limit=3&before={cursor}")
    shown = [one["id"] for one in first["memories"] + rest["memories"]]
    assert shown == ids[::-1] and rest["next_before"] is None
    is_problem(await world("GET", f"/memories?user=else&before={cursor}"), 422)
    around = await world.ok("GET", f"/memories/{ids[2]}/timeline?before=1&after=5")
    assert [one["id"] for one in around["memories"]] == ids[1:]
    stats = await world.ok("GET", f"/memories/stats?user={user}")
    assert stats == {"records": 5, "expired": 0, "types": {"fact": 5}}


async def test_lists_and_counts_are_narrowed_by_user_channel_and_conversation(
    world: World, user: str
) -> None:
    talk = await world.opened(user, "web")
    skill = {"doc_markdown": "x", "user": user}
    for intent, where in (("Mail it", {"channel": "mail"}), ("Show it", {"conversation": talk})):
        await world.ok("POST", "/skills?wait=applied", {"intent": intent, **skill, **where})
    for narrow, intents in (
        (f"user={user}", {"Mail it", "Show it"}),
        (f"user={user}&channel=mail", {"Mail it"}),
        (f"user={user}&channel=web", {"Show it"}),
        (f"conversation={talk}", {"Show it"}),
        (f"user={user}&channel=fax", set()),
    ):
        found = (await world.ok("GET", f"/skills?{narrow}"))["memories"]
        assert {one["text"] for one in found} == intents, narrow
        counted = await world.ok("GET", f"/memories/stats?{narrow}")
        assert counted["records"] == len(intents), narrow


async def test_a_skill_is_found_by_its_intent_and_revised_by_the_next(
    world: World, user: str
) -> None:
    skill = {
        "intent": "Return a parcel",
        "doc_markdown": "1. Ask.",
        "preconditions": ["a label"],
        "user": user,
    }
    path = "/skills?wait=applied"
    (one,) = (await world.ok("POST", path, skill))["memories"]
    (two,) = (await world.ok("POST", path, {**skill, "doc_markdown": "1. Look."}))["memories"]
    assert (one["status"], two["status"], one["id"]) == ("created", "revised", two["id"])
    assert await world.search("returned parcels", user=user, kinds=["skill"]) == ["Return a parcel"]
    assert await world.search("returned parcels", user=user, kinds=["record"]) == []
    (listed,) = (await world.ok("GET", f"/skills?user={user}"))["memories"]
    assert (listed["doc_markdown"], listed["revision"]) == ("1. Look.", 2)
    assert listed["preconditions"] == ["a label"]
    used = await world.ok("POST", f"/memories/{one['id']}/outcome", {"succeeded": True})
    assert used["use"]["succeeded"] == 1

    async def counted() -> bool:
        shown = await world.ok("GET", f"/memories/{one['id']}")
        return shown["use"]["retrieved"] > 0 and shown["last_retrieved_at"] is not None

    await until(counted)
    (record,) = await world.save({"text": "Parcels are late.", "user": user})
    is_problem(await world("DELETE", f"/skills/{record['id']}"), 404)
    assert await world.search("late", user=user, kinds=["record"]) == ["Parcels are late."]
    await world.ok("DELETE", f"/skills/{one['id']}")
    assert (await world.ok("GET", f"/skills?user={user}"))["memories"] == []


async def test_what_cannot_be_saved_is_refused_by_name(world: World, user: str) -> None:
    talk = await world.opened(user)
    for body, status, says in (
        ({"text": "x", "type": "rumour"}, 422, "type"),
        ({"text": "t" * 9_000}, 422, "text"),
        ({"text": "<private>all of it</private> …"}, 422, "nothing is left to save"),
        ({"text": "x", "memory_id": "1"}, 422, "memory_id"),
        ({"text": "x", "temporal": {"t_ref": "soon"}}, 422, "memory 1: field temporal.t_ref"),
        ({"text": "x", "temporal": {"t_ref": ""}}, 422, "memory 1: field temporal.t_ref"),
        (
            {"text": "x", "temporal": {"t_valid_from": "2026-02-01", "t_valid_to": "2026-01-31"}},
            422,
            "temporal.t_valid_to: it is before",
        ),
        ({"text": "x", "topic": "<private>y</private>"}, 422, "field topic"),
        ({"text": "x", "user": "another", "conversation": talk}, 422, "another user"),
        (
            [{"text": "x"}, {"text": "x", "conversation": "no-such-conversation"}],
            404,
            "memory 2: conversation no-such-conversation is not known",
        ),
        ([], 422, "1 to 500"),
        ([{"text": "x"}] * 501, 422, "1 to 500"),
    ):
        found = await world("POST", "/memories", body)
        is_problem(found, status)
        assert says in found.json()["detail"], found.text
    event = {"type": "memory.saved", "text": "x"}
    found = await world("POST", f"/conversations/{talk}/events", event)
    is_problem(found, 422)
    assert "threadfold itself" in found.json()["detail"]


async def test_saves_count_in_the_tenants_quota(world: World, user: str) -> None:
    many = [{"text": f"Fact {n}.", "user": user} for n in range(60)]
    await world.save(*many, key="slow")
    for path, body in (
        ("/memories", many[0]),
        ("/skills", {"intent": "Wait", "doc_markdown": "x", "user": user}),
    ):
        found = await world("POST", path, body, key="slow")
        assert found.status_code == 429 and "events_per_second" in found.json()["detail"]
        assert int(found.headers["Retry-After"]) >= 1
    assert len(await world.search("fact", key="slow", user=user, limit=5)) == 5


async def test_a_name_that_no_conversation_can_have_is_refused(world: World) -> None:
    for name in ("", "a/b"):
        body = {"query": "tea", "conversation": name}
        is_problem(await world("POST", "/memories/search", body), 422, "conversation")
        params = f"?conversation={name.replace('/', '%2F')}"
        is_problem(await world("GET", f"/memories{params}"), 422, "conversation")


async def test_what_is_private_is_stored_nowhere(world: World, user: str) -> None:
    text = "Lives in Oslo. <private>Door code 7741.</private> Has a cat. <private>open 5512"
    tags = {"task": ["doors <private>7741</private>", "<private>5512</private>"]}
    (saved,) = await world.save(
        {"text": text, "user": user, "topic": "home<private>7741</private>", "tags": tags}
    )
    record = await world.ok("GET", f"/memories/{saved['id']}")
    assert record["text"] == "Lives in Oslo.  Has a cat."
    assert (record["topic"], record["tags"]["task"]) == ("home", ["doors"])
    skill = {
        "intent": "Open the door <private>7741</private>",
        "doc_markdown": "1. Knock. <private>5512</private>",
        "preconditions": ["a key <private>7741</private>", "<private>5512</private>"],
        "user": user,
    }
    await world.ok("POST", "/skills?wait=applied", skill)
    (kept,) = (await world.ok("GET", f"/skills?user={user}"))["memories"]
    assert (kept["text"], kept["doc_markdown"]) == ("Open the door", "1. Knock.")
    assert kept["preconditions"] == ["a key"]
    empty = {**skill, "doc_markdown": "<private>5512</private>"}
    is_problem(await world("POST", "/skills", empty), 422, "doc_markdown")


async def test_a_record_is_given_back_as_it_was_saved(world: World, user: str) -> None:
    told = {
        "text": "The gym is CLOSED!",
        "type": "event",
        "topic": "gym",
        "tags": {
            "task": ["sport"],
            "tool": ["calendar"],
            "constraint": ["no mornings"],
            "failure": ["locked out"],
            "affordance": ["book"],
        },
        "confidence": 0.25,
    }
    times = {"t_ref": "2026-01-31", "t_valid_to": "2026-02-28T12:00:00+01:00"}
    name = await world.opened(user, "web")
    (saved,) = await world.save({**told, "temporal": times, "conversation": name})
    record = await world.ok("GET", f"/memories/{saved['id']}")
    assert {field: record[field] for field in told} == told
    assert record["temporal"] == {**times, "t_ref": "2026-01-31T00:00:00Z"}
    assert record["normalized_text"] == "the gym is closed"
    whose = {"user": user, "channel": "web", "conversation": name}
    assert {field: record[field] for field in whose} == whose
    new = {"revision": 1, "entities": [], "positions": [], "trust": "user", "origin": "explicit"}
    assert {field: record[field] for field in new} == new
    for field in ("superseded_by", "expired_at", "expired_reason", "last_retrieved_at"):
        assert record[field] is None
    assert record["created"] == record["confirmed_at"]


async def test_a_users_own_log_is_no_conversation_and_is_erased_with_the_user(
    world: World, user: str
) -> None:
    name = await world.opened(user)
    await world.save(
        {"text": "Owns a boat.", "user": user}, {"text": "Sails.", "conversation": name}
    )
    listed = await world.ok("GET", f"/conversations?user={user}")
    assert [one["conversation"] for one in listed["conversations"]] == [name]
    every = await world.ok("GET", "/conversations?limit=200")
    assert not any(one["conversation"].startswith("~") for one in every["conversations"])
    receipts = (await world.ok("DELETE", f"/users/{user}"))["conversations"]
    assert len(receipts) == 2 and all("memories" in one["stores"] for one in receipts)
    own = next(one["conversation"] for one in receipts if one["conversation"] != name)
    for path in (f"/conversations/{own}/context", f"/conversations/{own}/history"):
        is_problem(await world("GET", path), 422)

    async def gone() -> bool:
        return (await world.ok("GET", f"/memories?user={user}"))["memories"] == []

    await until(gone)
    assert await world.search("boat sails", user=user) == []
    refused = await world("POST", "/memories", {"text": "Back.", "user": user})
    is_problem(refused, 410)
    assert refused.json()["detail"] == "memory 1: the memory of this user was erased"
    among = [{"text": "Sails.", "user": f"{user}-2"}, {"text": "Back.", "user": user}]
    is_problem(await world("POST", "/memories", among), 410, "memory 2")


async def test_without_a_user_nothing_is_erased(world: World, user: str) -> None:
    (own,) = await world.save({"text": f"The office of {user} closes at six."})
    is_problem(await world("DELETE", "/users/"), 422, "user")
    kept = await world.ok("GET", f"/memories/{own['id']}")
    assert kept["text"] == f"The office of {user} closes at six."
    await world.save({"text": f"The office of {user} opens at nine."})


async def test_a_memory_of_an_erased_user_who_came_back_can_be_deleted(
    world: World, user: str
) -> None:
    await world.save({"text": "Owns a boat.", "user": user})
    await world.ok("DELETE", f"/users/{user}")
    name = await world.opened(user)
    saved = await world.save(
        {"text": "Owns a bike.", "conversation": name}, {"text": "Skis.", "conversation": name}
    )
    used = await world.ok("POST", f"/memories/{saved[0]['id']}/outcome", {"succeeded": True})
    assert used["use"]["succeeded"] == 1
    for one, hard in zip(saved, ("true", "false"), strict=True):
        await world.ok("DELETE", f"/memories/{one['id']}?hard={hard}")
        is_problem(await world("GET", f"/memories/{one['id']}"), 404)


async def test_the_client_has_a_method_for_every_route(world: World, user: str) -> None:
    async with AsyncClient(world.url, world.keys["acme"]) as client:
        (saved,) = await client.save_memories({"text": "Feeds the cat at six.", "user": user})
        assert saved["status"] == "created"
        found = await client.search_memories("cats", user=user, kinds=["record"])
        assert [one["id"] for one in found["results"]] == [saved["id"]]
        record = await client.report_outcome(saved["id"], succeeded=True)
        assert record["use"]["succeeded"] == 1 and await client.memory(saved["id"]) == record
        assert [one async for one in client.memories(user=user)] == [record]
        assert await client.memory_timeline(saved["id"]) == [record]
        skill = await client.save_skill({"intent": "Feed a cat", "doc_markdown": "x", "user": user})
        assert [one["id"] async for one in client.skills(user=user)] == [skill["id"]]
        assert (await client.memory_stats(user))["records"] == 2
        assert (await client.memory_stats(user, channel="web"))["records"] == 0
        for call in (client.memory, client.memory_timeline, client.delete_memory):
            with pytest.raises(NotFound):
                await call(saved["id"], user=f"{user}-other")
            with pytest.raises(NotFound):
                await call(saved["id"], user=user, channel="web")
        with pytest.raises(NotFound):
            await client.report_outcome(saved["id"], succeeded=True, conversation="elsewhere")
        assert await client.memory(saved["id"], user=user) == await client.memory(saved["id"])
        assert (await client.delete_memory(saved["id"], hard=True, user=user))["hard"]
        assert [one async for one in client.memories(user=user)] == []
