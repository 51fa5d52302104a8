"""The receipt of an erasure: what each store holds of the conversation, and until when."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from projections.events.times import rfc3339
from projections.names import Key
from streams.encryption.key_table import Erasure
from streams.log.topics import topic_configs
from streams.settings.settings import Settings

Outcome = Literal["deleted", "opaque", "kept"]
CLEANER = timedelta(hours=1)
"""Added to ``max.compaction.lag.ms``, for the next segment to begin and the cleaner to run."""

SETTINGS_HOLD = 60.0
"""Seconds for which the settings of topics are used that were read."""


class Store(msgspec.Struct):
    """The result in one store. ``deadline`` (RFC 3339) is the latest time from which it is true;
    null: it is true now.
    """

    state: Outcome
    deadline: str | None
    how: str


class Receipt(msgspec.Struct):
    """An erasure: the position of its event, the time of its first request, and the result in the
    log and in each store.
    """

    conversation: str
    position: str
    erased_at: str
    log: Literal["opaque", "kept"]
    stores: dict[str, Store]


class Receipts:
    """Makes receipts. Their deadlines are those of the topics' settings, which are read again when
    they are :data:`SETTINGS_HOLD` seconds old: each reading connects to the brokers anew.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._reading = asyncio.Lock()
        self._read: tuple[float, dict[str, dict[str, str]]] | None = None

    async def of(self, key: Key, erasure: Erasure) -> Receipt:
        """The receipt of an erasure that is done.

        Raises:
            KafkaUnavailable: the settings cannot be read.
        """
        since = datetime.fromisoformat(erasure.done_at or erasure.erased_at)
        return Receipt(
            key.conversation,
            erasure.position or "",
            erasure.erased_at,
            erasure.log,
            _stores(erasure.log == "opaque", since, await self._configs()),
        )

    async def _configs(self) -> dict[str, dict[str, str]]:
        async with self._reading:
            if self._read is None or time.monotonic() - self._read[0] > SETTINGS_HOLD:
                names = ("keys", "renders", "compactions", "dead-letters")
                self._read = time.monotonic(), await topic_configs(self._settings, names)
            return self._read[1]


def _stores(opaque: bool, since: datetime, configs: dict[str, dict[str, str]]) -> dict[str, Store]:
    payloads: Outcome = "opaque" if opaque else "kept"
    sealed = "sealed with a key that is deleted"
    lag = _after(since, configs.get("keys", {}).get("max.compaction.lag.ms"), CLEANER)
    renders, compactions, letters = (
        _after(since, configs.get(name, {}).get("retention.ms"))
        for name in ("renders", "compactions", "dead-letters")
    )
    unsealed = "not sealed, or not all"
    until = "; until the topic's retention"
    return {
        "log": Store(
            payloads,
            None,
            f"payloads are {sealed if opaque else unsealed + ': the log is kept for ever'}",
        ),
        "keys": Store(
            "deleted",
            lag,
            "void at once; the broker drops the wrapped keys by then (max.compaction.lag.ms and its"
            " cleaner's run)",
        ),
        "windows": Store("deleted", None, "in all generations; they record only the erasure"),
        "snapshots": (
            Store("opaque", None, f"remaining records are {sealed}")
            if opaque
            else Store(
                "deleted",
                None,
                "overwritten by the worker; the broker drops the old ones when it compacts that"
                " partition next",
            )
        ),
        "summaries": Store(
            payloads,
            None,
            f"texts are {sealed}" if opaque else f"{unsealed}: the topic is kept for ever",
        ),
        "memories": Store(
            payloads,
            None,
            "records that nothing else taught leave every store; "
            + (
                f"the topic's payloads are {sealed}"
                if opaque
                else f"{unsealed}: the topic is kept for ever"
            ),
        ),
        "renders": (
            Store("opaque", renders, f"records are {sealed}")
            if opaque
            else Store("kept", renders, f"records hold digests, names and counts, no text{until}")
        ),
        "compactions": Store(
            "kept", compactions, f"requests hold positions and ids, no text{until}"
        ),
        "partials": Store("deleted", None, "text in progress"),
        "caches": Store(
            "deleted", None, "in each gateway as it reads the keys topic, within a second"
        ),
        "dead_letters": Store(
            "kept", letters, f"letters hold positions and causes, no text{until}"
        ),
    }


def _after(since: datetime, ms: str | None, more: timedelta = timedelta()) -> str | None:
    """The time ``ms`` and ``more`` later, None if there is no such limit."""
    if ms is None or not ms.isdecimal() or int(ms) > 10**15:
        return None
    return rfc3339(since + timedelta(milliseconds=int(ms)) + more, "milliseconds")
