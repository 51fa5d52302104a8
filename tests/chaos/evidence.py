"""What a run leaves for the oracle, as plain data: what was acknowledged, the topics as they are,
and windows as callers get them.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

Flat = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Ack:
    """An event that a gateway acknowledged: what was sent, and the position that was answered.

    ``producer`` and ``number`` order the appends of one producer, each of which began when the one
    before was acknowledged; ``repeat``: it had been acknowledged before, and was sent once more.
    """

    key: str
    id: str
    position: str
    flat: Flat
    producer: int
    number: int
    repeat: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A record of a topic; ``key`` is ``tenant/conversation``, ``timestamp`` the broker's in ms."""

    partition: int
    offset: int
    key: str
    value: bytes
    timestamp: int = 0

    @property
    def position(self) -> str:
        """Its position as callers see it."""
        return f"{self.partition}-{self.offset}"


GARBAGE = "garbage"
"""How the conversations begin, and the keys of nobody, to which records of garbage are written."""


def is_garbage(row: Row) -> bool:
    """Whether a record is one of those that are no events."""
    return GARBAGE in row.key


@dataclass(slots=True)
class Seen:
    """One conversation as HTTP gives it: the context in two formats, all of its history newest
    first, and its summaries newest first.
    """

    events: Flat
    openai: Flat
    history: list[Flat]
    summaries: list[Flat]


@dataclass(slots=True)
class Evidence:
    """Everything of one run. ``windows`` are by key; ``summaries`` and ``memories`` are these topics,
    ``letters`` that of dead letters.
    """

    acks: list[Ack] = field(default_factory=list)
    log: list[Row] = field(default_factory=list)
    summaries: list[Row] = field(default_factory=list)
    windows: dict[str, Seen] = field(default_factory=dict)
    letters: list[Row] = field(default_factory=list)
    memories: list[Row] = field(default_factory=list)


def keep(evidence: Evidence, path: Path) -> None:
    """Write the evidence as JSON, to be judged again (:func:`kept`) while somebody looks for a
    cause.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        json.dumps(asdict(evidence), default=lambda value: value.decode(errors="replace"))
    )


def kept(path: Path) -> Evidence:
    """The evidence that :func:`keep` wrote."""
    found = json.loads(path.read_text())
    rows = [
        [Row(**{**row, "value": row["value"].encode()}) for row in found[name]]
        for name in ("log", "summaries", "letters", "memories")
    ]
    log, summaries, letters, memories = rows
    windows = {key: Seen(**seen) for key, seen in found["windows"].items()}
    acks = [Ack(**ack) for ack in found["acks"]]
    return Evidence(acks, log, summaries, windows, letters, memories)


@dataclass(slots=True)
class Findings:
    """What the oracle found: ``lost`` and ``doubled`` name events, ``differing`` whatever else is
    not as it should be.
    """

    acknowledged: int = 0
    lost: list[str] = field(default_factory=list)
    doubled: list[str] = field(default_factory=list)
    differing: list[str] = field(default_factory=list)

    def add(self, other: Findings) -> None:
        """Add what was found about something else."""
        self.lost += other.lost
        self.doubled += other.doubled
        self.differing += other.differing

    @property
    def clean(self) -> bool:
        """Whether nothing was found."""
        return not (self.lost or self.doubled or self.differing)
