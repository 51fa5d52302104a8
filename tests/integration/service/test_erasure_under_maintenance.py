"""Erasures on real Kafka and Redis while an operator has stopped appends."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest

from projections.errors import Erased, UnderMaintenance
from projections.names import Key, make_key, users_log
from streams.control.state import Maintenance
from streams.encryption.key_table import Erasure
from streams.settings.settings import Settings
from tests.support.erasure import no_text, say, stack, talk
from tests.support.memories import saved
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser
from threadfold.service.saved_memories import flat_event

OF_ALL, OF_ONE = "", "sealed"
STOPPED = Maintenance("2026-01-31T12:00:00Z", "it moves")


@asynccontextmanager
async def stopped(backend: ConversationService, whose: str) -> AsyncIterator[None]:
    """An operator has stopped the appends of all or of one tenant, from entry to exit."""
    await backend.control.write({f"maintenance/{whose}": STOPPED})
    try:
        yield
    finally:
        await backend.control.write({f"maintenance/{whose}": None})


def keys(*names: str) -> list[Key]:
    return [make_key("sealed", name) for name in names]


def erasure_of(backend: ConversationService, key: Key) -> Erasure | None:
    return backend.keys.table.erasure(str(key).encode())


@pytest.mark.parametrize("whose", [OF_ALL, OF_ONE])
async def test_nothing_of_a_conversation_is_erased_under_maintenance(
    made: Settings, whose: str
) -> None:
    key = make_key("sealed", f"kept{whose}")
    async with stack(made) as (_, backend):
        eraser = Eraser(backend, no_text)
        await say(backend, key.tenant, key.conversation, talk(1))
        before = await backend.context(key.tenant, key.conversation)
        async with stopped(backend, whose):
            with pytest.raises(UnderMaintenance, match=f"nothing of {key.shown} is erased yet"):
                await eraser.conversation(key.tenant, key.conversation)
            assert erasure_of(backend, key) is None
            assert await backend.context(key.tenant, key.conversation) == before
        await say(backend, key.tenant, key.conversation, [talk(1)[1]])
        receipt = await eraser.conversation(key.tenant, key.conversation)
        async with stopped(backend, whose):
            assert await eraser.conversation(key.tenant, key.conversation) == receipt


async def test_nothing_of_a_user_is_erased_under_maintenance(made: Settings) -> None:
    own = users_log("sealed", "ada")
    async with stack(made) as (_, backend):
        eraser = Eraser(backend, no_text)
        for name in ("a1", "a2"):
            opened = {"type": "conversation.opened", "user": "ada"}
            await say(backend, "sealed", name, [opened, talk(1)[1]])
        taught = flat_event(saved(own, "Likes tea.", user="ada"))
        (one,) = await backend.append("sealed", [(own, taught)], operator=True)
        await backend.wait_applied("sealed", own, [one])
        async with stopped(backend, OF_ONE):
            with pytest.raises(UnderMaintenance, match="nothing of the memory of this user is"):
                await eraser.user("sealed", "ada")
            begun = [erasure_of(backend, key) for key in (own, *keys("a1", "a2"))]
            assert begun == [None, None, None]
        receipts = await eraser.user("sealed", "ada")
        assert [one.conversation for one in receipts] == ["a1", "a2", own.conversation]


async def test_an_erasure_that_began_just_before_says_so_and_goes_on_when_it_is_repeated(
    made: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (key,) = keys("raced")
    async with stack(made) as (_, backend):
        eraser, put = Eraser(backend, no_text), backend.keys.put_erasure
        await say(backend, key.tenant, key.conversation, talk(1))
        async with AsyncExitStack() as meanwhile:

            async def put_and_stop(*args: Any) -> None:
                await put(*args)
                await meanwhile.enter_async_context(stopped(backend, OF_ONE))

            monkeypatch.setattr(backend.keys, "put_erasure", put_and_stop)
            for _ in range(2):
                with pytest.raises(UnderMaintenance, match=f"the erasure of {key.shown} has begun"):
                    await eraser.conversation(key.tenant, key.conversation)
                with pytest.raises(Erased):
                    await backend.context(key.tenant, key.conversation)
            begun = erasure_of(backend, key)
            assert begun is not None and begun.state == "begun" and begun.position is None
            monkeypatch.undo()
        receipt = await eraser.conversation(key.tenant, key.conversation)
        assert receipt.erased_at == begun.erased_at
        done = erasure_of(backend, key)
        assert done is not None and done.state == "done"
