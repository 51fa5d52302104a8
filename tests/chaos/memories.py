"""What the memory has to be after the faults, as the contract's words alone give it: of each record
what stands in its conversation's log, in the order of the events' own times.

Written apart from ``projections.memory``: it knows conversations that are nobody's, records that
are told explicitly or learnt from messages and calls, and what these supersede and fuse.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import aiohttp

from tests.chaos.evidence import Evidence, Findings, Flat, Row
from tests.chaos.learning import (
    announced_rollbacks,
    announced_summaries,
    conversations_of,
    judge_learning,
)
from tests.chaos.memory_producers import MemoryProducer
from tests.chaos.model import Conversation
from tests.chaos.operators import command
from tests.chaos.oracle import MARK
from tests.chaos.platform import Platform
from tests.chaos.reading import pages, read
from tests.chaos.records import Logged, offset_of
from tests.chaos.remains import holding
from tests.chaos.statements import SECRET

PATIENCE = 30.0
"""Seconds in which every store has to have what the topic has."""
_SAVED, _DELETED, _OUTCOME = "memory.saved", "memory.deleted", "memory.outcome"
_SUPERSEDED, _FUSED = "memory.superseded", "memory.fused"
_TYPES = (_SAVED, _DELETED, _OUTCOME, _SUPERSEDED, _FUSED)
_RANKS = ("tool", "model", "user")
DUPLICATE = 15 * 60 * 1_000_000
"""Microseconds within which the same that is said again is a duplicate."""


@dataclass(slots=True)
class Expected:
    """A record as its log gives it; of a composite also the ``sources`` that it names."""

    text: str = ""
    stands: bool = False
    succeeded: int = 0
    failed: int = 0
    created: int = 0
    confirmed: int = 0
    revision: int = 0
    duplicates: int = 0
    normalized: str = ""
    trust: str = "tool"
    sources: tuple[str, ...] = ()
    taken_in: bool = False

    def state(self, when: int, data: Mapping[str, Any]) -> None:
        """It is said once more."""
        self.stands, trust = True, data.get("trust", "user")
        self.sources = tuple(data.get("source_record_ids", ()))
        words = " ".join([*re.findall(r"\w+", data["text"].casefold()), *self.sources])
        if self.revision and self.normalized == words:
            self.duplicates += when - self.confirmed <= DUPLICATE
            if _RANKS.index(self.trust) <= _RANKS.index(trust):
                self.text, self.trust = data["text"], trust
        else:
            self.created = self.created or when
            self.revision += 1
            self.text, self.trust = data["text"], trust
        self.normalized, self.confirmed = words, when


@dataclass(slots=True)
class Told:
    """What producers of memories were told: the conversations and ids of saves, and of outcomes by
    record how many are in, and how many may be.
    """

    saved: set[tuple[str, str]] = field(default_factory=set)
    outcomes: dict[str, int] = field(default_factory=dict)
    maybe: dict[str, int] = field(default_factory=dict)


def told_to(producers: Iterable[MemoryProducer]) -> Told:
    """What all producers were told; ids are of one conversation, so of one tenant."""
    found = Told()
    for one in producers:
        found.saved |= {(f"{one.tenant}/{name}", memory_id) for name, memory_id in one.saved}
        for memory_id, count in one.outcomes.items():
            found.outcomes[memory_id] = found.outcomes.get(memory_id, 0) + count
        for memory_id, count in one.maybe.items():
            found.maybe[memory_id] = found.maybe.get(memory_id, 0) + count
    return found


def expected(
    rows: Sequence[Row],
    conversations: Mapping[str, Conversation],
    stand: Callable[[Conversation], Iterable[int]] = Conversation.standing,
) -> dict[str, dict[str, Expected]]:
    """The records of each conversation, by id. ``rows`` are the log's; ``stand`` gives the offsets
    of the events that no rollback abandoned.
    """
    at = {(row.key, row.offset): row for row in rows}
    found: dict[str, dict[str, Expected]] = {}
    for key, conversation in conversations.items():
        standing = set(stand(conversation))
        events = [
            (_time(at[key, offset]), offset, event)
            for offset, event in conversation.events.items()
            if event.type in _TYPES and conversation.accepted(offset)
        ]
        purged: dict[str, int] = {}
        for when, _, event in events:
            # A deletion for good holds whatever becomes of its own event.
            if event.type == _DELETED and event.data.get("hard"):
                name = event.data["memory_id"]
                purged[name] = max(when, purged.get(name, when))
        own, known = found.setdefault(key, {}), set[str]()
        for when, offset, event in sorted(events, key=lambda one: one[:2]):
            name = event.data["memory_id"]
            if _anchor(offset, event) not in standing or (
                event.type in (_SAVED, _FUSED) and when <= purged.get(name, -1)
            ):
                continue
            if event.data.get("positions"):
                # What follows from the same events is said once, however often it stands there.
                said = json.dumps([event.type, name, event.data["positions"]])
                if said in known:
                    continue
                known.add(said)
            _take(own, name, when, event)
        _fuse(own)
    return found


def _anchor(offset: int, event: Logged) -> int:
    """The event as long as which it stands: the last one that it was learnt from, or itself."""
    positions = event.data.get("positions")
    return offset_of(positions[-1]) if positions else offset


def _take(own: dict[str, Expected], name: str, when: int, event: Logged) -> None:
    record = own.setdefault(name, Expected())
    if event.type in (_SAVED, _FUSED):
        record.state(when, event.data)
        for child in event.data.get("child_composite_ids", ()):
            own.setdefault(child, Expected()).taken_in = True
    elif event.type in (_DELETED, _SUPERSEDED):
        record.stands = False
    elif event.data["succeeded"]:
        record.succeeded += 1
    else:
        record.failed += 1


def _fuse(own: dict[str, Expected]) -> None:
    """Composites say what those of their sources say that stand; two at least."""
    for record in own.values():
        if record.sources:
            parts = sorted(
                (part.created, name, part.text)
                for name in record.sources
                if (part := own.get(name)) is not None and part.stands and not part.sources
            )
            record.stands = record.stands and len(parts) >= 2
            record.text = " ".join(text for *_, text in parts)


def _time(row: Row) -> int:
    """An event's own time in microseconds, never later than the broker's."""
    recorded = row.timestamp * 1000
    claimed = json.loads(row.value).get("time")
    if claimed is None:
        return recorded
    return min(recorded, round(datetime.fromisoformat(claimed).timestamp() * 1e6))


def judge_memories(
    rows: Sequence[Row],
    conversations: Mapping[str, Conversation],
    told: Told,
    shown: Mapping[str, Sequence[Flat]],
    erased: Iterable[str] = (),
) -> Findings:
    """Compare what a gateway shows with what the log gives. ``shown`` are the records of each
    tenant. Pure.
    """
    findings, gone = Findings(len(told.saved)), set(erased)
    taught = {
        (key, event.data["memory_id"])
        for key, conversation in conversations.items()
        for event in conversation.events.values()
        if event.type == _SAVED
    }
    for key, memory_id in sorted(told.saved - taught):
        if key not in gone:
            findings.lost.append(
                f"{key}: memory {memory_id} was acknowledged and is not in the log"
            )
    _outcomes(conversations, told, gone, findings)
    seen: dict[str, dict[str, Flat]] = {}
    for tenant, records in shown.items():
        for record in records:
            key = f"{tenant}/{record['conversation']}"
            own = seen.setdefault(key, {})
            if record["id"] in own:
                findings.doubled.append(f"{key}: memory {record['id']} is shown twice")
            own[record["id"]] = record
            foreign = {"/".join(found) for found in MARK.findall(json.dumps(record))} - {key}
            if foreign or key in gone:
                findings.differing.append(
                    f"{key}: memory {record['id']} is shown"
                    + (f" with text of {sorted(foreign)}" if foreign else " though it is erased")
                )
    right = expected(rows, conversations)
    for key in sorted((right.keys() | seen.keys()) - gone):
        found = _compared(key, right.get(key, {}), seen.get(key, {}))
        if not found.clean and key in conversations:
            one = {key: conversations[key]}
            announced = expected(rows, one, standing_as_announced)[key]
            if _compared(key, announced, seen.get(key, {})).clean:
                continue  # the case that docs/memory.md names
        findings.add(found)
    return findings


def _outcomes(
    conversations: Mapping[str, Conversation], told: Told, gone: set[str], findings: Findings
) -> None:
    logged: dict[str, int] = {}
    for conversation in conversations.values():
        for event in conversation.events.values():
            if event.type == _OUTCOME:
                name = event.data["memory_id"]
                logged[name] = logged.get(name, 0) + 1
    lost_logs = {memory_id for key, memory_id in told.saved if key in gone}
    for name in sorted((logged.keys() | told.outcomes.keys()) - lost_logs):
        least = told.outcomes.get(name, 0)
        if logged.get(name, 0) < least:
            findings.lost.append(f"memory {name}: {least} outcomes were acknowledged")
        if logged.get(name, 0) > least + told.maybe.get(name, 0):
            findings.doubled.append(f"memory {name}: {logged[name]} outcomes are in the log")


def standing_as_announced(conversation: Conversation) -> set[int]:
    """The offsets that stand by the rollbacks that the topic of memories has."""
    rollbacks, found = announced_rollbacks(conversation), set[int]()
    for offset in conversation.events:
        at = conversation.end
        while at >= offset:
            later = [to for by, to in rollbacks.items() if offset < by <= at]
            if not later:
                found.add(offset)
                break
            at = later[-1]
    return found


def _compared(key: str, own: Mapping[str, Expected], shown: Mapping[str, Flat]) -> Findings:
    findings = Findings()
    for memory_id, record in own.items():
        if record.stands:
            _compare(key, memory_id, record, shown.get(memory_id), findings)
    findings.differing += [
        f"{key}: memory {memory_id} is shown, and nothing in the log stands for it"
        for memory_id in sorted(shown)
        if memory_id not in own or not own[memory_id].stands
    ]
    return findings


def _compare(
    key: str, memory_id: str, record: Expected, shown: Flat | None, findings: Findings
) -> None:
    if shown is None and record.taken_in:
        return
    if shown is None:
        findings.lost.append(f"{key}: memory {memory_id} stands in the log and is not shown")
        return
    use = shown["use"]
    counts = (use["succeeded"], use["failed"])
    if counts != (record.succeeded, record.failed):
        where = (
            findings.doubled if sum(counts) > record.succeeded + record.failed else findings.lost
        )
        where.append(
            f"{key}: memory {memory_id} has outcomes {counts}, the log"
            f" {(record.succeeded, record.failed)}"
        )
    if shown["text"] != record.text:
        findings.differing.append(f"{key}: memory {memory_id} has another text than the log")
    if (said := (shown["revision"], shown["duplicates"])) != (record.revision, record.duplicates):
        more = said > (record.revision, record.duplicates)
        (findings.doubled if more else findings.lost).append(
            f"{key}: memory {memory_id} has revision and duplicates {said}, the log"
            f" {(record.revision, record.duplicates)}"
        )


# -- after the faults


async def check_memories(
    platform: Platform, evidence: Evidence, producers: Sequence[MemoryProducer]
) -> tuple[Findings, list[str]]:
    """What is wrong with the memory that gateways show, once they had time to hear of everything;
    and with what the stores keep, verify and rebuild, in words.

    ``evidence`` has the log without erased conversations.
    """
    rows, told = evidence.log, told_to(producers)
    conversations = conversations_of(rows, announced_summaries(evidence.summaries))
    deadline = time.monotonic() + PATIENCE
    found: list[Findings] = []
    while not found or (not all(one.clean for one in found) and time.monotonic() < deadline):
        if found:
            await asyncio.sleep(0.5)
        found = [
            judge_memories(rows, conversations, told, shown, platform.erased)
            for shown in [await _shown(platform, url) for url in platform.urls]
        ]
    total = Findings(len(told.saved))
    for one in found:
        total.add(one)
    total.add(judge_learning(conversations, evidence.memories, platform.plan.learning))
    if platform.model.leaks:
        total.differing.append(f"a model was sent what is private {platform.model.leaks} times")
    return total, await _stores(platform)


async def _shown(platform: Platform, url: str) -> dict[str, list[Flat]]:
    """All records of each tenant that a gateway shows."""
    found: dict[str, list[Flat]] = {}
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=15)) as http:
        for tenant, key in platform.keys.items():

            async def get(path: str, key: str = key) -> Any:
                return await read(http, url + path, key)

            found[tenant] = await pages(get, "/v1/memories?limit=200", "memories", "before")
    return found


async def _stores(platform: Platform) -> list[str]:
    """What is wrong with the store's file, and with one that is built anew."""
    marks = {f"{key} was erased": f"@{key}@".encode() for key in sorted(platform.erased)}
    marks["a text is private"] = SECRET.encode()
    deadline = time.monotonic() + PATIENCE
    while wrong := [
        f"{key}: {path.name} holds it"
        for path in sorted((platform.folder / "memories").glob("*.db*"))
        for key in holding(path.read_bytes(), marks)
    ]:
        if time.monotonic() > deadline:
            break
        await asyncio.sleep(0.5)
    digests = []
    for args in (["rebuild"], ["verify"], ["rebuild", "--from-logs"]):
        code, said = await command(platform, "memories", *args)
        if code != 0:
            wrong.append(f"`memories {' '.join(args)}` ended with {code}: {said.strip()[-300:]}")
        digests += re.findall(r"digest ([0-9a-f]{64})", said)
    if len(set(digests)) != 1:
        wrong.append(f"a store from the topic and one from the logs have the digests {digests}")
    return wrong
