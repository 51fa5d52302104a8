"""What two memory stores have differently, record by record: what a switch would change."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import AsyncExitStack, closing
from pathlib import Path
from typing import Any, Literal, NamedTuple

import msgspec

from projections.memory.identity import Scope
from projections.memory.resolution import Record
from streams.encryption.payload_cipher import PayloadCipher
from streams.memory.erasures import Erased, erased_by
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store import Filter, MemoryStore
from streams.memory.store_build import Progress, compare, copy_of, feed_until, live_copy
from streams.runtime.steps import at_once
from streams.settings.settings import Settings

KINDS = ("record", "composite", "skill")


class Difference(NamedTuple):
    """A record that one store lacks (``before`` or ``after`` is None) or that differs."""

    before: Record | None
    after: Record | None

    @property
    def how(self) -> Literal["added", "removed", "changed"]:
        """What becomes of the record."""
        if self.before is None:
            return "added"
        return "removed" if self.after is None else "changed"

    def fields(self, names: Collection[str] | None = None) -> dict[str, list[Any]]:
        """The fields that differ, of these or of all, as ``[before, after]``."""
        if self.before is None or self.after is None:
            return {}
        one, other = self.before.document(), self.after.document()
        return {
            name: [one.get(name), other.get(name)]
            for name in sorted(one.keys() | other.keys())
            if one.get(name) != other.get(name) and (names is None or name in names)
        }

    def document(self) -> dict[str, Any]:
        """The difference as it is printed: whose record it is, its text, and fields that differ as
        ``[before, after]``.
        """
        record = self.after or self.before
        assert record is not None
        found = {
            "difference": self.how,
            "id": record.id,
            **{name: value for name, value in record.scope._asdict().items() if value is not None},
            "kind": record.kind,
            "type": record.type,
            "text": record.text,
        }
        if fields := self.fields():
            found["fields"] = fields
        return found


def differences(
    before: MemoryStore,
    after: MemoryStore,
    tenant: str | None = None,
    erased: Erased = None,
) -> list[Difference]:
    """What two stores have differently, scope by scope, without what ``erased`` logs say; scopes of
    equal digests are passed over.
    """
    found: list[Difference] = []
    for scope in compare(before.digests(), after.digests(), tenant).differing:
        one, other = _records(before, scope, erased), _records(after, scope, erased)
        found += [
            Difference(one.get(memory_id), other.get(memory_id))
            for memory_id in sorted(one.keys() | other.keys())
            if msgspec.to_builtins(one.get(memory_id)) != msgspec.to_builtins(other.get(memory_id))
        ]
    return found


TAUGHT = ("kind", "type", "text", "trust", "topic", "entities", "tags", "temporal")
"""What an extraction says of a record; the rest follows from when and how often."""


def extraction_differences(
    before: MemoryStore,
    after: MemoryStore,
    tenant: str | None = None,
    conversations: Collection[str] | None = None,
    erased: Erased = None,
) -> list[Difference]:
    """What two extractions of the same logs found differently, of all conversations or of these:
    records of either that nobody saved explicitly, compared by what they say, without what
    ``erased`` logs say.
    """
    found: list[Difference] = []
    for scope in compare(before.digests(), after.digests(), tenant).differing:
        one, other = (
            {
                name: record
                for name, record in _records(store, scope, erased).items()
                if _is_extracted(record)
                and (conversations is None or record.conversation in conversations)
            }
            for store in (before, after)
        )
        for memory_id in sorted(one.keys() | other.keys()):
            pair = Difference(one.get(memory_id), other.get(memory_id))
            if pair.how != "changed" or pair.fields(TAUGHT):
                found.append(pair)
    return found


def _is_extracted(record: Record) -> bool:
    return record.origin != "explicit" and record.kind == "record" and record.stands


def _records(store: MemoryStore, scope: Scope, erased: Erased) -> dict[str, Record]:
    only = Filter(scope.tenant, scope.user, scope.channel, kinds=KINDS, expired=True, erased=erased)
    return {one.id: one for one in at_once(store.page(only, None, 1 << 62)) if one.scope == scope}


async def differing_records(
    settings: Settings,
    seals: PayloadCipher,
    before: Path | None,
    after: Path | None,
    tenant: str | None = None,
    progress: Progress | None = None,
) -> list[Difference]:
    """What two stores have differently: ``before`` is a file or the live store, ``after`` a file or
    a fresh store that is fed from the topic up to where ``before`` is.

    Raises:
        InvalidSettings: no folder of stores is named, or it has none.
        KafkaUnavailable: the topic cannot be read.
    """
    async with AsyncExitStack() as opened:
        if before is None:
            one: MemoryStore = await opened.enter_async_context(live_copy(settings))
        else:
            one = opened.enter_context(closing(await copy_of(before)))
        if after is not None:
            other = opened.enter_context(closing(await copy_of(after)))
        else:
            other = opened.enter_context(closing(SqliteMemories()))
            until = {partition: at + 1 for partition, at in one.checkpoints().items()}
            await feed_until(settings, seals, other, until, progress)
        return await asyncio.to_thread(differences, one, other, tenant, erased_by(seals))
