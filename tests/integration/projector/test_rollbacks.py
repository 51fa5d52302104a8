"""A rollback into old history on a real stack: others of its partition go on, and the window is the
log's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from projections.fold.outcomes import History, Outcome
from projections.names import Key, partition_of
from projections.window.window import Window
from streams.log.log import Log
from streams.projector import projector
from streams.settings.settings import Settings
from tests.integration.projector.test_pipeline import POLICY, folded_from_log
from tests.support.generations import open_generation
from tests.support.worker import running_worker, until
from threadfold.service.conversations import ConversationService

Fetch = Callable[[Log, Window, Outcome], Awaitable[History]]


def message(text: str) -> dict[str, str]:
    return {"type": "message", "role": "user", "content": text}


@pytest.mark.long
async def test_others_go_on_while_a_conversation_goes_back_to_an_old_event(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    await open_generation(settings, POLICY)
    key = Key("acme", "long")
    number = partition_of(key, settings.partitions)
    names = (f"c{i}" for i in range(1000))
    beside = next(n for n in names if partition_of(Key("other", n), settings.partitions) == number)
    gate, fetch = asyncio.Event(), projector.fetch_needed

    async def slow(log: Log, window: Window, needs: Outcome) -> History:
        if needs.target is not None:
            await gate.wait()
        return await fetch(log, window, needs)

    monkeypatch.setattr(projector, "fetch_needed", slow)
    async with running_worker(settings) as runtime, ConversationService(settings) as backend:
        texts = [(key.conversation, message(f"number {i} " + "word " * 30)) for i in range(120)]
        sent = await backend.append("acme", texts)
        await backend.wait_applied("acme", key.conversation, sent, 60)

        async def summarised() -> bool:
            window = await backend.window("acme", key.conversation)
            return window.meta.summary is not None and window.meta.due is None

        await until(summarised)
        (back,) = await backend.append(
            "acme", [(key.conversation, {"type": "rollback", "to": str(sent[5].position)})]
        )
        waits = asyncio.create_task(
            backend.wait_applied("acme", key.conversation, [back], timeout=60)
        )
        for i in range(3):
            (appended,) = await backend.append("other", [(beside, message(f"beside {i}"))])
            (applied,) = await backend.wait_applied("other", beside, [appended], 60)
            assert applied.status == "applied"
            assert str(i) in (await backend.context("other", beside)).decode()
        stored = await runtime.store.checkpoint(1, number)
        assert stored is not None and stored.restoring and not waits.done()
        gate.set()
        # No record comes: the partition goes on by itself.
        ((done,),) = await asyncio.gather(waits)
        assert done.status == "applied"
        window = await backend.window("acme", key.conversation)
        assert b"number 5" in window.image() and b"number 6" not in window.image()

        async def same() -> bool:
            window = await backend.window("acme", key.conversation)
            return window.image() == (await folded_from_log(runtime, key)).image()

        await until(same)
