"""A conversation as the contract's words alone give it: which of its events count, what a rollback
leaves, which summary is in force.

Written apart from ``projections.fold.apply``, and far simpler: it keeps everything, knows no
tokens, no shortening, no store. What stands is a linked list of events; a rollback goes back to the
list as it was after its target. Which summaries were taken is told from outside (the summaries
topic); the model says which *could* be, by predecessor, last rollback and span.
"""

from __future__ import annotations

import json
import re
from collections import OrderedDict
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, NamedTuple

from tests.chaos.evidence import Row
from tests.chaos.records import Logged, absolute, logged, offset_of

RECENT, SUSPENSIONS = 1_024, 32
"""What a window remembers: ids of events, and suspensions that wait (docs/concepts.md)."""
NUMBER = re.compile(r"\bn[0-9]+x[0-9]+(?=\.)")
"""What every sentence of a producer's text ends with, another one each; one that is cut short is
none.
"""
SPEAKING = frozenset({"message", "tool.result"})
LEARNT = frozenset(
    f"memory.{what}" for what in ("saved", "superseded", "deleted", "fused", "outcome")
)


class Node(NamedTuple):
    """One event that was not rolled back, and those before it."""

    offset: int
    before: Node | None


@dataclass(frozen=True, slots=True)
class Summed:
    """A summary that was taken: where it stands, how far it reaches, the last rollback it knew,
    whether it may be taken after another one, and what it covers and keeps.
    """

    summary_id: str
    offset: int
    to: int
    rollback: int
    survives: bool
    covers: frozenset[int]
    kept: frozenset[int]


@dataclass(slots=True)
class State:
    """How a conversation stood after one of its events."""

    last: Node | None = None
    force: Summed | None = None
    rollback: int = -1

    def reached(self) -> list[int]:
        """The offsets of all events that no rollback had abandoned, ascending, skipped ones among
        them.
        """
        found: list[int] = []
        node = self.last
        while node is not None:
            found.append(node.offset)
            node = node.before
        return found[::-1]


