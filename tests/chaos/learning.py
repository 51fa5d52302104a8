"""What the memory learns by itself, after the faults: that what the logs accepted is what the topic
of memories has, that each statement is learnt, and nothing private.

Written apart from ``projections.memory`` and from the encoder.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

from tests.chaos.evidence import Findings, Row, is_garbage
from tests.chaos.model import LEARNT, NUMBER, Conversation
from tests.chaos.records import Logged, logged, offset_of
from tests.chaos.statements import PLANTED, SECRET

_VOIDED = "memory.voided"
_SAYS = ("memory_id", "by", "child_composite_ids", "positions", "rollback")
"""What two events of the rules differ in: two later statements may supersede one record, and a
composite may take in one that was not there when it was made.
"""


def conversations_of(rows: Iterable[Row], taken: Iterable[str] = ()) -> dict[str, Conversation]:
    """The conversations of a log by key. ``taken`` are the summaries that were announced."""
    found: dict[str, Conversation] = {}
    known = frozenset(taken)
    for row in sorted(rows, key=lambda row: (row.partition, row.offset)):
        if not is_garbage(row):
            if row.key not in found:
                found[row.key] = Conversation(row.partition, known)
            found[row.key].add(row)
    return found


def announced_rollbacks(conversation: Conversation) -> dict[int, int]:
    """Those that the topic of memories has, with their targets: it hears of none before the first
    record (docs/memory.md, "One case is not covered").
    """
    first = min((event.offset for event in _accepted(conversation)), default=1 << 62)
    return {by: to for by, to in sorted(conversation.rollbacks.items()) if by > first}


def announced_summaries(rows: Iterable[Row]) -> set[str]:
    """The ids of the summaries that were accepted at any time."""
    events = map(logged, rows)
    return {event.data["summary_id"] for event in events if event.type == "summary"}


def learnt(rows: Iterable[Row]) -> int:
    """How many records were learnt, in words of the log."""
    events = [logged(row) for row in rows if not is_garbage(row)]
    return sum(event.type in LEARNT and "positions" in event.data for event in events)


def judge_learning(
    conversations: Mapping[str, Conversation], topic: Sequence[Row], learning: str
) -> Findings:
    """Compare the logs with the topic of memories, and with what they had to teach. Pure.

    Args:
        conversations: those that are not erased.
        topic: the records of the topic of memories.
        learning: the policy's ``memory_auto``.
    """
    findings = Findings()
    said, voided = _topic(topic, conversations.keys(), findings)
    for key, conversation in sorted(conversations.items()):
        _announced(key, conversation, said.get(key, {}), findings)
        _went_back(key, conversation, voided.get(key, {}), findings)
        _once(key, conversation, findings)
        taught = {
            number
            for event in _accepted(conversation)
            for number in NUMBER.findall(event.data.get("text", "") + ".")
            if event.data.get("origin", "explicit") != "explicit"
        }
        for offset, number in sorted(due_to_learn(conversation, learning).items()):
            if number not in taught:
                findings.lost.append(f"{key}: what was said at {offset} ({number}) is not learnt")
    return findings


def _topic(
    rows: Sequence[Row], keys: Iterable[str], findings: Findings
) -> tuple[dict[str, dict[int, Logged]], dict[str, dict[int, int]]]:
    """What the topic says of each log: its events by offset, and its rollbacks with targets."""
    sources = {"/tenants/{}/conversations/{}".format(*key.split("/")): key for key in keys}
    said: dict[str, dict[int, Logged]] = {}
    voided: dict[str, dict[int, int]] = {}
    for row in rows:
        if SECRET.encode() in row.value:
            findings.differing.append(
                f"what is private is on the topic of memories: {row.position}"
            )
        value = json.loads(row.value)
        key = sources.get(value["source"])
        if key is None:
            continue
        event = logged(row)
        if event.type in LEARNT:
            at = offset_of(value["position"])
            before = said.setdefault(key, {}).setdefault(at, event)
            if (before.id, before.data) != (event.id, event.data):
                findings.differing.append(f"{key}: the topic has two events at {at}")
        elif event.type == _VOIDED and event.data.get("to"):
            by, to = offset_of(event.data["by"]), offset_of(event.data["to"])
            if voided.setdefault(key, {}).setdefault(by, to) != to:
                findings.differing.append(f"{key}: the rollback at {by} has two targets")
    return said, voided


def _accepted(conversation: Conversation) -> Iterator[Logged]:
    """The events of the memory that the fold took."""
    for offset, event in conversation.events.items():
        if event.type in LEARNT and conversation.accepted(offset):
            yield event


def _announced(
    key: str, conversation: Conversation, said: Mapping[int, Logged], findings: Findings
) -> None:
    """Each accepted event is on the topic as it is in the log, and nothing else is."""
    accepted = {event.offset: event for event in _accepted(conversation)}
    for offset, event in accepted.items():
        if offset not in said:
            findings.lost.append(f"{key}: {event.type} at {offset} is not on the topic of memories")
        elif (said[offset].id, said[offset].data) != (event.id, event.data):
            findings.differing.append(f"{key}: {event.type} at {offset} is another on the topic")
        if SECRET in json.dumps(event.data):
            findings.differing.append(f"{key}: what is private was learnt at {offset}")
    findings.differing += [
        f"{key}: the topic of memories has {said[offset].type} at {offset}, which was not accepted"
        for offset in sorted(said.keys() - accepted.keys())
    ]


def _went_back(
    key: str, conversation: Conversation, voided: Mapping[int, int], findings: Findings
) -> None:
    """The rollbacks of a log that has taught are on the topic, with their targets."""
    for by, to in announced_rollbacks(conversation).items():
        if voided.get(by) != to:
            findings.lost.append(
                f"{key}: the rollback at {by} to {to} is on the topic as {voided.get(by)}"
            )
    findings.differing += [
        f"{key}: the topic of memories has a rollback at {by} that did not apply"
        for by in sorted(voided.keys() - conversation.rollbacks.keys())
    ]


def _once(key: str, conversation: Conversation, findings: Findings) -> None:
    """The rules say the same of the same events once, unless a rollback came in between; and a
    statement that is said again supersedes others again, at its new time.
    """
    learnt = [one for one in _accepted(conversation) if one.data.get("origin") == "rules"]
    stated = {(one.data["memory_id"], one.time) for one in learnt if one.type == "memory.saved"}
    counted: Counter[str] = Counter()
    for one in learnt:
        again = (one.data.get("by"), one.time) in stated
        said = [one.type, *map(one.data.get, _SAYS), *([one.time] if again else [])]
        counted[json.dumps(said)] += 1
    findings.doubled += [
        f"{key}: learnt {count} times: {what}" for what, count in counted.items() if count > 1
    ]


def due_to_learn(conversation: Conversation, learning: str) -> dict[int, str]:
    """What users state in it that has to be learnt: by offset the number of the statement. What a
    rollback abandoned at any time need not be: its extraction may have come just then.
    """
    events = conversation.events
    closes = [
        offset
        for offset, one in events.items()
        if one.type == "session.closed" and offset not in conversation.abandoned
    ]
    covered = {o for made in conversation.summaries.values() for o in made.covers}
    learnt: set[int] = set()
    if learning == "summaries":
        learnt |= covered
    if learning != "off":
        learnt |= {offset for offset in events if closes and offset < closes[-1]}
    return {
        offset: number
        for offset in sorted(learnt - conversation.abandoned)
        if (event := events.get(offset)) is not None
        and conversation.accepted(offset)
        and event.type == "message"
        and event.data.get("role") == "user"
        for number in (found["number"] for found in PLANTED.finditer(event.data["content"]))
    }
