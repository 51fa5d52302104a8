"""What ends a text in progress: an assistant's message in the log, or an erasure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import sha256

from projections.names import Key
from streams.log.log import Log
from threadfold.streaming.decoding import decode_record
from threadfold.streaming.partial_store import Text

_KEPT = re.compile(r"partial-[0-9a-f]{32}")


def kept_id(key: Key, turn: str, since: int) -> str:
    """The id of the message that an interrupted text becomes; every gateway derives the same."""
    return "partial-" + sha256("\n".join((str(key), turn, str(since))).encode()).hexdigest()[:32]


def ends_text(id: str, key: Key, turn: str, since: int) -> bool:  # noqa: A002
    """Whether an assistant's message of that id ends this text.

    A message that another text has become does not. If two gateways ended that text, its second
    message may come after the next text has begun.
    """
    return _KEPT.fullmatch(id) is None or id == kept_id(key, turn, since)


async def ending_messages(log: Log, partition: int, texts: Mapping[Key, Text]) -> dict[Key, int]:
    """The offset of the last message (or erasure) that ends each of these texts, if there is one.

    Args:
        texts: texts in progress of conversations of this partition.

    Raises:
        KafkaUnavailable: the log cannot be read now.
    """
    names = {str(key).encode(): key for key in texts}
    found: dict[Key, int] = {}
    end = (await log.end_offsets())[partition]
    async for raw in log.scan(partition, min(text.since for text in texts.values()), end - 1):
        key = names.get(raw.key or b"")
        if key is None or raw.offset < texts[key].since:
            continue
        record = decode_record(raw, partition, key, log.seals)
        if record is None or (record.ends is None and not record.last):
            continue
        if record.last or ends_text(record.id, key, texts[key].turn, texts[key].since):
            found[key] = raw.offset
    return found