@dataclass
class Conversation:
    """The events of one conversation, in the log's order, gone through once. ``taken`` are the ids
    of summaries that were accepted; ``rules`` the policy of the last one that threadfold made;
    ``voids`` those that were said to be void, with the offset of the rollback.
    """

    partition: int
    taken: frozenset[str]
    rules: str = ""
    voids: frozenset[tuple[str, int]] = frozenset()
    events: dict[int, Logged] = field(default_factory=dict)
    first: dict[str, int] = field(default_factory=dict)
    """Where each id counted first, by id."""
    counted: list[str] = field(default_factory=list)
    """Ids of the events that were applied, in order."""
    summaries: dict[str, Summed] = field(default_factory=dict)
    before: dict[str, str | None] = field(default_factory=dict)
    """The predecessor of each summary that was taken."""
    voided: set[str] = field(default_factory=set)
    abandoned: set[int] = field(default_factory=set)
    """The offsets that a rollback abandoned at any time."""
    rollbacks: dict[int, int] = field(default_factory=dict)
    """The rollbacks that applied, with their targets."""
    complaints: list[str] = field(default_factory=list)
    end: int = -1
    state: State = field(default_factory=State)
    _recent: OrderedDict[str, int] = field(default_factory=OrderedDict)
    _refused: set[int] = field(default_factory=set)
    _after: dict[int, State] = field(default_factory=dict)
    _numbers: dict[int, list[str]] = field(default_factory=dict)

    def add(self, row: Row) -> None:
        """Go one record further."""
        event = logged(row)
        self.end = event.offset
        if event.id in self._recent:
            return
        self._recent[event.id] = event.offset
        if len(self._recent) > RECENT:
            self._recent.popitem(last=False)
        self.events[event.offset] = event
        self.first[event.id] = event.offset
        if self._apply(event):
            self.counted.append(event.id)
        else:
            self._refused.add(event.offset)
        if self.state.rollback != event.offset:
            self.state = State(
                Node(event.offset, self.state.last), self.state.force, self.state.rollback
            )
        self._after[event.offset] = self.state

    def _apply(self, event: Logged) -> bool:
        """Whether the event counts, with what it does to the active summary and to what stands
        before it.
        """
        if event.type == "summary":
            return self._summary(event)
        if event.type == "rollback":
            return self._roll_back(event)
        if event.type in LEARNT and event.data.get("origin", "explicit") != "explicit":
            return self._knows(event.data)
        return event.type != "resolution" or event.data["suspension_id"] in self.open_suspensions()

    # -- summaries
    # ------------------------------------------------------------------------------------------

    def _summary(self, event: Logged) -> bool:
        data, state = event.data, self.state
        name = data["summary_id"]
        why = self._why_not(data)
        if name not in self.taken:
            # A policy that came meanwhile may keep other events.
            if why is None and self._knows(data) and data.get("policy", "") in ("", self.rules):
                self.complaints.append(
                    f"summary {name} at {event.offset} could be taken and was not"
                )
            return False
        if why is not None:
            self.complaints.append(f"summary {name} at {event.offset} was taken though {why}")
        said = set(NUMBER.findall(data["text"]))
        standing = {number for o in self.standing() for number in self._numbers_of(o)}
        if not said <= standing:
            self.complaints.append(
                f"summary {name} at {event.offset} holds text that does not stand: {sorted(said - standing)[:3]}"
            )
        covers = frozenset(self.covered_by(data["span"]))
        self._check_stands(event, data["span"])
        made = Summed(
            name,
            event.offset,
            offset_of(data["span"]["to"]),
            offset_of(data.get("rollback")),
            bool(data["span"].get("survives_rollbacks")),
            covers,
            frozenset(absolute(data["span"].get("kept") or [])),
        )
        self.summaries[name] = made
        self.before[name] = data["previous"]
        self.state = State(state.last, made, state.rollback)
        return True

    def _numbers_of(self, offset: int) -> list[str]:
        """What an event says that a summary's text can be checked by."""
        if offset not in self._numbers:
            self._numbers[offset] = NUMBER.findall(json.dumps(self.events[offset].data))
        return self._numbers[offset]

    def _check_stands(self, event: Logged, span: dict[str, Any]) -> None:
        """Of the events that a span names, it marks those that stand."""
        if "stands" not in span:
            return
        marks = dict(zip(self.covered_by(span), span["stands"], strict=True))
        standing = set(self.standing())
        wrong = [
            offset
            for offset, mark in marks.items()
            if (mark == "1" and offset not in standing)
            or (mark == "0" and offset in standing and self.events[offset].type in SPEAKING)
        ]
        if wrong:
            self.complaints.append(
                f"summary {event.data['summary_id']} at {event.offset} marks {wrong[:3]} wrongly as"
                " standing or not"
            )

    def _stands_on(self, made: Summed, force: Summed | None) -> bool:
        return self.before[made.summary_id] == (force.summary_id if force else None)

    def _why_not(self, data: dict[str, Any]) -> str | None:
        """Why a summary could not be taken; None when it should be, however long it is."""
        force = self.state.force
        if data["previous"] != (force.summary_id if force else None):
            return "its predecessor is not the one in force"
        if offset_of(data.get("previous_position")) != (force.offset if force else -1):
            return "its predecessor stands elsewhere"
        if not (self._knows(data) or data["span"].get("survives_rollbacks")):
            return "it does not know the last rollback"
        return self._why_not_span(data["span"])

    def _knows(self, data: dict[str, Any]) -> bool:
        """Whether a summary knows the last rollback. One that need not may be taken or not: a
        rollback may have opened a call again that it covers, which this model does not follow.
        """
        return offset_of(data.get("rollback")) == self.state.rollback

    def _why_not_span(self, span: dict[str, Any]) -> str | None:
        covered, first, last = self.covered(), offset_of(span["from"]), offset_of(span["to"])
        if last not in self.events:
            return "its span ends at no event"
        if self.state.force is not None and last <= self.state.force.to:
            return "its span is summarised already"
        kept = set(absolute(span.get("kept") or []))
        wanted = [o for o in self.standing() if o <= last and o not in covered and o not in kept]
        claimed = set(self.covered_by(span))
        left = [o for o in wanted if o not in claimed]
        if left:
            return f"its span leaves out {left[:3]}"
        if claimed & covered:
            return f"its span covers {sorted(claimed & covered)[:3]} again"
        # What a rollback abandoned is told by its bounds, which need not be this conversation's own
        # records.
        begin, around = min(claimed, default=-1), covered | kept
        if begin < first or any(
            first <= offset < begin and offset not in around for offset in self.events
        ):
            return "its span does not begin with what it covers"
        return None

    def covered_by(self, span: dict[str, Any]) -> list[int]:
        """The offsets that a span covers: those it names, or (named nowhere) all of the
        conversation's between its ends but the kept.
        """
        if span.get("positions"):
            return absolute(span["positions"])
        kept = set(absolute(span.get("kept") or []))
        first, last = offset_of(span["from"]), offset_of(span["to"])
        return [o for o in self.events if first <= o <= last and o not in kept]

    def chain(self) -> list[Summed]:
        """The active summary and those it stands on, newest first."""
        return self._chain_of(self.state.force)

    def _chain_of(self, force: Summed | None) -> list[Summed]:
        found: list[Summed] = []
        while force is not None:
            found.append(force)
            before = self.before[force.summary_id]
            force = None if before is None else self.summaries.get(before)
        return found

    def covered(self) -> set[int]:
        """All offsets that the active summaries cover."""
        return {offset for made in self.chain() for offset in made.covers}

    # -- rollbacks
    # ------------------------------------------------------------------------------------------

    def _roll_back(self, event: Logged) -> bool:
        target = self._target(str(event.data["to"]))
        if target is None or target not in self._after or target >= event.offset:
            return False
        then = self._after[target]
        force = self._active_at(target, then, event.offset)
        old, stood = self.chain(), set(self.state.reached())
        self.state = State(then.last, force, event.offset)
        self.abandoned |= stood - set(self.state.reached())
        self.rollbacks[event.offset] = target
        self.voided |= {made.summary_id for made in old} - {
            made.summary_id for made in self.chain()
        }
        return True

    def _target(self, to: str) -> int | None:
        partition, dash, offset = to.partition("-")
        if dash and partition.isdecimal() and offset.isdecimal():
            return int(offset) if int(partition) == self.partition else None
        return self._recent.get(to)

    def _active_at(self, target: int, then: State, at: int) -> Summed | None:
        """The summary that a rollback leaves in force: of the present chain as much as covers
        nothing behind the target.

        One that was not in force there may lose its force although it covers nothing behind it:
        calls that waited there stay verbatim, and so does what is to be answered. Where such a call
        may be covered all of it is restored, and later summaries hold that knew the last rollback
        before the target, or that survive it. This model does not follow calls, so what was
        announced counts where one of these is covered.
        """
        now = self.state.force
        reach = -1 if now is None else now.to
        later = self._back_to(target)
        restored = any(map(self._covers_call, later))
        left = {
            made.summary_id
            for made in later
            if (made.summary_id, at) in self.voids
            and (
                self._may_stay_verbatim(made, then) or (restored and made.rollback != then.rollback)
            )
        }
        reached = target == reach or (target > reach and target in self.state.reached())
        if reached and not left:
            return now
        force = then.force
        for made in reversed(later):
            if (
                target >= made.to
                and (made.rollback == then.rollback or self._survives(made, then, force, at))
                and made.summary_id not in left
                and self._stands_on(made, force)
            ):
                force = made
        return force

    def _back_to(self, target: int) -> list[Summed]:
        """The chain back to the first that was taken by a target, newest first. A rollback may have
        put that one into force again since.
        """
        chain = self.chain()
        later = sum(made.offset > target for made in chain)
        return chain[: later + 1]

    def _survives(self, made: Summed, then: State, force: Summed | None, at: int) -> bool:
        """Whether a summary holds at an earlier state though it does not know its last rollback.
        It may be said to be void: what there is of ranges and calls this model does not follow.
        """
        around = made.covers | made.kept | {o for one in self._chain_of(force) for o in one.covers}
        return (
            made.survives
            and (made.summary_id, at) not in self.voids
            and all(o in around for o in self._standing_at(then) if o <= made.to)
        )

    def _may_stay_verbatim(self, made: Summed, then: State) -> bool:
        """Whether a summary covers a call, a suspension, or what was said last at a target."""
        spoken = (o for o in self._standing_at(then) if self.events[o].type in SPEAKING)
        return max(spoken, default=-1) in made.covers or self._covers_call(made)

    def _covers_call(self, made: Summed) -> bool:
        covered = [self.events[offset] for offset in made.covers if offset in self.events]
        return any(event.type == "suspension" or event.data.get("tool_calls") for event in covered)

    # -- what stands
    # ------------------------------------------------------------------------------------------

    def standing(self) -> list[int]:
        """The offsets of the events that stand, ascending: applied, not rolled back, neither
        summaries nor rollbacks.
        """
        return self._standing_at(self.state)

    def _standing_at(self, state: State) -> list[int]:
        return [
            offset
            for offset in state.reached()
            if self.events[offset].type != "summary" and offset not in self._refused
        ]

    def accepted(self, offset: int) -> bool:
        """Whether an event was taken when it came."""
        return offset in self.events and offset not in self._refused

    def open_suspensions(self) -> list[str]:
        """Ids of the suspensions that wait, in order; the oldest beyond a window's limit do not."""
        waiting: list[str] = []
        for offset in self.standing():
            event = self.events[offset]
            if event.type == "suspension":
                waiting.append(event.data["suspension_id"])
                del waiting[:-SUSPENSIONS]
            elif event.type == "resolution" and event.data["suspension_id"] in waiting:
                waiting.remove(event.data["suspension_id"])
        return waiting

    def digest(self) -> str:
        """The chained digest of the applied ids."""
        digest = bytes(32)
        for name in self.counted:
            digest = sha256(digest + sha256(name.encode()).digest()).digest()
        return digest.hex()
