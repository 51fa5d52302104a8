"""What ends a text in progress: an assistant's message in the log, a rollback to before it began,
or an erasure.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping
from hashlib import sha256
from typing import NamedTuple

from projections.errors import InvalidPosition
from projections.fold.apply import id_hash_of
from projections.names import Key, parse_position
from projections.window.recent_ids import RecentIds
from streams.log.log import Log
from threadfold.streaming.decoding import decode_record
from threadfold.streaming.partial_store import Text
from threadfold.streaming.windows import Windows

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


class Ending(NamedTuple):
    """What ended a text, and whether it is a rollback to before its beginning."""

    offset: int
    rollback: bool = False


class Rollback(NamedTuple):
    """A rollback in the log; ``to`` is what it names as its target."""

    offset: int
    id: str
    to: str

    def goes_before(self, since: int, ids: RecentIds) -> bool:
        """Whether it was accepted and goes to before an offset, by the last ids that the window
        has; what those do not know passes for accepted, and old.
        """
        itself = ids.find(id_hash_of(self.id))
        if itself is not None and (itself.rejected or itself.offset != self.offset):
            return False
        try:
            return parse_position(self.to).offset < since
        except InvalidPosition:
            named = ids.find(id_hash_of(self.to))
            return named is None or named.offset < since


async def ending_events(
    log: Log, windows: Windows, partition: int, texts: Mapping[Key, Text]
) -> dict[Key, Ending]:
    """What has ended each of these texts, if anything has: the last message (or erasure) that ends
    it, or a rollback before all of them.

    Args:
        texts: texts in progress of conversations of this partition.

    Raises:
        KafkaUnavailable: the log cannot be read now.
    """
    names = {str(key).encode(): key for key in texts}
    found: dict[Key, Ending] = {}
    rollbacks: dict[Key, list[Rollback]] = {}
    end = (await log.end_offsets())[partition]
    async for raw in log.scan(partition, min(text.since for text in texts.values()), end - 1):
        key = names.get(raw.key or b"")
        if key is None or raw.offset < texts[key].since:
            continue
        record = decode_record(raw, partition, key, log.seals)
        if record is None:
            continue
        if record.back_to is not None and key not in found:
            rollback = Rollback(raw.offset, record.id, record.back_to)
            rollbacks.setdefault(key, []).append(rollback)
        elif record.last or (
            record.ends is not None and ends_text(record.id, key, texts[key].turn, texts[key].since)
        ):
            found[key] = Ending(raw.offset)
    lasts = [windows.recent_ids(key, seen[-1].offset) for key, seen in rollbacks.items()]
    for (key, seen), ids in zip(rollbacks.items(), await asyncio.gather(*lasts), strict=True):
        for rollback in seen:
            if rollback.goes_before(texts[key].since, ids):
                found[key] = Ending(rollback.offset, rollback=True)
                break
    return found
