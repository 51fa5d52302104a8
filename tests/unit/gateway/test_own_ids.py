"""The ids that follow from an end user's Idempotency-Key are none of the tenant's."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from threadfold.gateway.access import Caller
from threadfold.gateway.memory_bodies import NewMemory, NewSkill
from threadfold.gateway.routes.memories import post_memories, post_skills
from threadfold.gateway.tokens import EndUser

KEY = "order-1182-answer"
USERS = (None, EndUser("ann"), EndUser("bob"))


class Memories:
    """Notes what ids are to follow from."""

    def __init__(self) -> None:
        self.seeds: list[str | None] = []

    async def save(self, *_: object, seed: str | None, wait: bool) -> list[dict[str, str]]:
        del wait
        self.seeds.append(seed)
        return []


@pytest.mark.parametrize(
    ("handler", "body"),
    [(post_memories, NewMemory("Likes tea.")), (post_skills, NewSkill("Return a parcel", "1."))],
)
async def test_an_end_user_who_saves_takes_no_id_that_follows_from_a_key_of_the_tenant(
    handler: Any, body: object
) -> None:
    memories = Memories()
    request: Any = SimpleNamespace(state=SimpleNamespace(memories=lambda _: memories))
    backend: Any = None
    for end_user in USERS:
        caller = Caller("acme", backend, end_user=end_user)
        await handler(request, caller, body, idempotency_key=KEY)
        await handler(request, caller, body)
    assert memories.seeds[0] == KEY and len(set(memories.seeds[::2])) == len(USERS)
    assert memories.seeds[1::2] == [None] * len(USERS)
