"""What stands on the topic of memories: accepted events as they are in the log, with where and when
they stand there; and what a rollback or a dropped event takes back.

Its records come in any order and any number of times, so each says all that its meaning depends on.
``position`` is the event's place in its log, ``recordedtime`` the broker's time of it. A payload
that is sealed stays sealed, with the key of its conversation.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import msgspec

from projections.events.memories import MemoryVoided
from projections.events.times import rfc3339
from projections.events.untrusted import json_decoder
from projections.fold.outcomes import Taught
from projections.memory.news import VOIDED
from projections.names import Key, Position
from streams.log.log import Raw

_fields = json_decoder(dict[str, msgspec.Raw])
_encode = msgspec.json.Encoder().encode


def memories_key(tenant: str, user: str) -> bytes:
    """The key of a user's records on the topic; ``user`` is a ``projections.names.user_tag``."""
    return f"{tenant}/~{user}".encode()


def announcement(key: Key, raw: Raw, taught: Taught) -> bytes:
    """The value to publish for an event of the log at ``raw``."""
    assert raw.value is not None
    # The fold passes over the bytes of a field that it does not know: they may be no text.
    fields: dict[str, Any] = dict(_fields(raw.value.decode(errors="replace").encode()))
    recorded = rfc3339(datetime.fromtimestamp(raw.timestamp / 1000, UTC), "milliseconds")
    data = fields.pop("data")
    if taught.to is not None or taught.dropped is not None:
        at, partition = raw.position, raw.position.partition
        voided = MemoryVoided(
            str(at),
            None if taught.to is None else str(Position(partition, taught.to)),
            None if taught.dropped is None else str(Position(partition, taught.dropped)),
        )
        fields = {
            "specversion": "1.0",
            "id": f"voided-{at}",
            "type": VOIDED,
            "source": key.source,
            "time": fields.get("time", recorded),
        }
        data = msgspec.Raw(_encode(voided))
    # Last: whoever opens a sealed payload finds it at the end.
    return _encode(
        {**fields, "position": str(raw.position), "recordedtime": recorded, "data": data}
    )
