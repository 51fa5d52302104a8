"""Projections of one's own in processes of the command line that are ended, killed and frozen."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path

import psutil
import pytest

from examples.usage import Usage
from projections.errors import Healing, UnknownProjection
from streams.custom.persistence import place_of
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.commands import cli, start
from tests.support.custom_projections import KEY, TENANTS, append, caught_up, in_log
from tests.support.worker import until
from threadfold.custom import ProjectionReader, verify
from threadfold.custom.access import Parts, opened
from threadfold.embedded.stack import EmbeddedStack

ROOT = Path(__file__).resolve().parents[3]


@pytest.mark.long
async def test_the_example_runs_from_the_command_line_and_ends_at_a_signal(
    parts: tuple[Settings, Parts], tmp_path: Path
) -> None:
    settings, open_ = parts
    await append(open_, 10, "cli")
    (tmp_path / "usage.py").write_text((ROOT / "examples" / "usage.py").read_text())
    env = env_of(settings, tmp_path)
    process = await start("projection", "run", "usage:Usage", env=env)
    try:
        await until(lambda: _usage(settings, "usage"), 120)
        process.send_signal(signal.SIGTERM)
        out, err = await asyncio.wait_for(process.communicate(), 20)
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    assert (process.returncode, out.decode(), err.decode()) == (
        0,
        "running: usage, version 1\n",
        "",
    )
    ran, listed, unknown = await asyncio.gather(
        cli("projection", "verify", "usage:Usage", env=env),
        cli("projection", "list", env=env),
        cli("projection", "run", "usage:Nothing", env=env),
    )
    assert (ran.code, ran.lines[-1].endswith(", differing: 0")) == (0, True)
    assert "usage\t1\tlive\tversion: 1" in listed.lines
    assert (unknown.code, unknown.said) == (
        2,
        "threadfold: usage:Nothing: module usage has no Nothing",
    )


def env_of(settings: Settings, folder: Path) -> dict[str, str]:
    return {
        "THREADFOLD_KAFKA": settings.kafka,
        "THREADFOLD_REDIS": settings.redis,
        "THREADFOLD_TOPIC_PREFIX": settings.topic_prefix,
        "THREADFOLD_MASTER_KEYS": KEY,
        "PYTHONPATH": f"{folder}{os.pathsep}{ROOT}",
    }


async def _usage(settings: Settings, name: str) -> bool:
    try:
        async with ProjectionReader.open(settings, Usage()) as view:
            days = await view.all("acme")
    except (UnknownProjection, Healing):
        return False
    return sum(day["events"] for day in days.values()) >= 10


@pytest.mark.long
async def test_processes_that_are_killed_and_frozen_leave_every_event_counted_once(
    stack: EmbeddedStack, tmp_path: Path
) -> None:
    settings = fresh_settings(stack, master_keys=KEY, session_timeout=6)
    await create_topics(settings)
    (tmp_path / "usage.py").write_text((ROOT / "examples" / "usage.py").read_text())
    env = {
        **env_of(settings, tmp_path),
        "THREADFOLD_SESSION_TIMEOUT": "6",
        "THREADFOLD_BATCH_EVENTS": "20",
    }
    ended = asyncio.Event()
    async with opened(settings) as open_:

        async def feed() -> None:
            number = 0
            while not ended.is_set():
                number += 1
                await append(open_, 25, f"m{number}")
                await append(open_, 5, f"m{number}")  # a producer's repeats
                await asyncio.sleep(0.05)

        feeding = asyncio.create_task(feed())
        processes = [await start("projection", "run", "usage:Usage", env=env) for _ in range(2)]
        try:
            for how in (signal.SIGKILL, signal.SIGSTOP, signal.SIGKILL, signal.SIGKILL):
                reached = await applied(open_, "usage")
                # A process takes 12 s to start at a load of 8, and a killed one's session 6 s to end.
                await until(
                    lambda reached=reached: _is_beyond(open_, "usage", reached, feeding), 180
                )
                victim = next(
                    p for p in processes if p.returncode is None and p.pid not in frozen(processes)
                )
                victim.send_signal(how)
                if how == signal.SIGKILL:
                    await victim.wait()
                processes.append(await start("projection", "run", "usage:Usage", env=env))
            for process in processes:
                if process.returncode is None:
                    process.send_signal(signal.SIGCONT)  # the frozen one comes back as a zombie
            ended.set()
            await feeding
            await until(caught_up(open_, Usage()), 180)
            async with ProjectionReader.open(settings, Usage()) as view:
                days = {tenant: await view.all(tenant) for tenant in TENANTS}
            assert {
                tenant: sum(day["events"] for day in found.values())
                for tenant, found in days.items()
            } == await in_log(open_)
            assert (await verify(settings, Usage())).differing == []
        finally:
            ended.set()
            for process in processes:
                if process.returncode is None:
                    process.kill()
                    await process.wait()


def frozen(processes: list[asyncio.subprocess.Process]) -> set[int]:
    """Those that a signal has stopped."""
    return {
        p.pid
        for p in processes
        if p.returncode is None and psutil.Process(p.pid).status() == psutil.STATUS_STOPPED
    }


async def applied(parts: Parts, name: str) -> int:
    found = [await parts.store.checkpoint(place_of(name, 1, number)) for number in range(4)]
    return sum(checkpoint.offset for checkpoint in found if checkpoint is not None)


async def _is_beyond(parts: Parts, name: str, reached: int, feeding: asyncio.Task[None]) -> bool:
    if feeding.done():
        await feeding  # why nothing comes any more
    return await applied(parts, name) > reached + 50
