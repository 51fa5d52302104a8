"""No route tells one tenant anything of another, nor an end user anything of another user: with
another's conversation, positions, cursors and ids it answers as if there were none.

Every route of the application is walked, by its OpenAPI document; a route without an entry in
`tests.support.tenant_attempts.TABLE` fails the test, so that none is added without being tried here.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from msgspec.structs import replace

from projections.names import Key, partition_of
from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.settings.quotas import DEFAULT_SCOPES
from streams.settings.settings import Settings
from tests.support.gateway import POLICY, say
from tests.support.serving import serving
from tests.support.tenant_attempts import LISTS, SECRET, TABLE, Attempt, Place
from tests.support.worker import running_worker, until
from threadfold.gateway import create_gateway
from threadfold.gateway.routes import TABLE as TABLE_OF_ROUTES


class World:
    """A served gateway, what acme has said in it, and the clients: acme's own, another tenant's,
    and that of another user of acme.
    """

    def __init__(
        self,
        app: Any,
        acme: httpx.AsyncClient,
        rival: httpx.AsyncClient,
        user: httpx.AsyncClient,
    ) -> None:
        self.app, self.acme, self.rival, self.user = app, acme, rival, user
        self.theirs: Place
        self.nobodys: Place

    def routes(self) -> list[tuple[str, str]]:
        """All routes, those that only read first: appends make the other tenant a conversation of
        the same name.
        """
        paths = self.app.openapi()["paths"]
        found = [
            (method.upper(), path)
            for path, methods in paths.items()
            for method in methods
            if path != "/metrics"
        ]
        return sorted(found, key=lambda route: (route[0] != "GET", route[1], route[0]))

    async def view(self) -> list[str]:
        """All that acme sees of its conversation."""
        c, p = self.theirs.conversation, self.theirs
        paths = [
            f"conversations/{c}/context",
            f"conversations/{c}/history?limit=500",
            f"conversations/{c}/events/{p.position}",
        ]
        paths += [f"renders/{p.render}", f"memories/{p.memory}"]
        answers = [await self.acme.get(f"/v1/{path}") for path in paths]
        assert [answer.status_code for answer in answers] == [200] * 5
        return [answer.text for answer in answers]


@pytest.fixture(scope="module")
async def world(settings: Settings) -> AsyncIterator[World]:
    control = await Control(settings).start()
    await control.write(
        {"generation/1": Generation(1, settings.partitions, POLICY), "generation/live": 1}
    )
    keys = {}
    for tenant in ("acme", "rival"):
        await control.ensure_tenant(tenant)
        keys[tenant] = {
            "Authorization": f"Bearer {await control.add_key(tenant, [*DEFAULT_SCOPES, 'erase'])}"
        }
    known = control.state.keys_of("acme")
    await control.stop()
    app = create_gateway(replace(settings, user_requests_per_second=0.0))
    async with (
        running_worker(settings),
        serving(app) as url,
        httpx.AsyncClient(base_url=url, headers=keys["acme"], timeout=30) as acme,
        httpx.AsyncClient(base_url=url, headers=keys["rival"], timeout=30) as rival,
        httpx.AsyncClient(base_url=url, timeout=30) as user,
    ):

        async def ready() -> bool:
            return (await acme.get("/readyz")).status_code == 200

        await until(ready)
        made = World(app, acme, rival, user)
        await _talk(made, settings.partitions, next(iter(known))[:12])
        yield made


async def _talk(world: World, partitions: int, key: str) -> None:
    """Let acme have a conversation whose name, as the other tenant's, falls into the same partition
    as one that nobody has.
    """
    name = next(
        n
        for i in range(999)
        if partition_of(Key("acme", n := f"secret{i}"), partitions)
        == partition_of(Key("rival", n), partitions)
    )
    wanted = partition_of(Key("acme", name), partitions)
    missing = next(
        n for i in range(999) if partition_of(Key("rival", n := f"nobody{i}"), partitions) == wanted
    )
    said = [
        say(SECRET),
        say(f"{SECRET} again"),
        {"type": "suspension", "suspension_id": "sus-1", "kind": "input", "prompt": SECRET},
        {"type": "conversation.opened", "user": "ursula"},
    ]
    answer = (
        await world.acme.post(f"/v1/conversations/{name}/events?wait=applied", json=said)
    ).json()
    cursor = (await world.acme.get(f"/v1/conversations/{name}/history?limit=1")).json()[
        "next_before"
    ]
    context = (await world.acme.get(f"/v1/conversations/{name}/context")).json()
    called = {
        "model": "m",
        "render_digest": context["render_digest"],
        "position": context["position"],
        "format": "openai",
    }
    render = (
        await world.acme.post(
            f"/v1/conversations/{name}/renders", json={**called, "tokens": context["tokens"]}
        )
    ).json()["id"]
    turn = {"turn_id": "turn-1", "seconds": 3600}
    token = str(
        (await world.acme.post(f"/v1/conversations/{name}/turns", json=turn)).json()[
            "fencing_token"
        ]
    )
    await world.acme.post("/v1/conversations/another/events?wait=applied", json=say("another"))
    listed = (await world.acme.get("/v1/conversations?limit=1")).json()["next_before"]
    taught = {"text": f"It is {SECRET}.", "conversation": name}
    saved = await world.acme.post("/v1/memories?wait=applied", json=taught)
    memory = saved.json()["memories"][0]["id"]
    event = answer["events"][0]
    assert cursor
    assert listed
    assert render
    world.theirs = Place(
        name,
        event["position"],
        event["id"],
        cursor,
        render,
        "sus-1",
        "acme",
        key,
        token=token,
        listed=listed,
        memory=memory,
    )
    # The same positions and cursor, but of a conversation that never was; ids like theirs that
    # nothing has.
    world.nobodys = Place(
        missing,
        event["position"],
        "00000000-0000-7000-8000-000000000000",
        cursor,
        _other(render),
        "sus-9",
        "absent",
        "0" * 12,
        turn="turn-9",
        token="7",
        listed=listed,
    )


def _other(render: str) -> str:
    """A render's id of the same form, of no render."""
    return ("B" if render[0] != "B" else "C") + render[1:]


