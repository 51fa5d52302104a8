"""The oracle: is every acknowledged event in the log and in its window exactly once, in order, as
it was sent, and in nobody else's?

It reads nothing itself and shares no code with the fold: see ``evidence`` for what it is given and
``model`` for what it expects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from tests.chaos.evidence import Ack, Evidence, Findings, Flat, Row, Seen, is_garbage
from tests.chaos.model import SPEAKING, Conversation
from tests.chaos.records import logged, offset_of
from tests.chaos.spans import check_chain
from threadfold.demo.openai_checker import problems

MARK = re.compile(r"@([a-z0-9]+)/([a-z0-9]+)@")
"""What every text of a run carries: its tenant and conversation."""
_WORDS = {"threadfold.summary.v1": False, "threadfold.summary.voided.v1": True}
_COMPARED = ("type", "role", "content", "name", "tool_calls", "tool_call_id", "is_error")


def judge(evidence: Evidence) -> Findings:
    """Check everything; pure."""
    findings = Findings(len({(ack.key, ack.id) for ack in evidence.acks}))
    rows = {(row.partition, row.offset): row for row in evidence.log}
    taken, rules = _summaries_topic(evidence, findings), _last_rules(evidence)
    voids = _voids(evidence)
    conversations: dict[str, Conversation] = {}
    for row in sorted(evidence.log, key=lambda row: (row.partition, row.offset)):
        if is_garbage(row):
            continue
        if row.key not in conversations:
            conversations[row.key] = Conversation(
                row.partition,
                taken.get(row.key, frozenset()),
                rules.get(row.key, ""),
                voids.get(row.key, frozenset()),
            )
        conversations[row.key].add(row)
    _acknowledged(evidence.acks, rows, conversations, findings)
    _orders(evidence.acks, conversations, findings)
    for key, conversation in sorted(conversations.items()):
        seen = evidence.windows.get(key)
        if seen is None:
            findings.lost.append(f"{key}: the conversation has no window")
            continue
        _window(key, conversation, seen, findings)
        findings.differing += [f"{key}: {complaint}" for complaint in conversation.complaints]
    for key in sorted(evidence.windows.keys() - conversations.keys()):
        findings.differing.append(f"{key}: a window of a conversation that the log does not have")
    _voided(evidence, conversations, findings)
    _set_aside(evidence, findings)
    return findings


# -- the log
# ------------------------------------------------------------------------------------------


def _last_rules(evidence: Evidence) -> dict[str, str]:
    """The policy of the last summary that threadfold made of each conversation."""
    found: dict[str, str] = {}
    for row in sorted(evidence.log, key=lambda row: row.offset):
        if not is_garbage(row) and (event := logged(row)).type == "summary":
            found[row.key] = event.data.get("policy") or found.get(row.key, "")
    return found


def _voids(evidence: Evidence) -> dict[str, frozenset[tuple[str, int]]]:
    """The summaries that were said to be void, by conversation, each with the offset of the
    rollback.
    """
    found: dict[str, set[tuple[str, int]]] = {}
    for row in evidence.summaries:
        event = json.loads(row.value)
        if _WORDS.get(event["type"]):
            data = event["data"]
            found.setdefault(row.key, set()).add((data["summary_id"], offset_of(data["by"])))
    return {key: frozenset(said) for key, said in found.items()}


def _acknowledged(
    acks: list[Ack],
    rows: dict[tuple[int, int], Row],
    conversations: dict[str, Conversation],
    findings: Findings,
) -> None:
    """Every acknowledged event stands in the log where it was said to stand, as it was sent."""
    for ack in acks:
        partition, _, offset = ack.position.partition("-")
        row = rows.get((int(partition), int(offset)))
        event = None if row is None else json.loads(row.value)
        if row is None or event is None or row.key != ack.key or event["id"] != ack.id:
            findings.lost.append(
                f"{ack.key}: event {ack.id} was acknowledged at {ack.position}, where the log has"
                " another or none"
            )
            continue
        sent = {
            name: value
            for name, value in ack.flat.items()
            if name not in ("type", "id", "time", "conversation")
        }
        if event["data"] != sent or event["source"] != "/tenants/{}/conversations/{}".format(
            *ack.key.split("/")
        ):
            findings.differing.append(
                f"{ack.key}: event {ack.id} at {ack.position} is not as it was sent"
            )
        if ack.id not in conversations[ack.key].first:
            findings.lost.append(f"{ack.key}: event {ack.id} at {ack.position} counts nowhere")


def _orders(acks: list[Ack], conversations: dict[str, Conversation], findings: Findings) -> None:
    """What one producer appended one after the other stands in that order."""
    runs: dict[tuple[str, int], list[Ack]] = {}
    for ack in acks:
        if not ack.repeat:
            runs.setdefault((ack.key, ack.producer), []).append(ack)
    for (key, producer), run in runs.items():
        first = conversations[key].first if key in conversations else {}
        for one, next_ in pairwise(sorted(run, key=lambda ack: ack.number)):
            if first.get(one.id, -1) > first.get(next_.id, 1 << 62):
                findings.differing.append(
                    f"{key}: {one.id} stands after {next_.id}, producer {producer} sent it before"
                )


def _summaries_topic(evidence: Evidence, findings: Findings) -> dict[str, frozenset[str]]:
    """The summaries that were announced, by conversation; each must be its record of the log, byte
    for byte.
    """
    values = {(row.key, row.value) for row in evidence.log}
    taken: dict[str, set[str]] = {}
    for row in evidence.summaries:
        event = json.loads(row.value)
        if event["type"] != "threadfold.summary.v1":
            continue
        name = event["data"]["summary_id"]
        if (row.key, row.value) not in values:
            findings.differing.append(
                f"{row.key}: summary {name} was announced, and is not so in the log"
            )
        taken.setdefault(row.key, set()).add(name)
    return {key: frozenset(names) for key, names in taken.items()}


def _voided(evidence: Evidence, conversations: dict[str, Conversation], findings: Findings) -> None:
    """Of every summary the last word on the topic is the truth: that it is in force, or that a
    rollback put it out.
    """
    words: dict[str, dict[str, bool]] = {}
    for row in sorted(evidence.summaries, key=lambda row: (row.partition, row.offset)):
        event = json.loads(row.value)
        if event["type"] in _WORDS:
            words.setdefault(row.key, {})[event["data"]["summary_id"]] = _WORDS[event["type"]]
    for key, conversation in conversations.items():
        void, standing = conversation.voided, {made.summary_id for made in conversation.chain()}
        last = words.get(key, {})
        unsaid = {name for name in void - standing if not last.get(name)}
        said = {name for name, _ in conversation.voids}
        untrue = {name for name in standing if last.get(name)} | (said - void)
        if unsaid:
            findings.differing.append(
                f"{key}: summaries {sorted(unsaid)[:3]} lost their force, and that is not the last"
                " word on them"
            )
        if untrue:
            findings.differing.append(
                f"{key}: summaries {sorted(untrue)[:3]} were said to be void, and no rollback made"
                " them so"
            )


def _set_aside(evidence: Evidence, findings: Findings) -> None:
    """Every record that is no event has a dead letter."""
    known = {json.loads(row.value).get("position") for row in evidence.letters if row.value}
    for row in evidence.log:
        if is_garbage(row) and row.position not in known:
            findings.lost.append(
                f"the record at {row.position} is no event, and has no dead letter"
            )


# -- one window
# ------------------------------------------------------------------------------------------


def _window(key: str, conversation: Conversation, seen: Seen, findings: Findings) -> None:
    document = seen.events
    if document["count"] > len(conversation.counted):
        findings.doubled.append(
            f"{key}: the window counts {document['count']} events, the log has"
            f" {len(conversation.counted)} that apply"
        )
    elif document["count"] < len(conversation.counted):
        findings.lost.append(
            f"{key}: the window counts {document['count']} events, the log has"
            f" {len(conversation.counted)} that apply"
        )
    elif document["digest"] != conversation.digest():
        findings.differing.append(f"{key}: the window's digest is not that of the ids in order")
    if offset_of(document["position"]) != conversation.end:
        findings.differing.append(
            f"{key}: the window stands at {document['position']}, the conversation's last record at"
            f" {conversation.end}"
        )
    for name in ("count", "digest", "position"):
        if seen.openai[name] != document[name]:
            findings.differing.append(f"{key}: {name} is not the same in two formats")
    force = conversation.state.force
    told = document["summary"]["summary_id"] if document["summary"] else None
    if told != (force.summary_id if force else None):
        findings.differing.append(
            f"{key}: the summary in force is told to be {told}, not"
            f" {force.summary_id if force else None}"
        )
    if [s["suspension_id"] for s in document["suspensions"]] != conversation.open_suspensions():
        findings.differing.append(f"{key}: other suspensions wait than those of the log")
    check_chain(key, conversation, seen.summaries, findings)
    _tail(key, conversation, document, findings)
    _history(key, conversation, seen.history, findings)
    _own_text(key, seen, findings)
    findings.differing += [
        f"{key}: no provider takes the context: {problem}"
        for problem in problems(seen.openai["messages"])[:3]
    ]


def _tail(key: str, conversation: Conversation, document: Flat, findings: Findings) -> None:
    """The verbatim tail: what stands and no summary covers, in order, each once, as it is in the
    log; system messages before it.
    """
    covered = conversation.covered()
    standing = [
        conversation.events[o]
        for o in conversation.standing()
        if conversation.events[o].type in SPEAKING
    ]
    pinned = [event for event in standing if event.data.get("role") in ("system", "developer")]
    tail = [event for event in standing if event not in pinned and event.offset not in covered]
    shown = [message for message in document["messages"] if message["type"] in SPEAKING]
    held = [
        (offset_of(m["from"]), offset_of(m["to"]))
        for m in document["messages"]
        if m["type"] == "held"
    ]
    wanted = [
        e
        for e in (*pinned, *tail)
        if not any(first <= e.offset <= last for first, last in held) or e in pinned
    ]
    at = [offset_of(message["position"]) for message in shown]
    for offset in sorted({o for o in at if at.count(o) > 1}):
        findings.doubled.append(f"{key}: the event at {offset} is in the window more than once")
    expected = {event.offset for event in wanted}
    for offset in sorted(expected - set(at)):
        findings.lost.append(
            f"{key}: event {conversation.events[offset].id} at {offset} is neither in the window"
            " nor in a summary"
        )
    for offset in sorted(set(at) - expected):
        if offset in covered:
            findings.doubled.append(
                f"{key}: the event at {offset} is in the window and in a summary"
            )
        else:
            findings.differing.append(
                f"{key}: the event at {offset} is in the window, though nothing of it should be"
            )
    if not findings.clean:
        return
    if at != [event.offset for event in wanted]:
        findings.differing.append(
            f"{key}: the window's messages are in another order than the log's"
        )
        return
    for message, event in zip(shown, wanted, strict=True):
        if said(message) != said({"type": event.type, **event.data}):
            findings.differing.append(
                f"{key}: the message at {event.offset} is not in the window as it is in the log"
            )


def said(message: Flat) -> dict[str, Any]:
    """What of a message has to be the same wherever it stands."""
    return {name: message[name] for name in _COMPARED if message.get(name) not in (None, False, [])}


def _history(key: str, conversation: Conversation, history: list[Flat], findings: Findings) -> None:
    """Every event that is not a repeat is in the history once, newest first."""
    at = [offset_of(event["position"]) for event in history]
    if at != sorted(at, reverse=True):
        findings.differing.append(f"{key}: the history is not in the log's order")
    for offset in sorted({o for o in at if at.count(o) > 1}):
        findings.doubled.append(f"{key}: the event at {offset} is in the history more than once")
    for offset in sorted(conversation.events.keys() - set(at)):
        findings.lost.append(
            f"{key}: event {conversation.events[offset].id} at {offset} is not in the history"
        )
    for offset in sorted(set(at) - conversation.events.keys()):
        findings.doubled.append(f"{key}: the record at {offset}, a repeat, is in the history")


def _own_text(key: str, seen: Seen, findings: Findings) -> None:
    """Nobody's text but its own, and nothing in another conversation's name."""
    for where, part in (
        ("window", [seen.events, seen.openai]),
        ("history", seen.history),
        ("summaries", seen.summaries),
    ):
        foreign = {
            name
            for text in _texts(part)
            for name in ("/".join(found) for found in MARK.findall(text))
            if name != key
        }
        if foreign:
            findings.differing.append(
                f"{key}: the {where} holds text of {', '.join(sorted(foreign))}"
            )


def _texts(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from _texts(item)
    elif isinstance(value, list):
        for item in value:
            yield from _texts(item)
