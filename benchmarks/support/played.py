"""``threadfold up`` with conversations played into it flat out, until no summary is awaited."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.harness import Measured, rounded
from benchmarks.support.awaited import Awaited, Family, watched
from benchmarks.support.children import ROOT
from benchmarks.support.meters import Meter
from benchmarks.support.stacks import Bench
from benchmarks.support.texts import TENANT
from streams.settings.settings import PREFIX, Settings

STARTS = 120.0
LOOK = 0.05


_rounds = iter(range(10**9))


async def play(
    bench: Bench, name: str, file: Path, events: int, env: Mapping[str, str]
) -> Measured:
    """Play a file into a stack of its own: events a second from the first one in the log until all
    are applied and no summary is awaited. ``answered_s``: until workers have committed all
    requests, those to learn too.

    Args:
        name: what its topics are named after.
        env: settings that are not the defaults, as ``THREADFOLD_*`` variables without the prefix.
    """
    bench.flush()
    settings = bench.settings(f"{name}{next(_rounds)}")
    with TemporaryDirectory() as folder:
        async with _up(bench, settings, Path(folder), env) as (pid, command_env):
            player = await _threadfold(command_env, "play", str(file), "--tenant", TENANT)
            async with watched(settings) as awaited, Family(pid).sampled() as family:
                while not await awaited.appended():
                    if player.returncode is not None:
                        raise RuntimeError("the player ended before it appended anything")
                    await asyncio.sleep(LOOK)
                begin, meter = time.perf_counter(), Meter(bench.pids)
                await _until_appended(awaited, events)
                appended = time.perf_counter() - begin
                if await player.wait():
                    raise RuntimeError(f"the player ended with exit code {player.returncode}")
                applied = time.perf_counter() - begin
                await awaited.until_done()
                seconds = time.perf_counter() - begin
                usage = {**meter.stop(), "up": family.usage()}
                await awaited.until_answered()
                answered = time.perf_counter() - begin
                more = {
                    "appended_s": rounded(appended),
                    "applied_s": rounded(applied),
                    "seconds": rounded(seconds),
                    "answered_s": rounded(answered),
                    "applied_events_s": rounded(events / applied),
                    "summaries": await awaited.accepted(),
                }
                return Measured(events / seconds, usage, more)


async def _until_appended(awaited: Awaited, events: int) -> None:
    while await awaited.appended() < events:  # noqa: ASYNC110 (another process, which tells nothing)
        await asyncio.sleep(LOOK)


@asynccontextmanager
async def _up(
    bench: Bench, settings: Settings, folder: Path, env: Mapping[str, str]
) -> AsyncIterator[tuple[int, dict[str, str]]]:
    """``threadfold up`` on the bench's servers; yields its process and the environment in which
    commands find it.
    """
    given = {
        "kafka": settings.kafka,
        "redis": settings.redis,
        "topic_prefix": settings.topic_prefix,
        "replication": "1",
        "min_isr": "1",
        **env,
    }
    own = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
    own |= {PREFIX + name.upper(): value for name, value in given.items()}
    own["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [own.get("PYTHONPATH")])])
    process = await _threadfold(own, "up", "--port", "0", "--data", str(folder / "data"))
    assert process.stdout is not None
    try:
        async with asyncio.timeout(STARTS):
            while b"ready:" not in (line := await process.stdout.readline()):
                if not line:
                    raise RuntimeError("`threadfold up` ended before it was ready")
        yield process.pid, own
    finally:
        if process.returncode is None:
            process.terminate()
        await process.communicate()


async def _threadfold(env: Mapping[str, str], *command: str) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "threadfold.cli", *command),
        env=dict(env),
        stdout=asyncio.subprocess.PIPE,
    )