async def _try(client: httpx.AsyncClient, method: str, attempt: Attempt) -> tuple[int, str]:
    content = None if attempt.body is None else json.dumps(attempt.body).encode()
    if not attempt.live:
        answer = await client.request(
            method, attempt.path, content=content, headers=attempt.headers
        )
        return answer.status_code, answer.text
    got = b""
    async with client.stream(
        method, attempt.path, content=content, headers=attempt.headers
    ) as answer:
        try:
            async with asyncio.timeout(0.7):
                async for chunk in answer.aiter_bytes():
                    got += chunk
        except TimeoutError:
            assert answer.status_code == 200, "an answer that does not end is a stream"
        return answer.status_code, got.decode()


def _plain(text: str, place: Place) -> str:
    """An answer without the ids of its own request: what it is called, and where in the other
    tenant's own conversation it landed.
    """
    for name in (
        place.conversation,
        place.event,
        place.render,
        place.suspension,
        place.tenant,
        place.key,
        place.turn,
        place.memory,
    ):
        text = text.replace(name, "X")
    # Whose a credential is follows from the credential alone.
    text = re.sub(r'"tenant":"[^"]*","scopes"', '"tenant":"X","scopes"', text)
    text = re.sub(r'"fencing_token":[0-9]+|token [0-9]+', "token", text)
    text = re.sub(r'"(id|position|time|after|next_before|cursor)":"[^"]*"', r'"\1":"…"', text)
    return re.sub(r'"positions":\{[^}]*\}', '"positions":{}', text)


async def test_the_metrics_name_no_tenant_and_no_conversation(world: World) -> None:
    await world.acme.get(f"/v1/conversations/{world.theirs.conversation}/context")
    page = (await world.rival.get("/metrics")).text
    assert 'route="/v1/conversations/{conversation}/context"' in page
    assert world.theirs.conversation not in page and "acme" not in page


async def test_every_route_has_an_entry(world: World) -> None:
    missing = [route for route in world.routes() if route not in TABLE]
    assert not missing, f"say in TABLE what another tenant tries at {missing}"
    gone = [route for route in TABLE if route not in world.routes()]
    assert not gone, f"no such routes any more: {gone}"


async def _walk(world: World, client: httpx.AsyncClient) -> list[tuple[str, str, int]]:
    """Try every route with theirs and with nobody's; returns the status of each attempt."""
    before = await world.view()
    assert any(SECRET in text for text in before)
    tried: list[tuple[str, str, int]] = []
    for method, path in world.routes():
        entry = TABLE.get((method, path))
        if entry is None:
            continue  # the test above fails for it
        for theirs, nobodys in zip(entry(world.theirs), entry(world.nobodys), strict=True):
            found, expected = (
                await _try(client, method, theirs),
                await _try(client, method, nobodys),
            )
            assert found[0] == expected[0], (method, theirs.path, found, expected)
            assert _plain(found[1], world.theirs) == _plain(expected[1], world.nobodys), (
                method,
                theirs.path,
            )
            assert SECRET not in found[1], (method, theirs.path)
            assert found[0] < 500, (method, theirs.path, found)
            tried.append((method, path, found[0]))
    assert len(tried) >= len(TABLE)
    assert await world.view() == before, (
        "nothing that the other one did is seen in this one's conversation"
    )
    return tried


async def test_another_tenants_answers_equal_those_for_what_does_not_exist(world: World) -> None:
    await _walk(world, world.rival)


@pytest.mark.parametrize("named", [False, pytest.param(True, marks=pytest.mark.long)])
async def test_another_users_answers_equal_those_for_what_does_not_exist(
    world: World, named: bool
) -> None:
    # Also where the token names the conversation: that opens nothing of another user.
    names = [world.theirs.conversation] if named else None
    body = {"user": "mallory", "verbs": ["read", "stream", "append"], "conversations": names}
    token = (await world.acme.post("/v1/tokens", json=body)).json()["token"]
    world.user.headers["Authorization"] = f"Bearer {token}"
    listed = (await world.acme.get("/v1/conversations")).text
    tried = await _walk(world, world.user)
    assert (await world.acme.get("/v1/conversations")).text == listed
    opened = {(route.method, route.template) for route in TABLE_OF_ROUTES if route.end_users}
    for method, path, status in tried:
        if path.startswith("/v1/"):
            expected = {403} if (method, path) not in opened else {404}
            if (method, path) in LISTS:
                expected = {200, 422}  # a list without any of theirs; a cursor of another list
            assert status in expected, (method, path, status)


async def test_the_other_tenants_own_conversation_of_that_name_is_its_own(world: World) -> None:
    path = f"/v1/conversations/{world.theirs.conversation}"
    await world.rival.post(f"{path}/events?wait=applied", json=say("mine alone"))
    for part in ("context", "history?limit=500"):
        answer = await world.rival.get(f"{path}/{part}")
        assert answer.status_code == 200
        assert SECRET not in answer.text
        assert "mine alone" in answer.text
    other = await world.rival.get(f"{path}/events/{world.theirs.position}")
    assert other.status_code == 422
    assert (
        await world.rival.get(f"{path}/history?before={world.theirs.cursor}")
    ).status_code == 422
