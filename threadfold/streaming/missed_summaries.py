"""What a stream of a tenant's summaries missed, read page by page from the topic of all tenants;
and which of it the topic has lost.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from streams.log.log import Log, Row
from streams.runtime.keyed_limit import KeyedLimit
from threadfold.streaming.catchup import PAGE_BYTES, SCAN


class Missing(NamedTuple):
    """Records of a partition, of any tenant, that the topic has lost: retention, or who deleted
    records, took its beginning. ``row``: they come before this row of the page.
    """

    row: int
    partition: int
    first: int
    last: int


class MissedSummaries:
    """A tenant's records of a range of each partition, page by page.

    Its page is looked for among all tenants' records. So of each tenant one page is read at a time,
    and then it rests as long: others go on meanwhile, however many of its streams there are.
    """

    def __init__(
        self, log: Log, turns: KeyedLimit, tenant: str, since: Sequence[int], upto: Sequence[int]
    ) -> None:
        self.partitions: list[int] = []
        """Of the rows of the page that was read last."""
        self.missing: list[Missing] = []
        """What the page that was read last lacks, in order."""
        self.next = list(since)
        """Of each partition the offset up to which it is read."""
        self._log = log
        self._turns = turns
        self._tenant = tenant
        self._upto = upto

    async def next_page(self) -> list[Row] | None:
        """The next records, which may be none, about ``PAGE_BYTES`` at most, among about ``SCAN``
        of all tenants; None after the last. Raises ``KafkaUnavailable``.
        """
        if not any(at < upto for at, upto in zip(self.next, self._upto, strict=True)):
            return None
        async with self._turns.of(self._tenant) as turn:
            begun = time.monotonic()
            try:
                return await self._page()
            finally:
                turn.read(time.monotonic() - begun)

    async def _page(self) -> list[Row]:
        rows: list[Row] = []
        holes: list[Missing] = []
        self.partitions = []
        await self._read(rows, holes)
        self.missing = await self._lost(holes)
        return rows

    async def _read(self, rows: list[Row], holes: list[Missing]) -> None:
        """Read the page, and note where offsets have no record."""
        held, left, name = 0, SCAN, self._tenant.encode()
        for partition, end in enumerate(self._upto):
            first = self.next[partition]
            upto = min(end, first + left)
            if first >= upto:
                continue
            left -= upto - first
            async for row in self._log.scan(partition, first, upto - 1):
                if row.offset > self.next[partition]:
                    holes.append(
                        Missing(len(rows), partition, self.next[partition], row.offset - 1)
                    )
                self.next[partition] = row.offset + 1
                if row.key is not None and tenant_of(row.key) == name:
                    rows.append(row)
                    self.partitions.append(partition)
                    held += len(row.value or b"")
                    if held >= PAGE_BYTES:
                        return
            if self.next[partition] < upto:
                holes.append(Missing(len(rows), partition, self.next[partition], upto - 1))
            self.next[partition] = upto

    async def _lost(self, holes: list[Missing]) -> list[Missing]:
        """The holes that lie before the topic's beginning. Others are marks of a transactional
        producer. Asked after the page was read: its beginning may have been lost meanwhile.
        """
        if not holes:
            return []
        begins = await self._log.beginning_offsets()
        return [
            hole._replace(last=min(hole.last, begins[hole.partition] - 1))
            for hole in holes
            if hole.first < begins[hole.partition]
        ]


def tenant_of(key: bytes) -> bytes:
    """The tenant's part of a record's key."""
    return key.partition(b"/")[0]
