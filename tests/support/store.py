"""Writes and checkpoints for tests of a store of windows."""

from __future__ import annotations

import itertools
from typing import Any

from projections.fold.timers import KEEP_TIMER
from projections.names import Key
from projections.storage.protocol import WindowStore
from projections.storage.records import (
    NOTHING,
    Checkpoint,
    DueChange,
    Verdict,
    Write,
)

generations = itertools.count(1)
A, B = Key("acme", "a"), Key("acme", "b")


def write(
    key: Key = A, *, due: DueChange = DueChange.KEEP, timer: int | None = KEEP_TIMER, **changes: Any
) -> Write:
    """A write of fields given by name; ``put`` and ``id_blocks`` are dictionaries, ``gone`` and
    ``forget`` lists.
    """
    put = {b"h": changes.get("meta", b"meta"), **changes.get("put", {})}
    id_blocks = list(changes.get("id_blocks", {}).items())
    reset, gone, forget = (
        changes.get("reset", False),
        changes.get("gone", []),
        changes.get("forget", []),
    )
    return Write(key, reset, list(put.items()), gone, id_blocks, forget, due, NOTHING, timer)


def at(revision: str, offset: int, digest: str = "", target: int = -1) -> Checkpoint:
    return Checkpoint(revision, offset, 1_000 + offset, digest or f"digest{offset}", target)


async def begin(store: WindowStore, generation: int, *writes: Write) -> str:
    """The first write of a partition; returns the revision."""
    answer = await store.apply(generation, 0, at("", 0), list(writes))
    assert answer.verdict is Verdict.APPLIED
    return answer.revision


async def fields_of(store: WindowStore, generation: int, key: Key = A) -> dict[bytes, bytes]:
    """The window's fields but the head."""
    stored = (await store.read(generation, 0, [key]))[1][0]
    assert stored is not None
    return {name: value for name, value in stored.fields.items() if name != b"h"}
