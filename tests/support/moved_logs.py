"""A deployment with everything whose events name positions, and what is to be the same of it in a
copy of its log at other positions.
"""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition

from projections.names import Key
from streams.log.topics import partition_count
from streams.maintenance.backup_files import read_lines
from streams.maintenance.verify import verify
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.erasure import no_text
from tests.support.pipeline import POLICY, append, applied, sentence, settled
from tests.support.worker import until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.service.conversations import ConversationService
from threadfold.service.drafts import Conditions
from threadfold.service.erasure import Eraser
from threadfold.service.turns import NewTurn, begin

PLAIN = [Key("acme", f"b{i}") for i in range(8)]
SEALED = [Key("sealed", f"b{i}") for i in range(4)]
TAUGHT, LOOPED, SPILLED = (Key("acme", name) for name in ("taught", "looped", "spilled"))
ALL = [*PLAIN, *SEALED, TAUGHT, LOOPED]
GONE = {Key("acme", "gone"), Key("sealed", "gone")}
MOVING = {**POLICY, "memory_auto": "summaries", "spill_chars": 1_000, "max_result_bytes": 100_000}
LONG = " ".join(f"row{i}" for i in range(4_000))
SAME = ("digest", "count", "render_digest", "messages", "tokens", "state")


def folder_of(settings: Settings, path: Path) -> Path:
    """A data folder by which commands find the stack of these settings."""
    path.mkdir()
    write_config(path / CONFIG_FILE, settings)
    return path


async def records(settings: Settings, name: str) -> list[tuple[Any, ...]]:
    """All records of a topic with their places, times and headers, in the order of places."""
    consumer = AIOKafkaConsumer(bootstrap_servers=settings.kafka)
    await consumer.start()
    try:
        topic = settings.topic(name)
        places = [TopicPartition(topic, p) for p in range(await partition_count(settings, name))]
        consumer.assign(places)
        await consumer.seek_to_beginning(*places)
        ends = await consumer.end_offsets(places)
        found = []
        while any([await consumer.position(tp) < ends[tp] for tp in places]):
            for rows in (await consumer.getmany(timeout_ms=200)).values():
                found += [
                    (r.partition, r.offset, r.timestamp, r.key, r.value, tuple(r.headers))
                    for r in rows
                ]
        return sorted(found)
    finally:
        await consumer.stop()


def exported_keys(folder: Path) -> set[tuple[str, bool]]:
    """Of the keys topic in an export: the conversation of each record, and whether it is a data
    key's; fails the test where a record has no value, or a key has two.
    """
    found = [row for rows in read_lines(folder / "keys-00000.jsonl.gz") for row in rows]
    places = [row.key or b"" for row in found]
    assert all(row.value for row in found) and len(places) == len(set(places)), places
    parts = [place.decode().rsplit("/", 1) for place in places]
    return {(conversation, name != "erased") for conversation, name in parts}


def id_of(record: tuple[Any, ...]) -> str:
    """The id of a record's event."""
    return str(msgspec.json.decode(record[4])["id"])


async def announced(settings: Settings, name: str, tenant: str = "") -> set[tuple[str, str]]:
    """Types and ids of what was announced on a topic, of one tenant's or of all keys."""
    return {
        (event["type"], event["id"])
        for *_, key, value, _ in await records(settings, name)
        if key.startswith(tenant.encode())
        and (event := json.loads(value))["type"].split(".")[-2] != "voided"
    }


async def talk(runtime: Runtime) -> None:
    """Conversations of two tenants, with summaries and rollbacks; one has its payloads encrypted."""
    rng = random.Random(7)
    for key in (*PLAIN, *SEALED):
        for turn in range(4):
            flats: list[dict[str, Any]] = [
                {"type": "message", "role": "user", "content": sentence(rng)} for _ in range(12)
            ]
            sent = await append(runtime, key, flats, turn * 12)
        flats = [{"type": "rollback", "to": str(sent[3])}, flats[0]]
        sent = await append(runtime, key, flats, 48)
        await applied(runtime, sent[-1])
    for key in (*PLAIN, *SEALED):
        await settled(runtime, key)


