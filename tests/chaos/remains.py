"""What is left of erased conversations: what gateways serve, what Redis and the topics hold, what
commands print.

The log itself and the summaries that it had before keep their text for ever where nothing is
encrypted; no other place may.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping

import aiohttp
import cramjam
import redis.asyncio as aredis

from tests.chaos.evidence import Row
from tests.chaos.operators import command
from tests.chaos.platform import Platform
from tests.chaos.reading import read_topic

ZSTD = b"\x28\xb5\x2f\xfd"
PATIENCE = 30.0
"""Seconds in which the snapshots of what was erased are overwritten."""
SILENT = ("compactions", "dead-letters", "renders", "control", "keys")
"""Topics that hold positions and names, and nobody's text."""
ERASED, SUMMARY = "threadfold.conversation.erased.v1", "threadfold.summary.v1"
LEARNT = "threadfold.memory.saved.v1"
Marks = Mapping[str, bytes]
"""What each text of an erased conversation carries, by conversation."""


async def remains(platform: Platform) -> list[str]:
    """All that should not be there any more, in words."""
    marks = {key: f"@{key}@".encode() for key in sorted(platform.erased)}
    found = [
        f"text in topic {name}: {key}" for name in SILENT for key in await _spoken(platform, name)
    ]
    if not marks:
        return found
    found += await _served(platform) + await _listed(platform) + await _printed(platform, marks)
    found += await _in_redis(platform, marks) + await _in_snapshots(platform, marks)
    found += _announced(await read_topic(platform, "summaries"), marks)
    return found + _republished(await read_topic(platform, "memories"), marks)


async def _spoken(platform: Platform, name: str) -> list[str]:
    """Where text of anybody's stands in a topic that has none."""
    every = [
        f"@{tenant}/c{n}@".encode()
        for tenant in platform.keys
        for n in range(platform.plan.conversations)
    ]
    rows = await read_topic(platform, name)
    return [row.position for row in rows if any(mark in row.value for mark in every)]


async def _served(platform: Platform) -> list[str]:
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


async def _listed(platform: Platform) -> list[str]:
    found: list[str] = []
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=20)) as http:
        for tenant, key in platform.keys.items():
            headers = {"Authorization": f"Bearer {key}"}
            path = f"{platform.urls[0]}/v1/conversations?limit=100"
            async with http.get(path, headers=headers) as answer:
                listed = {one["conversation"] for one in (await answer.json())["conversations"]}
            gone = {f"{tenant}/{name}" for name in listed} & platform.erased
            found += [f"{one} was erased: it is listed" for one in sorted(gone)]
    return found


async def _printed(platform: Platform, marks: Marks) -> list[str]:
    code, said = await command(platform, "summaries")
    if code != 0:
        return [f"`summaries` ended with {code}: {said[-200:]}"]
    return [f"{key} was erased: its summary is printed" for key in holding(said.encode(), marks)]


async def _in_redis(platform: Platform, marks: Marks) -> list[str]:
    """All of Redis, the copies of windows and the generations before and beside the live one."""
    found: list[str] = []
    client = aredis.Redis.from_url(platform.direct.redis)
    try:
        async for name in client.scan_iter(count=1000):
            found += [
                f"{key} was erased: {name!r} holds it"
                for value in await _values(client, name)
                for key in holding(value, marks)
            ]
    finally:
        await client.aclose()
    return found


async def _in_snapshots(platform: Platform, marks: Marks) -> list[str]:
    """The latest snapshot of each conversation; the broker drops those before it."""
    deadline = asyncio.get_running_loop().time() + PATIENCE
    while True:
        latest = {row.key: row for row in await read_topic(platform, "snapshots")}
        found = [
            f"{key} was erased: its snapshot at {row.position} holds it"
            for row in latest.values()
            for key in holding(row.value, marks)
        ]
        if not found or asyncio.get_running_loop().time() > deadline:
            return found
        await asyncio.sleep(0.5)


def _announced(rows: list[Row], marks: Marks) -> list[str]:
    """Summaries that were announced after subscribers had been told of the erasure."""
    found: list[str] = []
    told: set[str] = set()
    for row in sorted(rows, key=lambda row: (row.partition, row.offset)):
        if ERASED.encode() in row.value:
            told.add(row.key)
        elif row.key in told and row.key in marks and SUMMARY.encode() in row.value:
            found.append(f"{row.key} was erased: a summary was announced at {row.position}")
    return found


def _republished(rows: list[Row], marks: Marks) -> list[str]:
    """What was learnt in an erased conversation and was announced to the memory for the first time
    after the erasure. Every worker may repeat what it announced before.
    """
    sources = {
        f"/tenants/{tenant}/conversations/{name}": f"{tenant}/{name}"
        for tenant, _, name in (key.partition("/") for key in marks)
    }
    found: list[str] = []
    known, told = set[tuple[str, str]](), set[str]()
    for row in sorted(rows, key=lambda row: (row.partition, row.offset)):
        event = json.loads(row.value)
        key = sources.get(event["source"])
        if key is None:
            continue
        if event["type"] == ERASED:
            told.add(key)
        elif event["type"] == LEARNT:
            if key in told and (key, event["id"]) not in known:
                found.append(f"{key} was erased: a memory was announced at {row.position}")
            known.add((key, event["id"]))
    unsaid = {key for key, _ in known} - told
    return found + [f"{key} was erased: the memory was not told" for key in sorted(unsaid)]


def holding(value: bytes, marks: Marks) -> list[str]:
    """The conversations whose text stands in a value, as it is or compressed."""
    plain = list(_opened(value))
    return [key for key, mark in marks.items() if any(mark in part for part in plain)]


def _opened(value: bytes) -> Iterator[bytes]:
    """A value, and what is compressed at its end."""
    yield value
    at = value.find(ZSTD)
    while at >= 0:
        # Four bytes may only look like it.
        with contextlib.suppress(cramjam.DecompressionError):
            yield from _opened(bytes(cramjam.zstd.decompress(value[at:])))
        at = value.find(ZSTD, at + 1)


async def _values(client: aredis.Redis, name: bytes) -> list[bytes]:
    """All that a key of Redis holds."""
    kind = await client.type(name)
    if kind == b"hash":
        return [part for item in (await client.hgetall(name)).items() for part in item]
    if kind == b"string":
        return [await client.get(name) or b""]
    if kind == b"zset":
        return list(await client.zrange(name, 0, -1))
    if kind == b"set":
        return list(await client.smembers(name))
    if kind == b"list":
        return list(await client.lrange(name, 0, -1))
    if kind == b"stream":
        return [
            part for _, item in await client.xrange(name) for pair in item.items() for part in pair
        ]
    return []
