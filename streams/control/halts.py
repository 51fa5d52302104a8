"""Halted partitions, recorded on the control topic under ``halt/PARTITION``.

A worker halts a partition in which the fold fails too often; an operator accepts that, and it goes
on. Both stand in the record, so a restart or another owner of the partition changes nothing. It is
of one generation: another one has folded the partition with rules of its own.
"""

from __future__ import annotations

import msgspec

from projections.events.times import present
from projections.names import Position


class Halt(msgspec.Struct, frozen=True, omit_defaults=True):
    """Where a partition of a generation halted, and why. Everything up to ``offset`` is folded.

    ``failing`` of the last ``of`` events could not be folded, the last of them at offset
    ``last``. ``since`` and ``accepted`` are RFC 3339 times; "" is not accepted.
    """

    generation: int
    offset: int
    failing: int
    of: int
    last: int
    cause: str
    since: str
    accepted: str = ""

    def accept(self) -> Halt:
        """The record with which the partition goes on."""
        return msgspec.structs.replace(self, accepted=present("seconds"))

    def sentence(self, partition: int) -> str:
        """What halted, why, and what to do."""
        return (
            f"partition {partition} halted after offset {self.offset} at {self.since}: the fold"
            f" failed on {self.failing} of its last {self.of} events, over the share of the"
            f" setting max_poison_share; the last is {Position(partition, self.last)},"
            f" {self.cause}. Nothing is lost. Mend the code and restart the workers, then run"
            f" `threadfold dead-letters accept {partition}` and"
            " `threadfold dead-letters retry --all`"
        )
