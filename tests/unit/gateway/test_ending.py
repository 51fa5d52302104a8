"""The end of the gateway's process."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from streams.settings.settings import Settings
from threadfold.gateway.app import create_gateway


class Frozen:
    """A backend whose Kafka does not answer."""

    def __init__(self) -> None:
        self.stopping = asyncio.Event()

    async def stop(self) -> None:
        self.stopping.set()
        await asyncio.Event().wait()


async def test_what_is_cut_off_while_it_closes_is_one_line_and_no_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    nowhere = Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    gateway, backend = create_gateway(nowhere), Frozen()
    received, sent = asyncio.Queue[Any](), asyncio.Queue[Any]()
    lifespan = asyncio.create_task(gateway({"type": "lifespan"}, received.get, sent.put))
    await received.put({"type": "lifespan.startup"})
    assert (await sent.get())["type"] == "lifespan.startup.complete"
    gateway.state.connection.backend = backend  # type: ignore[assignment]
    with caplog.at_level(logging.WARNING):
        await received.put({"type": "lifespan.shutdown"})
        await backend.stopping.wait()
        lifespan.cancel()
        assert await sent.get() == {"type": "lifespan.shutdown.complete"}
        await lifespan
    assert "the gateway ends before its connections are closed" in caplog.messages
