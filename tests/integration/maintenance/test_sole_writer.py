"""Of two commands that write the same log anew, one is refused before it writes anything."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from projections.errors import Conflict, TenantExists
from streams.log.sole_writer import sole_writer
from streams.log.topic_copies import extents
from streams.log.topics import create_topics
from streams.maintenance.tenant_move import Moved, import_tenant
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.integration.maintenance.test_tenant_move import SAY, opened
from tests.support.commands import cli, ok
from tests.support.moved_logs import folder_of
from tests.support.worker_process import environment
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.conversations import ConversationService

EVENTS = 300


@pytest.fixture
async def exported(settings: Settings, tmp_path: Path) -> Path:
    """The folder of a tenant with some events."""
    await opened(settings, "mover")
    async with ConversationService(settings) as service:
        for number in range(3):
            await service.append("mover", [(f"c{number}", SAY)] * (EVENTS // 3))
    data = folder_of(settings, tmp_path / "data")
    await ok("tenants", "export", "mover", tmp_path / "mover", "--data", data)
    return tmp_path / "mover"


@pytest.mark.long
async def test_two_imports_at_once_write_every_event_once(
    stack: EmbeddedStack, exported: Path
) -> None:
    target = fresh_settings(stack)
    await opened(target, "resident")
    tries = [import_tenant(target, exported, lambda done, total: None) for _ in range(2)]
    ended = await asyncio.gather(*tries, return_exceptions=True)
    done = [one for one in ended if isinstance(one, Moved)]
    assert len(done) <= 1
    assert all(isinstance(one, Moved | Conflict | TenantExists) for one in ended), ended
    if not done:  # they began in the same moment
        await import_tenant(target, exported, lambda done, total: None)
    assert sum(part.end for part in await extents(target, "events")) == EVENTS


@pytest.mark.long
async def test_a_command_that_writes_the_log_is_refused_while_another_one_does(
    stack: EmbeddedStack, exported: Path, tmp_path: Path
) -> None:
    target = fresh_settings(stack)
    await create_topics(target)
    saved = tmp_path / "saved"
    await ok("backup", "export", saved, "--data", tmp_path / "data")
    into = folder_of(target, tmp_path / "target")
    copy = ("topics", "copy", "--to", f"{target.topic_prefix}b", "--partitions", "8")
    async with sole_writer(target):
        for command in (("tenants", "import", exported), ("backup", "import", saved), copy):
            ran = await cli(*command, "--data", into)
            assert ran.code == 2, ran
            assert "another copy, import or restore writes this log" in ran.said
    assert not sum(part.end for part in await extents(target, "events"))
    await ok("backup", "import", saved, "--data", into)


WRITER = """
import asyncio, sys
from projections.errors import Conflict
from streams.log.sole_writer import sole_writer
from streams.log.topic_copies import Copied, PartitionWriter
from streams.settings.settings import Settings
async def write(settings):
    async with sole_writer(settings) as sole, sole.producer(settings) as producer:
        writer = PartitionWriter(producer, settings.topic("events"), 0, exact=False)
        for number in range(100_000):
            await writer.write([Copied(number, 0, b"acme/c", b"{}", ())] * 50)
            if number == 20:
                print("writes", flush=True)
            await asyncio.sleep(0.005)
try:
    asyncio.run(write(Settings.load()))
except Conflict as error:
    print(error, flush=True)
"""


@asynccontextmanager
async def another_writer(settings: Settings) -> AsyncIterator[asyncio.subprocess.Process]:
    """A process that writes, killed at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", WRITER, env=environment(settings), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    try:
        assert await process.stdout.readline() == b"writes\n"
        with pytest.raises(Conflict):
            async with sole_writer(settings):
                pass
        yield process
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


@pytest.fixture
async def target(stack: EmbeddedStack) -> Settings:
    made = fresh_settings(stack, session_timeout=6.0, append_timeout=5.0)
    await create_topics(made)
    return made


@pytest.mark.long
async def test_a_command_waits_for_one_that_was_killed_and_then_writes(target: Settings) -> None:
    async with another_writer(target) as process:
        process.kill()
        await process.wait()
        async with sole_writer(target):
            pass


@pytest.mark.long
async def test_one_that_stood_still_while_another_began_writes_no_more(target: Settings) -> None:
    async with another_writer(target) as process:
        process.send_signal(signal.SIGSTOP)
        async with sole_writer(target):
            before = await extents(target, "events")
            process.send_signal(signal.SIGCONT)
            assert process.stdout is not None
            said = await process.stdout.readline()
            assert b"this process stood still for" in said
            await process.wait()
            assert await extents(target, "events") == before
