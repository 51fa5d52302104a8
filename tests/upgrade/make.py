"""Makes a release's folder, from a stack of its ``threadfold up`` that runs on an empty folder::

    git worktree add /tmp/old COMMIT && cd /tmp/old       # 0.1.0: 143ca43
    THREADFOLD_POLICY=policy.toml THREADFOLD_PARTITIONS=4 THREADFOLD_SNAPSHOT_EVENTS=40 \
        THREADFOLD_MASTER_KEYS=… threadfold up --data /tmp/data   # KEY: what it prints
    threadfold tenants add sealed --policy sealed.toml --data /tmp/data   # encryption = true
    python -m tests.upgrade.make /tmp/data KEY SEALED_KEY tests/upgrade/0.1.0

The policy and the master key are in ``about.json``. Conversations are had over HTTP; then every
topic, what Redis holds and the offsets that the workers committed are written as they are, with
what the gateway answered last.
"""

from __future__ import annotations

import asyncio
import base64
import sys
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import redis.asyncio as aredis
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient

from tests.golden.files import text_of, write_lines

GROUP = "threadfold.projector"
GROUPS = ("", ".agents")
"""The groups of workers: of the projector, and of those who answer its requests."""
CALL = {"id": "call_1", "name": "find_order", "arguments": '{"order":1182}'}


def say(role: str, text: str) -> dict[str, Any]:
    return {"type": "message", "role": role, "content": text}


def talk(name: str, length: int) -> list[dict[str, Any]]:
    words = "the order of alice was shipped late because the harbour in oslo lost its papers again"
    lines = [f"{name} {i}: {words} {i * 7919 % 1_000}" for i in range(length)]
    return [say("assistant" if i % 2 else "user", line) for i, line in enumerate(lines)]


class Gateway:
    def __init__(self, url: str, key: str) -> None:
        self.http = httpx.AsyncClient(
            base_url=f"{url}/v1", headers={"Authorization": f"Bearer {key}"}, timeout=60
        )

    async def append(self, name: str, *events: dict[str, Any]) -> dict[str, Any]:
        body = list(events)
        answer = await self.http.post(f"/conversations/{name}/events?wait=applied", json=body)
        assert answer.status_code == 200, answer.text
        return dict(answer.json())

    async def get(self, path: str) -> Any:
        answer = await self.http.get(path)
        assert answer.status_code == 200, answer.text
        return answer.json()


async def converse(demo: Gateway, sealed: Gateway) -> list[str]:
    """Have the conversations; returns those of ``demo``."""
    names = [f"talk-{i}" for i in range(6)]
    for i, name in enumerate(names):
        opened = {"type": "conversation.opened", "user": f"u-{i}", "metadata": {"n": i}}
        await demo.append(name, opened, say("system", "You answer in one word."))
        for at in range(0, 60, 10):
            await demo.append(name, *talk(name, 60)[at : at + 10])
            await asyncio.sleep(0.3)
    await sealed.append("secret", say("system", "Keep it."), *talk("secret", 30))
    call = {"type": "message", "role": "assistant", "content": None, "tool_calls": [CALL]}
    asks = {"type": "suspension", "suspension_id": "s1", "kind": "approval", "prompt": "Ship it?"}
    await demo.append("tools", say("user", "Where is it?"), call, asks | {"tool_call_id": "call_1"})
    first = await demo.append("back", *talk("back", 8))
    await demo.append("back", {"type": "rollback", "to": first["events"][3]["position"]})
    turn = {"turn_id": "t1", "policy": "reject", "seconds": 3600}
    answer = await demo.http.post("/conversations/run/turns", json=turn)
    assert answer.status_code in (200, 202), answer.text
    await demo.append("run", say("user", "Go on."))
    await asyncio.sleep(8)
    return [*names, "tools", "back", "run"]


async def answers(gateway: Gateway, names: list[str]) -> dict[str, Any]:
    """What the gateway says of conversations."""
    return {
        name: {
            "context": await gateway.get(f"/conversations/{name}/context"),
            "summaries": await gateway.get(f"/conversations/{name}/summaries"),
            "turns": await gateway.get(f"/conversations/{name}/turns"),
        }
        for name in names
    }


