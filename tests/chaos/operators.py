"""What an operator does while everything runs and breaks: the commands, as processes of their own."""

from __future__ import annotations

import asyncio
import json
import random
import signal
import sys
import time
from collections.abc import Mapping

import aiohttp

from tests.chaos.platform import Platform

LIMIT = 180.0
"""Seconds that a command is given."""


async def rebuild(platform: Platform, policy: Mapping[str, object] | None = None) -> None:
    """``threadfold rebuild --switch``, repeated once if it was interrupted by another fault."""
    given: list[str] = []
    if policy is not None:
        file = platform.folder / "policy.json"
        file.write_text(json.dumps(policy))
        given = ["--policy", str(file)]
    for _ in range(2):
        code, said = await command(platform, "rebuild", "--switch", "--sample", "5", *given)
        if code == 0:
            platform.switches += 1
            return
    platform.notes.append(f"a rebuild ended with {code}: {said.strip()[-300:]}")


async def erase(platform: Platform, tenant: str, conversation: str) -> None:
    """``DELETE`` of a conversation, repeated until it is answered."""
    key = f"{tenant}/{conversation}"
    platform.erased.add(key)
    headers = {"Authorization": f"Bearer {platform.keys[tenant]}"}
    deadline = time.monotonic() + LIMIT
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http:
        while time.monotonic() < deadline:
            url = f"{random.choice(platform.urls)}/v1/conversations/{conversation}"
            try:
                async with http.delete(url, headers=headers) as answer:
                    if answer.status == 200:
                        return
                    if answer.status == 404:  # nothing was said in it yet
                        platform.erased.discard(key)
                        return
                    said = f"{answer.status}: {(await answer.text())[:200]}"
            except (aiohttp.ClientError, TimeoutError) as error:
                said = type(error).__name__
            await asyncio.sleep(0.3)
    platform.wrongs.append(f"{key} could not be erased within {LIMIT:g} s: {said}")


async def command(platform: Platform, *args: str) -> tuple[int | None, str]:
    """The exit code of a command and what it wrote; None for one that did not end. What it writes
    is kept beside the services' logs.
    """
    platform.commands += 1
    file = platform.folder / f"{args[0]}-{platform.commands}.log"
    with file.open("wb") as out:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-X", "faulthandler", "-m", "threadfold.cli", *args),
            env=platform.environment(),
            stdout=out,
            stderr=out,
        )
    try:
        async with asyncio.timeout(LIMIT):
            await process.wait()
    except TimeoutError:
        process.send_signal(signal.SIGABRT)  # it writes where it stood
        await process.wait()
        return None, f"it did not end within {LIMIT:g} s ({file.name})"
    return process.returncode, file.read_text(errors="replace")
