"""A list of large suspensions comes in pages that end after some bytes."""

from __future__ import annotations

from typing import Any

import pytest

from streams.runtime.keyed_limit import KeyedLimit
from tests.support.gateway import Client, is_problem, say
from threadfold.service.pages import PAGE_BYTES

PROMPT = 31 << 10
EACH, MANY = 32, 11
"""Suspensions of a conversation, and such conversations: 11 MB together."""


def waiting(name: str, number: int, prompt: str) -> dict[str, Any]:
    given = {"suspension_id": f"{name}-{number}", "kind": "input", "prompt": prompt}
    return {"type": "suspension", **given}


async def pages_of(call: Client, limit: int) -> list[list[tuple[str, str]]]:
    """The pages of a tenant's open suspensions, each as their conversations and ids."""
    pages: list[list[tuple[str, str]]] = []
    cursor = ""
    while True:
        answer = await call("GET", f"/v1/suspensions?limit={limit}{cursor}", tenant="rival")
        assert answer.status_code == 200, answer.text
        assert len(answer.content) <= PAGE_BYTES + 2 * EACH * PROMPT
        page = answer.json()
        assert page["unreadable"] == []
        found = page["suspensions"]
        pages.append([(one["conversation"], one["suspension_id"]) for one in found])
        if page["next_before"] is None:
            return pages
        cursor = f"&before={page['next_before']}"


@pytest.mark.long
async def test_many_large_suspensions_come_in_several_pages_each_once_and_in_order(
    call: Client,
) -> None:
    expected: list[tuple[str, str]] = []
    for i in range(MANY + 2):
        name = f"large-{i}"
        prompt, number = ("x" * PROMPT, EACH) if i < MANY else ("Go on?", 2)
        events = [say("x"), *(waiting(name, n, prompt) for n in range(number))]
        path = f"/v1/conversations/{name}/events?wait=applied"
        assert (await call("POST", path, events, tenant="rival")).status_code == 200
        expected = [*((name, f"{name}-{n}") for n in range(number)), *expected]
    pages = await pages_of(call, 200)
    assert len(pages) == 3
    assert sum(pages[1:], pages[0]) == expected
    several = await pages_of(call, 2)
    assert len(several) == (MANY + 2 + 1) // 2
    assert sum(several[1:], several[0]) == expected
    alone = await pages_of(call, 1)
    assert [page[0][0] for page in alone] == [f"large-{i}" for i in reversed(range(MANY + 2))]


async def test_a_list_of_suspensions_waits_for_its_tenants_others(
    call: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(call.backend, "turns_to_list", KeyedLimit(1, 0.05))
    async with call.backend.turns_to_list.of("acme"):
        is_problem(await call("GET", "/v1/suspensions"), 503, "no turn came within 0.05 s")
        assert (await call("GET", "/v1/suspensions", tenant="rival")).status_code == 200
    assert (await call("GET", "/v1/suspensions")).status_code == 200