@asynccontextmanager
async def admin_of(kafka: str) -> AsyncIterator[AIOKafkaAdminClient]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka)
    await admin.start()
    try:
        yield admin
    finally:
        await admin.close()


async def topics_of(kafka: str) -> list[dict[str, Any]]:
    """Every record of every topic of the deployment."""
    consumer = AIOKafkaConsumer(bootstrap_servers=kafka, enable_auto_commit=False)
    rows = []
    async with consumer, admin_of(kafka) as admin:
        names = [name for name in await admin.list_topics() if name.startswith("threadfold.")]
        places = [
            TopicPartition(topic["topic"], one["partition"])
            for topic in await admin.describe_topics(names)
            for one in topic["partitions"]
        ]
        ends = {place: end for place, end in (await consumer.end_offsets(places)).items() if end}
        consumer.assign(list(ends))
        await consumer.seek_to_beginning(*ends)
        while any([await consumer.position(place) < end for place, end in ends.items()]):
            for place, found in (await consumer.getmany(timeout_ms=500)).items():
                rows += [
                    {
                        "topic": place.topic.removeprefix("threadfold."),
                        "partition": place.partition,
                        "offset": one.offset,
                        "timestamp": one.timestamp,
                        "key": text_of(one.key),
                        "value": text_of(one.value),
                        "headers": [[name, value.decode()] for name, value in one.headers],
                    }
                    for one in found
                ]
    return sorted(rows, key=lambda row: (row["topic"], row["partition"], row["offset"]))


async def commits_of(kafka: str, group: str) -> dict[str, int]:
    """The offsets that the workers committed, by topic and partition."""
    async with admin_of(kafka) as admin:
        found = await admin.list_consumer_group_offsets(group)
    return {
        f"{place.topic.removeprefix('threadfold.')}/{place.partition}": one.offset
        for place, one in found.items()
    }


async def redis_of(url: str) -> list[dict[str, Any]]:
    """Every key with its type, value and milliseconds to live."""
    client = aredis.Redis.from_url(url)
    rows = []

    def kept(raw: bytes) -> str:
        return base64.b64encode(raw).decode()

    async for key in client.scan_iter():
        kind = (await client.type(key)).decode()
        value: Any
        if kind == "string":
            value = kept(await client.get(key))
        elif kind == "hash":
            value = [[kept(f), kept(v)] for f, v in (await client.hgetall(key)).items()]
        elif kind == "zset":
            value = [[kept(m), s] for m, s in await client.zrange(key, 0, -1, withscores=True)]
        elif kind == "set":
            value = sorted(kept(m) for m in await client.smembers(key))
        else:
            value = [kept(m) for m in await client.lrange(key, 0, -1)]
        ttl = await client.pttl(key)
        rows.append({"key": key.decode(), "type": kind, "ttl": ttl, "value": value})
    await client.aclose()
    return sorted(rows, key=lambda row: row["key"])


async def make(
    settings: dict[str, Any], policy: dict[str, Any], key: str, sealed_key: str, folder: Path
) -> None:
    demo, sealed = (Gateway(settings["gateway_url"], one) for one in (key, sealed_key))
    names = await converse(demo, sealed)
    commits = {group: await commits_of(settings["kafka"], f"{GROUP}{group}") for group in GROUPS}
    given = {"demo": await answers(demo, names), "sealed": await answers(sealed, ["secret"])}
    about = {
        "policy": policy,
        "master_keys": settings["master_keys"],
        "keys": {"demo": key, "sealed": sealed_key},
        "commits": commits,
        "answers": given,
    }
    write_lines(folder / "about.jsonl.gz", [about])
    write_lines(folder / "topics.jsonl.gz", await topics_of(settings["kafka"]))
    write_lines(folder / "redis.jsonl.gz", await redis_of(settings["redis"]))


def main() -> None:
    data, key, sealed_key, name = sys.argv[1:]
    settings = tomllib.loads((Path(data) / "threadfold.toml").read_text())
    policy = tomllib.loads(Path(settings["policy"]).read_text())
    folder = Path(name)
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(make(settings, policy, key, sealed_key, folder))


if __name__ == "__main__":
    main()
