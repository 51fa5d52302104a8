"""Which records of the keys topic an export has: of each key the newest one, unless it deletes the
key; and of an erased conversation only its erasure.

The broker drops what a later record replaces or deletes only after ``key_compaction_lag``. Until
then the topic has the wrapped keys of erased conversations, and a file is kept for longer than
that: whoever has it and the master key could read what was erased.

Records that delete stay behind, too. No import needs them: each writes into topics that have
nothing yet of what it brings.

In memory are the key table and an offset for each key: together about 600 bytes for each
conversation.
"""

from __future__ import annotations

from streams.encryption.key_table import ERASED, KeyTable
from streams.log.topic_copies import Copied, read_partition
from streams.settings.settings import Settings


class NewestKeys:
    """The keys topic as it stands after the records that were put; ``table`` is what they say."""

    def __init__(self) -> None:
        self.table = KeyTable()
        self._newest: dict[bytes, int] = {}

    def put(self, record: Copied) -> None:
        """Take the topic's next record in."""
        place = record.key or b""
        try:
            self.table.put(place, record.value)
        except ValueError:
            return  # every process skips it, so the one before it still counts
        self._newest[place] = record.offset

    def stands(self, record: Copied) -> bool:
        """Whether an export has this record."""
        place = record.key or b""
        conversation, _, name = place.rpartition(b"/")
        return (
            record.value is not None
            and record.offset >= self._newest.get(place, 0)
            and (name == ERASED or not self.table.is_done(conversation))
        )


async def newest_keys(settings: Settings, end: int) -> NewestKeys:
    """The keys topic as it stands before offset ``end``; raises KafkaUnavailable."""
    newest = NewestKeys()
    async for batch in read_partition(settings, settings.topic("keys"), 0, end):
        for record in batch:
            newest.put(record)
    return newest
