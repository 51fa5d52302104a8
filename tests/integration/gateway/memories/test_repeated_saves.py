"""Saves that are repeated, or share an idempotency key."""

from __future__ import annotations

from tests.support.memory_routes import World


async def test_a_repeated_save_with_one_idempotency_key_is_one_event(
    world: World, user: str
) -> None:
    body = {"text": "Plays chess.", "user": user}
    for _ in range(2):
        found = await world("POST", "/memories?wait=applied", body, **{"Idempotency-Key": user})
        assert found.status_code == 200
    (record,) = (await world.ok("GET", f"/memories?user={user}"))["memories"]
    assert record["duplicates"] == 0


async def test_another_save_with_one_idempotency_key_is_said_to_be_a_duplicate_of_the_first(
    world: World, user: str
) -> None:
    topic = {"user": user, "topic": "game"}
    path, key = "/memories?wait=applied", {"Idempotency-Key": user}
    first = await world("POST", path, {"text": "Plays chess.", **topic}, **key)
    (saved,) = first.json()["memories"]
    assert saved["status"] == "created"
    for other in ({"text": "Plays go.", **topic}, {"text": "Keeps bees.", "user": user}):
        found = await world("POST", path, other, **key)
        assert found.json()["memories"] == [{"id": saved["id"], "status": "duplicate"}]
        unsure = await world("POST", "/memories", other, **key)
        assert unsure.json()["memories"][0]["status"] == "unknown"
    (record,) = (await world.ok("GET", f"/memories?user={user}"))["memories"]
    assert (record["text"], record["revision"]) == ("Plays chess.", 1)


async def test_a_save_with_the_idempotency_key_of_a_message_is_saved(
    world: World, user: str
) -> None:
    name, key = await world.opened(user), {"Idempotency-Key": f"request-{user}"}
    said = {"role": "user", "content": "I play chess."}
    assert (await world("POST", f"/conversations/{name}/messages", said, **key)).status_code == 202
    body = {"text": "Plays chess.", "conversation": name}
    found = await world("POST", "/memories?wait=applied", body, **key)
    assert found.json()["memories"][0]["status"] == "created"
    (record,) = (await world.ok("GET", f"/memories?user={user}"))["memories"]
    assert record["text"] == "Plays chess."
