"""What folding a batch changes for others (its effects), and the sink that they go to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from projections.events.types import AnyEvent, LoopDetected, SummaryEvent
from projections.fold.extraction_due import Extraction
from projections.fold.outcomes import Outcome, Status, Taught
from projections.names import LONGEST_KEY, Key, Position
from projections.window.trace_steps import Cut
from streams.log.log import Raw
from streams.partition.failure_share import Failing
from streams.partition.step import RECORD


@dataclass(slots=True)
class Counts:
    """What became of the records folded so far."""

    applied: int = 0
    duplicate: int = 0
    rejected: int = 0
    dead: int = 0
    passed: int = 0
    """Events that a window restored from a snapshot had already."""
    waiting: int = 0
    """Events that came to a quarantined conversation."""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """A record that could not be applied: where it stands, whose it is (when its key says so), why,
    of which kind.
    """

    position: Position
    key: bytes | None
    cause: str
    kind: str = RECORD


def letter_key(key: bytes | None) -> bytes:
    """The key of a letter about a record with this key. One that is too long to be a key is cut,
    and still is: a producer hashes keys, byte by byte.
    """
    return (key or b"")[: LONGEST_KEY + 1]


@dataclass(slots=True)
class Effects:
    """What a batch changes for others, in log order.

    ``accepted``: summaries and where they stand. ``voided``: summaries that a rollback put out of
    force, and where it stands. ``refused``: where a summary stands that its window does not take,
    and why. ``again``: where a rollback stands, and where a summary does that is
    in force again by it. ``taught``: what changes in the long-term memory, and where that stands.
    ``extractions``: what there is for it to learn from.
    ``by``: of events that waited, the offset of the record that let them go
    on. ``failing``: events on which the fold failed.
    """

    accepted: list[tuple[Key, int, str]] = field(default_factory=list)
    voided: list[tuple[Key, int, str]] = field(default_factory=list)
    refused: list[tuple[Key, int, str]] = field(default_factory=list)
    again: list[tuple[Key, int, int]] = field(default_factory=list)
    dead: list[DeadLetter] = field(default_factory=list)
    loops: list[tuple[Key, int, LoopDetected]] = field(default_factory=list)
    erased: list[tuple[Key, int]] = field(default_factory=list)
    taught: list[tuple[Key, int, Taught]] = field(default_factory=list)
    extractions: list[tuple[Key, Extraction]] = field(default_factory=list)
    by: dict[int, int] = field(default_factory=dict)
    failing: list[Failing] = field(default_factory=list)

    def add(self, key: Key, event: AnyEvent, outcome: Outcome) -> None:
        """Add what one event changes for others."""
        if outcome.status is Status.REJECTED and type(event) is SummaryEvent:
            self.refused.append((key, outcome.offset, outcome.reason or ""))
        self.voided += [(key, outcome.offset, summary_id) for summary_id in outcome.voided]
        for summary in outcome.accepted:
            if summary.offset == outcome.offset:
                self.accepted.append((key, summary.offset, summary.summary_id))
            else:
                self.again.append((key, outcome.offset, summary.offset))
        if outcome.loop is not None:
            self.loops.append((key, outcome.offset, outcome.loop))
        if outcome.taught is not None:
            self.taught.append((key, outcome.offset, outcome.taught))

    def learn_from(self, key: Key, due: Sequence[Extraction]) -> None:
        """Add what there is for the long-term memory to learn from, if anything."""
        self.extractions += [(key, one) for one in due]

    def __bool__(self) -> bool:
        return any(
            (
                self.accepted,
                self.voided,
                self.refused,
                self.again,
                self.dead,
                self.loops,
                self.erased,
                self.taught,
                self.extractions,
            )
        )


class EffectSink(Protocol):
    """Where effects go: the live generation publishes them, a candidate drops them."""

    async def publish(self, partition: int, effects: Effects, batch: Sequence[Raw]) -> None:
        """Publish, and return when it is safe. ``batch``: its records, and what was read already of
        those that stand before it.
        """

    def report(self, partition: int, key: Key, cut: Cut) -> None:
        """Report a cut to whoever watches; nothing depends on it."""
