"""Conversations that are parked by a record that a producer got wrong, and go on once it is dropped."""

from __future__ import annotations

from projections.names import Key, Position, partition_of
from streams.settings.settings import Settings
from tests.support.raw_records import put_raw


async def park(settings: Settings, conversation: str, tenant: str = "acme") -> Position:
    """Append bytes that are no event to a conversation; returns where they stand."""
    key = Key(tenant, conversation)
    partition = partition_of(key, settings.partitions)
    (sent,) = await put_raw(settings, "events", (partition, str(key).encode(), b'{"bad":'))
    return Position(partition, sent.offset)