async def talk_of_everything(settings: Settings, runtime: Runtime) -> None:
    """:func:`talk`, and turns with fenced events, conditions, spilled results, what the memory
    learns, a rollback into summarised history, dropped events, and erased conversations.
    """
    await talk(runtime)
    say = {"type": "message", "role": "user", "content": "I live in Oslo. I have two kids."}
    call = {"id": "c", "name": "fetch", "arguments": "{}"}
    asked = {"type": "message", "role": "assistant", "content": None, "tool_calls": [call]}
    answered = {"type": "tool.result", "tool_call_id": "c", "content": LONG}
    asked_again = [
        one
        for number in range(4)
        for one in (
            {**asked, "tool_calls": [{**call, "id": f"c{number}"}]},
            {"type": "tool.result", "tool_call_id": f"c{number}", "content": "nothing"},
        )
    ]
    close = {"type": "session.closed", "reason": "explicit"}
    sent = await append(runtime, TAUGHT, [dict(say), close])
    sent += await append(runtime, LOOPED, asked_again)
    sent += await append(runtime, SPILLED, [dict(say)])
    async with ConversationService(settings) as service:
        await service.append("acme", [(SPILLED.conversation, one) for one in (asked, answered)])
        for key in (PLAIN[0], SEALED[0]):
            name = key.conversation
            token = (await begin(service, *key, NewTurn(turn_id="t1")))["fencing_token"]
            (first,) = await service.append(
                key.tenant, [(name, say)], conditions=Conditions(fence=token)
            )
            late = {**say, "content": "This comes too late."}
            for expect in (str(first.position), str(first.position)):
                await service.append(
                    key.tenant, [(name, late)], conditions=Conditions(expect=expect)
                )
            await service.append(key.tenant, [(name, one) for one in (asked, answered)])
            flats = [{"type": "turn.ended", "turn_id": "t1"}, close]
            sent = await append(runtime, key, flats, 60)
            earlier = [raw async for raw in runtime.log.scan(sent[0].partition, 0, sent[0].offset)]
            own = [raw.position for raw in earlier if raw.key == str(key).encode()]
            dropped = {"type": "event.dropped", "position": str(first.position)}
            flats = [dropped, dict(say), {"type": "rollback", "to": str(own[10])}, dict(say)]
            sent = await append(runtime, key, flats, 70)
            await applied(runtime, sent[-1])
        for key in GONE:
            sent = await append(runtime, key, [dict(say)])
            await applied(runtime, sent[-1])
            await Eraser(service, no_text).conversation(*key)
        await until(lambda: _answered(service))
    for key in (*PLAIN, *SEALED):
        await settled(runtime, key)
    await caught_up(runtime)


async def _answered(service: ConversationService) -> bool:
    """Whether workers have appended what they append because of these conversations."""
    for key, type_ in ((TAUGHT, "memory.saved"), (LOOPED, "loop.detected")):
        history = await service.history(*key)
        if type_ not in {one["type"] for one in history["events"]}:
            return False
    return True


async def caught_up(runtime: Runtime) -> None:
    """Wait until all of the log is folded."""

    async def folded() -> bool:
        ends = await runtime.log.end_offsets()
        checkpoints = [await runtime.store.checkpoint(1, number) for number in ends]
        return all(
            not end or (one is not None and one.offset >= end - 1 and not one.healing)
            for one, end in zip(checkpoints, ends.values(), strict=True)
        )

    await until(folded)


async def shown(settings: Settings, *keys: Key) -> dict[Key, dict[str, Any]]:
    """Of each conversation what is to be the same in a copy of its log."""
    found = {}
    async with ConversationService(settings) as service:
        for key in keys:
            document = json.loads(await service.context(*key))
            history = await service.history(*key, limit=500)
            found[key] = {
                **{name: document[name] for name in SAME},
                "summary": (document["summary"] or {}).get("text"),
                "events": [(one["id"], one["type"]) for one in history["events"]],
            }
    return found


async def differing(runtime: Runtime) -> list[str]:
    """What ``verify --deep`` finds of the live generation; it has found something to compare."""
    record = runtime.control.state.generations[1]
    rules = runtime.control.state.rules(record)
    report = await verify(runtime.log, runtime.store, record, rules, deep=True)
    assert report.verified
    return report.differing
