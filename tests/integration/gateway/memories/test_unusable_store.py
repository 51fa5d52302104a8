"""A gateway whose memory store cannot be used: callers get its cause at once; all
else goes on, and the memory too once the store can be used again.
"""

from __future__ import annotations

import errno
import fcntl
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import msgspec
import pytest

from streams.settings.settings import Settings
from tests.support.gateway import say
from tests.support.memory_routes import World
from tests.support.serving import serving
from tests.support.worker import until
from threadfold.gateway import create_gateway
from threadfold.service import patience

SOON = 5.0
"""Seconds: half of what an answer used to wait for a store."""


@pytest.fixture
async def other(world: World, settings: Settings, tmp_path: Path) -> AsyncIterator[World]:
    """Another gateway of the same stack, with a store in a folder."""
    made = msgspec.structs.replace(settings, memory_store=str(tmp_path / "memories"))
    async with serving(create_gateway(made)) as url:
        found = World(url, world.keys, made)

        async def ready() -> bool:
            return (await found.http.get("/readyz")).status_code == 200

        await until(ready)
        yield found
        await found.http.aclose()


def check_answer(answer: httpx.Response, cause: str) -> None:
    assert answer.status_code == 503, answer.text
    problem = answer.json()
    assert problem["type"] == "urn:threadfold:problem:memory-unavailable"
    assert cause in problem["detail"] and "/" not in problem["detail"]
    assert answer.elapsed.total_seconds() < SOON


async def test_a_folder_that_cannot_be_written_is_named_at_once(
    other: World, user: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    cause = "its folder cannot be read or written (Read-only file system)"
    name = await other.opened(user)
    with monkeypatch.context() as patched:
        patched.setattr(fcntl, "flock", refuse)
        for _ in range(2):
            check_answer(await other("GET", "/memories"), cause)
            check_answer(await other("POST", "/memories/search", {"query": "tea"}), cause)
        ready = await other.http.get("/readyz")
        assert (ready.status_code, ready.json()["memory"]) == (200, cause)
        # Soon after the start an answer would wait some seconds: not where the cause is known.
        patched.setattr(patience, "PATIENCE", 60.0)
        said = [say("Which tea do I like?")]
        await other.ok("POST", f"/conversations/{name}/events?wait=applied", said)
        context = await other("GET", f"/conversations/{name}/context?recall=on")
        assert context.status_code == 200 and cause in context.json()["away"]["memories"]
        assert context.elapsed.total_seconds() < SOON

    async def fed() -> bool:
        return "memory" not in (await other.http.get("/readyz")).json()

    await until(fed)
    assert (await other("GET", "/memories")).status_code == 200


async def test_a_folder_that_became_a_file_is_no_error_of_the_gateway(
    other: World, tmp_path: Path
) -> None:
    folder = tmp_path / "memories"
    shutil.rmtree(folder)
    folder.touch()
    check_answer(await other("GET", "/memories"), "its folder cannot be opened any more")
    folder.unlink()
    assert (await other("GET", "/memories")).status_code == 200
    shutil.rmtree(folder)
    folder.touch()

    async def named() -> bool:
        return "memory" in (await other.http.get("/readyz")).json()

    await until(named)
    assert (await other("GET", "/memories")).status_code in (200, 503)
