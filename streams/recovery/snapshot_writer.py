"""When a process takes the rounds of its partitions' snapshots
(``streams.recovery.partition_snapshots``): after batches, one partition at a time.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Iterable

from projections.errors import CorruptWindow, LogTruncated, ThreadfoldError
from streams.log.log import Log
from streams.partition.owned import Fenced
from streams.partition.partition import Partition
from streams.recovery.partition_snapshots import PartitionSnapshots
from streams.recovery.snapshot_topic import SnapshotTopic

logger = logging.getLogger(__name__)

RETRY_AFTER = 5.0
LOOK_AGAIN = 600.0
"""Seconds until a partition that can have no snapshots, as its log lost its beginning, is looked at
again.
"""


class SnapshotWriter:
    """Takes the rounds of one process' partitions, in the background, one partition at a time."""

    def __init__(self, log: Log, topic: SnapshotTopic, every: int, rest_after: float = 0.0) -> None:
        """Args: ``every`` is how many events of a partition make a round due, 0 turns rounds off,
        and with them hibernation; ``rest_after`` is for how many seconds a conversation has to be
        idle to be put to sleep, 0: never.
        """
        self.partitions: dict[int, PartitionSnapshots] = {}
        self._rest_after = rest_after
        self._log = log
        self._topic = topic
        self._every = every
        self._one = asyncio.Lock()
        self._tasks: dict[PartitionSnapshots, asyncio.Task[None]] = {}
        self._not_before: dict[int, float] = {}
        self._corrupt: dict[int, CorruptWindow] = {}

    def take_over(self, partition: Partition) -> None:
        """Begin with a partition whose checkpoint was just adopted or restored."""
        self.forget([partition.number])
        if self._every > 0:
            partition.changed, partition.erased = set(), set()
            self.partitions[partition.number] = PartitionSnapshots(
                partition, self._log, self._topic
            )

    def forget(self, numbers: Iterable[int]) -> None:
        """Give partitions up; a round under way ends without its marker."""
        for number in numbers:
            self._corrupt.pop(number, None)
            self._not_before.pop(number, None)
            one = self.partitions.pop(number, None)
            if one is not None and one in self._tasks:
                self._tasks[one].cancel()

    async def finish(self, limit: float) -> None:
        """Take the rounds that are due, for ``limit`` seconds at most: whoever stops right after a
        catch-up leaves little to fold again.

        To be called by the owner still, when nothing is folded any more.
        """
        try:
            async with asyncio.timeout(limit):
                for number, one in list(self.partitions.items()):
                    if one in self._tasks:
                        await asyncio.wait([self._tasks[one]])
                    if not one.partition.checkpoint.behind:
                        if not one.ready:
                            await self.run(number)
                        if one.ready and one.is_due(self._every):
                            await self.run(number)
        except TimeoutError:
            logger.info("stopping before all snapshots are written: healing would fold more")

    async def stop(self) -> None:
        """Give all partitions up."""
        self.forget(list(self.partitions))
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    def check(self, number: int) -> None:
        """Raise :class:`CorruptWindow`, once, where a round came to a window that cannot be read:
        the owner has to fold it anew.
        """
        if (found := self._corrupt.pop(number, None)) is not None:
            raise found

    def covered(self, number: int) -> int:
        """The offset of the latest marker this process knows of, -1 without one."""
        one = self.partitions.get(number)
        return -1 if one is None else one.covered

    def is_running(self, number: int) -> bool:
        """Whether a round of this partition is under way."""
        return self.partitions.get(number) in self._tasks

    def consider(self, number: int, *, behind: bool = False) -> None:
        """Begin what is due for a partition; called after every batch and now and then besides, and
        returns at once.
        """
        one = self.partitions.get(number)
        if one is None or one in self._tasks or one.partition.checkpoint.behind:
            return
        rest = one.ready and not one.is_due(self._every, behind=behind)
        if rest and (behind or not self._rest_after or time.monotonic() < one.look_at):
            return
        if time.monotonic() >= self._not_before.get(number, 0.0):
            self.begin(number, rest=rest)

    def begin(self, number: int, *, rest: bool = False) -> None:
        """Do in the background what :meth:`run` does."""
        one = self.partitions[number]
        task = asyncio.create_task(self.run(number, rest=rest), name=f"snapshots-{number}")
        self._tasks[one] = task
        task.add_done_callback(lambda _: self._tasks.pop(one))

    async def run(self, number: int, *, rest: bool = False) -> None:
        """One step for a partition: find out what changed before it was taken over, else a round;
        or put idle conversations to sleep (``rest``).

        What goes wrong is logged, and tried again by :meth:`consider` later.
        """
        one, pause = self.partitions[number], RETRY_AFTER
        try:
            async with self._one:
                if rest:
                    await one.rest(self._rest_after)
                elif one.ready:
                    await one.write()
                else:
                    await one.learn()
            return
        except Fenced:
            pass  # Whoever owns the partition now takes it over, and its rounds.
        except CorruptWindow as error:
            self._corrupt[number] = error
        except LogTruncated as error:
            logger.warning("no snapshots of partition %d: %s", number, error)
            pause = LOOK_AGAIN
        except ThreadfoldError as error:
            logger.warning("snapshots of partition %d wait: %s", number, error)
        except Exception:
            logger.exception("snapshots of partition %d failed; trying again", number)
        self._not_before[number] = time.monotonic() + pause
