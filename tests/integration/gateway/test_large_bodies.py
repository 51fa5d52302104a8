"""Large bodies of one tenant do not hold up another tenant's requests."""

from __future__ import annotations

import asyncio
import json
import time

import pytest

from tests.support.gateway import Client, is_problem, say
from tests.support.worker import until
from threadfold.gateway import long_turns


def lists(size: int) -> bytes:
    return b"[" + b"[]," * (size // 3) + b"[]]"


def keys(size: int) -> bytes:
    many = b",".join(b'"k%d":"vvvv"' % i for i in range(size // 20))
    return b'{"type":"conversation.opened","metadata":{' + many + b"}}"


def runs(size: int) -> bytes:
    return json.dumps([say("=" * 100_000)] * min(size // 100_000, 500)).encode()


SIZES = [4 << 20, pytest.param(60 << 20, marks=pytest.mark.long)]


@pytest.mark.long
@pytest.mark.parametrize("size", SIZES)
async def test_others_are_answered_while_large_bodies_are_refused(call: Client, size: int) -> None:
    path = "/v1/conversations/here/events"
    await call("POST", f"{path}?wait=applied", say("hello"), tenant="rival")
    seconds: list[float] = []
    done = asyncio.Event()

    async def others() -> None:
        while not done.is_set():
            begun = time.monotonic()
            answer = await call("GET", "/v1/conversations/here/context", tenant="rival")
            assert answer.status_code == 200
            seconds.append(time.monotonic() - begun)
            await asyncio.sleep(0.01)

    asking = asyncio.create_task(others())
    is_problem(await call("POST", path, lists(size)), 422, "100000 JSON values")
    is_problem(await call("POST", path, keys(size)), 422, "100000 JSON values")
    is_problem(await call("POST", path, runs(size)), 413, "take long to count")
    done.set()
    await asking
    # Seconds where the bodies are read in the event loop; the bound is wide for a busy machine.
    assert sorted(seconds)[int(len(seconds) * 0.95)] < 0.5, sorted(seconds)[-10:]


async def test_large_bodies_of_other_routes_than_appends_are_taken_or_refused_by_name(
    call: Client,
) -> None:
    path, large = "/v1/conversations/here/partial", "ab\u00e9 " * 100_000
    answer = await call("POST", path, {"turn_id": "t", "delta": large})
    assert (answer.status_code, answer.json()["offset"]) == (202, len(large))
    wrong = await call("POST", path, {"turn_id": "t", "delta": [large]})
    is_problem(wrong, 422, "field delta")
    is_problem(await call("POST", path, b'{"turn_id":"t","delta":"' + large.encode()), 400, "JSON")


async def test_a_tenants_lists_have_a_pace_while_another_tenant_has_requests(
    call: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(long_turns, "PATIENCE", 0.001)
    monkeypatch.setattr(long_turns, "LEAST", 0.0)
    lists = [[say(f"{n} {i}") for i in range(500)] for n in range(12)]

    async def many() -> list[int]:
        path = "/v1/conversations/many/events"
        found = await asyncio.gather(*(call("POST", path, one) for one in lists))
        for answer in found:
            if answer.status_code != 202:
                assert "as many long requests under way as it may have" in answer.text
        return [answer.status_code for answer in found]

    monkeypatch.setattr(long_turns, "ACTIVE", 0.0)
    assert set(await many()) == {202}
    monkeypatch.setattr(long_turns, "ACTIVE", 60.0)
    path = "/v1/conversations/here/context"
    assert (await call("GET", path, tenant="rival")).status_code in (200, 404)
    seen = set[int]()

    async def both() -> bool:
        seen.update(await many())
        return len(seen) > 1

    # The first lists may have taken so long that none may begin at once.
    await until(both)
    assert seen == {202, 429}
    assert (await call("GET", path)).status_code in (200, 404)
