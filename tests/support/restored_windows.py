"""Windows of snapshots whose events are at hand."""

from __future__ import annotations

from collections.abc import Mapping

from projections.events.types import AnyEvent
from projections.names import Key
from projections.policy.policy import Rules
from projections.storage.snapshots import Refilled
from projections.window.window import Window
from tests.support.histories import KEY, PARTITION, RULES


def snapshot_offsets(snapshot: bytes) -> list[int]:
    """The offsets of the events whose text the snapshot left in the log, ascending; raises
    ``ValueError`` when it cannot be read.
    """
    return Refilled(KEY, PARTITION, RULES, snapshot).missing


def restore(
    key: Key, partition: int, rules: Rules, snapshot: bytes, at: Mapping[int, AnyEvent]
) -> Window:
    """The window a snapshot was taken of; raises as :class:`Refilled`."""
    refilled = Refilled(key, partition, rules, snapshot)
    refilled.put(at.get)
    return refilled.window()
