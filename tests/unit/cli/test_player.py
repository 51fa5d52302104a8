"""The player of ``threadfold play`` and the demo: an outage doubles nothing, and what the windows have
yet to apply is counted.
"""

from __future__ import annotations

import pytest

from projections.errors import KafkaUnavailable
from projections.events.validation import Record, make_record
from projections.names import Key, Position
from projections.storage.records import Checkpoint
from threadfold.cli.play import ATTEMPTS, Player
from threadfold.testing import MemoryLog

KEY = Key("t", "c")


class FailingLog(MemoryLog):
    """Fails the first ``failures`` appends after they have happened, as a lost answer does."""

    def __init__(self, failures: int) -> None:
        super().__init__(1)
        self.failures = failures
        self.ids: list[str] = []

    async def append(self, records: list[Record]) -> list[Position]:  # type: ignore[override]
        self.ids += [record.id for record in records]
        positions = await super().append(records)
        if self.failures:
            self.failures -= 1
            raise KafkaUnavailable("no answer")
        return positions


def record(number: int) -> Record:
    flat = {"type": "message", "id": f"m{number}", "role": "user", "content": "hello"}
    return make_record(KEY, flat, where="message", now="2026-01-01T00:00:00Z", new_id="")


async def test_an_append_is_repeated_with_the_same_ids() -> None:
    log = FailingLog(failures=ATTEMPTS - 1)
    player = Player(log, total=1)
    await player.append([record(0)])
    assert log.ids == ["m0"] * ATTEMPTS
    assert (player.appended, player.last) == (1, {0: ATTEMPTS - 1})


async def test_an_outage_that_lasts_ends_the_play() -> None:
    player = Player(FailingLog(failures=ATTEMPTS), total=1)
    with pytest.raises(KafkaUnavailable):
        await player.append([record(0)])
    assert player.appended == 0


async def test_what_is_left_counts_to_the_last_offset_and_to_a_healing_target() -> None:
    player = Player(MemoryLog(1), total=3)
    assert player.left({}) == 0
    await player.append([record(i) for i in range(3)])
    assert player.left({0: None}) == 3
    assert player.left({0: Checkpoint(offset=0)}) == 2
    assert player.left({0: Checkpoint(offset=2)}) == 0
    assert player.left({0: Checkpoint(offset=9)}) == 0
    assert player.left({0: Checkpoint(offset=2, target=5)}) == 3
