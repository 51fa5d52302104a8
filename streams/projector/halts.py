"""Which partitions of the live generation are halted: what the control topic says, and what this
worker found and is not recorded there yet.
"""

from __future__ import annotations

import logging

from projections.events.times import present
from streams.control.control_topic import Control
from streams.control.halts import Halt
from streams.partition.failure_share import Excess

logger = logging.getLogger(__name__)


class Halts:
    """The halts of one worker's partitions; partitions of others are named as well."""

    def __init__(self, control: Control) -> None:
        self._control = control
        self._found: dict[int, Halt] = {}
        self._before: set[int] = set()

    def after(self, partition: int) -> int | None:
        """The offset after which a partition is not folded for now; None: it is not halted."""
        halt = self._found.get(partition) or self._control.state.halted().get(partition)
        return None if halt is None else halt.offset

    def begin(self, partition: int, generation: int, excess: Excess) -> None:
        """Halt a partition at once; :meth:`record` tells all others."""
        halt = Halt(
            generation,
            excess.offset,
            excess.failing,
            excess.of,
            excess.last.offset,
            excess.last.cause,
            present("seconds"),
        )
        self._found[partition] = halt
        logger.critical("%s", halt.sentence(partition))

    async def record(self) -> None:
        """Record what was found since on the control topic; raises KafkaUnavailable, and then it
        is recorded the next time.
        """
        for partition, halt in list(self._found.items()):
            if halt.generation == self._control.state.live_generation.number:
                await self._control.write({f"halt/{partition}": halt})
            self._found.pop(partition)

    async def forget(self, partition: int) -> None:
        """The partition's log is another one: no halt is of it."""
        self._found.pop(partition, None)
        if partition in self._control.state.halts:
            await self._control.write({f"halt/{partition}": None})

    def lifted(self) -> set[int]:
        """The partitions that go on since the last call."""
        halted = self._found.keys() | self._control.state.halted().keys()
        lifted = self._before - halted
        self._before = halted
        return lifted
