"""What a log is, and a record of it; :mod:`streams.log.kafka_log` is the one in Kafka."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Iterable, Mapping, Sequence
from typing import NamedTuple, Protocol

from projections.events.validation import Record
from projections.names import Position
from streams.encryption.payload_cipher import PayloadCipher


class Row(Protocol):
    """A record of one partition, as aiokafka hands it over."""

    @property
    def offset(self) -> int:
        """Its place in the partition."""

    @property
    def key(self) -> bytes | None:
        """Its key."""

    @property
    def value(self) -> bytes | None:
        """Its value."""

    @property
    def timestamp(self) -> int:
        """In ms, by the broker's clock."""


class Raw(NamedTuple):
    """A record as it stands in the log; ``timestamp`` in ms, by the broker's clock."""

    position: Position
    key: bytes | None
    value: bytes | None
    timestamp: int

    @property
    def offset(self) -> int:
        """Its place in the partition."""
        return self.position.offset


class Log(Protocol):
    """The unbounded store: ``streams.log.kafka_log.KafkaLog``, or in memory
    ``threadfold.testing.MemoryLog``.
    """

    @property
    def partitions(self) -> int:
        """How many partitions the log has; it never changes."""

    @property
    def seals(self) -> PayloadCipher:
        """Who seals what is appended, and opens what is read: records are handed out as they stand,
        their keys looked for.
        """

    @property
    def accepts_lost_beginning(self) -> bool:
        """Whether conversations may begin with what is left of a log that lost its beginning: the
        setting ``accept_truncated_log``.
        """

    async def append(self, records: Sequence[Record]) -> list[Position]:
        """Append records in order (per conversation) and return their positions once they are safe;
        payloads are sealed here.

        Raises:
            Erased, KeyUnusable: as ``streams.encryption.payload_cipher.PayloadCipher.seal`` says;
                nothing was appended.
            EventTooLarge: one of them is over what Kafka takes in one message; nothing was
                appended.
            Overloaded: too much is on its way already; nothing was appended.
            KafkaUnavailable: unknown whether they are in; repeat with the same ids.
        """

    async def read(self, positions: Iterable[Position]) -> dict[Position, Raw]:
        """The records at these positions; positions that the log does not hold are absent from the
        answer.
        """

    async def read_within(
        self, positions: Sequence[Position], most_bytes: int
    ) -> tuple[dict[Position, Raw], int]:
        """The records at the first of these positions, and how many positions that are: all, unless
        their records are more than about ``most_bytes``. At least one position is read.
        """

    def scan(self, partition: int, first: int, last: int) -> AsyncIterator[Raw]:
        """All records of a partition from offset ``first`` to ``last``, both included, in order."""

    def stream(
        self, ranges: Mapping[int, tuple[int, int]]
    ) -> AsyncGenerator[tuple[int, Sequence[Row]], None]:
        """The records of several partitions from a first to a last offset, both included, as
        batches with their partition.

        In order within a partition, of the partitions in turns; made for long ranges. Ends early
        where the log holds no more.
        """

    async def end_offsets(self) -> dict[int, int]:
        """For each partition the offset the next record will get."""

    async def last_records(self) -> dict[int, int]:
        """For each partition the offset after its last record: up to there, all is folded.

        It is less than the end where a transactional producer wrote last: its mark takes an offset,
        and nobody is given a record for it.
        """

    async def beginning_offsets(self) -> dict[int, int]:
        """For each partition the offset of its first record: above 0 the log has lost its beginning
        (:mod:`streams.log.retention`).
        """
