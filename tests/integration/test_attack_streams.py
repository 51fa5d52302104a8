"""What an attack on streams, turns and clients found, each by the behaviour that holds now."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from tests.integration.streaming.test_streams import Pair, pair, say
from tests.support.streaming import subscribed
from tests.support.worker import until
from threadfold import AsyncClient
from threadfold_client import Conflict, Gone, Invalid, Retries

__all__ = ["pair"]
QUICK = Retries(attempts=2, total=1.0)


async def post(at: Pair, path: str, body: Any = None, **headers: str) -> httpx.Response:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    content = None if body is None else json.dumps(body)
    return await at.a.http.post(
        f"/v1/conversations/{path}", content=content, headers={**at.auth(), **named}
    )


async def told_after(at: Pair, conversation: str, after: str, last: str) -> list[str]:
    """The ids that a stream resumed after a position gives, up to another."""
    async with subscribed(
        at.b, f"/v1/conversations/{conversation}/stream", at.keys["acme"], Last_Event_ID=after
    ) as one:
        await one.until(lambda: any(event.id == last for event in one.events()))
        return [event.data["id"] for event in one.events() if event.kind == "event"]


async def test_resuming_from_more_than_1024_ids_back_tells_each_event_once_as_history_does(
    pair: Pair,
) -> None:
    (first,) = await pair.append("far-back", say("first", id="first"), wait=True)
    await pair.append("far-back", say("once", id="once"))
    await pair.append("far-back", say("once", id="once"))
    turn = (await post(pair, "far-back/turns", {"turn_id": "old"})).json()
    assert (
        await post(pair, "far-back/turns/old/end", Fencing_Token=str(turn["fencing_token"]))
    ).status_code == 202
    zombie = await post(
        pair,
        "far-back/events",
        say("zombie", id="zombie"),
        Fencing_Token=str(turn["fencing_token"]),
    )
    assert zombie.status_code == 409
    late = await post(pair, "far-back/events", say("late", id="late"), If_Match=first)
    assert late.status_code == 409
    for page in range(3):
        ids = [f"e{page}-{i}" for i in range(400)]
        positions = await pair.append(
            "far-back", *(say(name, id=name) for name in ids), wait=page == 2
        )
    # More than 1,024 ids ago: none of them is known by its id any more.
    told = await told_after(pair, "far-back", first, positions[-1])
    history: list[str] = []
    before = ""
    while before is not None:
        answer = await pair.a.http.get(
            f"/v1/conversations/far-back/history?limit=500{before and f'&before={before}'}",
            headers=pair.auth(),
        )
        history += [event["id"] for event in answer.json()["events"] if event["type"] != "summary"]
        before = answer.json()["next_before"]
    assert told == history[-2::-1]
    assert told.count("once") == 1
    assert len(told) == 1205


async def test_of_turns_that_speak_at_once_every_text_is_kept_once(pair: Pair) -> None:
    texts = {f"text {i}" for i in range(24)}

    async def speak(i: int) -> None:
        gateway = (pair.a, pair.b)[i % 2]
        body = json.dumps({"turn_id": f"turn-{i}", "delta": f"text {i}", "offset": 0})
        answer = await gateway.http.post(
            "/v1/conversations/crowd/partial", content=body, headers=pair.auth()
        )
        assert answer.status_code == 202, answer.text

    await asyncio.gather(*map(speak, range(24)))
    kept: list[str] = []

    async def all_kept() -> bool:
        page = await pair.a.http.get(
            "/v1/conversations/crowd/history?limit=500", headers=pair.auth()
        )
        kept[:] = [
            event["content"]
            for event in page.json().get("events", [])
            if event["type"] == "message"
        ]
        return len(kept) >= len(texts)

    await until(all_kept)
    assert sorted(kept) == sorted(texts)


async def test_a_partial_with_the_token_of_a_turn_that_is_over_or_overtaken_answers_409(
    pair: Pair,
) -> None:
    def piece(turn: str, delta: str, **headers: str) -> Any:
        return post(pair, "fenced/partial", {"turn_id": turn, "delta": delta}, **headers)

    assert (
        await piece("a", "x", Fencing_Token="3")
    ).status_code == 409  # no such conversation, no turn
    old = str((await post(pair, "fenced/turns", {"turn_id": "a"})).json()["fencing_token"])
    assert (await piece("a", "mine", Fencing_Token=old)).json() == {"turn_id": "a", "offset": 4}
    new = str(
        (await post(pair, "fenced/turns", {"turn_id": "b", "policy": "interrupt"})).json()[
            "fencing_token"
        ]
    )
    refused = await piece("a", " and more", Fencing_Token=old)
    assert refused.status_code == 409
    assert f"that of token {new} is" in refused.json()["detail"]
    assert (await piece("b", "hers", Fencing_Token=new)).status_code == 202
    assert (
        await piece("c", "from outside")
    ).status_code == 202  # without a token nobody is kept out
    assert (await post(pair, "fenced/turns/b/end", Fencing_Token=new)).status_code == 202
    over = await piece("b", "late", Fencing_Token=new)
    assert over.status_code == 409
    assert "no turn is" in over.json()["detail"]
    assert (await piece("b", "x", Fencing_Token="one")).status_code == 422
    assert (await piece("b", "x", If_Match="0-1")).status_code == 422


async def test_a_turn_that_its_routes_could_not_name_does_not_begin(pair: Pair) -> None:
    for turn_id in ("a/b", ".", "..", "x" * 129, "é", "a b", "a\u0000"):
        answer = await post(pair, "named/turns", {"turn_id": turn_id})
        assert answer.status_code == 422, (turn_id, answer.text)
    assert (await post(pair, "named/turns", {"turn_id": "x" * 128})).status_code == 202


async def test_a_direct_client_speaks_with_its_turns_token_and_erases(pair: Pair) -> None:
    async with AsyncClient.direct(pair.settings, "acme", retries=QUICK) as client:
        async with (
            client.turn("direct-turn", policy="queue") as turn,
            client.partial("direct-turn", turn.turn_id, fence=turn.fencing_token) as writer,
        ):
            async with subscribed(
                pair.a, "/v1/conversations/direct-turn/stream", pair.keys["acme"]
            ) as one:
                await writer.write("said ")
                await writer.flush()
                assert writer.trouble is None
                await one.until(lambda: one.of("partial"))
            await writer.finish()
        stale = client.partial("direct-turn", "z", fence=turn.fencing_token)
        await stale.write("zombie")
        with pytest.raises(Conflict, match="not in force"):
            await stale.flush()
        receipt = await client.erase("direct-turn")
        assert receipt["conversation"] == "direct-turn"
        with pytest.raises(Gone):
            await client.append("direct-turn", say("anyone?"))


async def test_a_header_that_cannot_be_sent_is_refused_at_once_and_not_tried_again(
    pair: Pair,
) -> None:
    async with AsyncClient(
        pair.a.url, pair.keys["acme"], retries=Retries(attempts=1000, total=600.0)
    ) as client:
        async with asyncio.timeout(5):
            with pytest.raises(Invalid, match="cannot be sent"):
                await client.append("c", say("x"), expect="0-1\r\nX-More: y")
            with pytest.raises(Invalid, match="cannot be sent"):
                await anext(aiter(client.subscribe("c", after="0-1\nx")))
