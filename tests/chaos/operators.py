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
import redis.asyncio as aredis

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
        code, said = await _command(platform, "rebuild", "--switch", "--sample", "5", *given)
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


async def still_served(platform: Platform) -> list[str]:
    """What of erased conversations a gateway still serves."""
    found: list[str] = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http:
        for key in sorted(platform.erased):
            tenant, _, conversation = key.partition("/")
            headers = {"Authorization": f"Bearer {platform.keys[tenant]}"}
            for url in platform.urls:
                for what in ("context", "history", "summaries"):
                    path = f"{url}/v1/conversations/{conversation}/{what}"
                    async with http.get(path, headers=headers) as answer:
                        if answer.status != 410:
                            found.append(f"{key} was erased: {what} answered {answer.status}")
    return found


async def still_held(platform: Platform) -> list[str]:
    """Erased conversations whose text is in Redis, in a list or in what a command prints."""
    found: list[str] = []
    marks = {key: f"@{key}@".encode() for key in sorted(platform.erased)}
    if not marks:
        return found
    client = aredis.Redis.from_url(platform.direct.redis)
    try:
        async for name in client.scan_iter(match=f"{platform.direct.topic_prefix}:*", count=1000):
            held = await _value(client, name)
            found += [f"{key} was erased: {name!r} holds it" for key in marks if marks[key] in held]
    finally:
        await client.aclose()
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http:
        for tenant, key in platform.keys.items():
            headers = {"Authorization": f"Bearer {key}"}
            path = f"{platform.urls[0]}/v1/conversations?limit=100"
            async with http.get(path, headers=headers) as answer:
                listed = {one["conversation"] for one in (await answer.json())["conversations"]}
            gone = {f"{tenant}/{name}" for name in listed} & marks.keys()
            found += [f"{key} was erased: it is listed" for key in sorted(gone)]
    code, said = await _command(platform, "summaries")
    if code != 0:
        found.append(f"`summaries` ended with {code}: {said[-200:]}")
    printed = said.encode()
    found += [f"{key} was erased: its summary is printed" for key in marks if marks[key] in printed]
    return found


async def _value(client: aredis.Redis, name: bytes) -> bytes:
    """All that a key of Redis holds, as bytes one after the other."""
    kind = await client.type(name)
    parts: list[bytes] = []
    if kind == b"hash":
        parts = [part for item in (await client.hgetall(name)).items() for part in item]
    elif kind == b"string":
        parts = [await client.get(name) or b""]
    elif kind == b"zset":
        parts = await client.zrange(name, 0, -1)
    elif kind == b"set":
        parts = list(await client.smembers(name))
    elif kind == b"list":
        parts = await client.lrange(name, 0, -1)
    return b"\n".join(parts)


async def _command(platform: Platform, *args: str) -> tuple[int | None, str]:
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
