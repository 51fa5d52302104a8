"""What a switch would lose: conversations whose live window has a summary of what the other
generation's window neither summarises nor shows.

All stored windows are compared. Of most only is read how far their summaries reach; where the new
one reaches less far, the windows are read whole.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from projections.names import Key
from projections.policy.policy import Rules
from projections.render.differences import Past, past_of, why_lost
from projections.storage.layout import BASE, HEAD, Head, decode_base, decode_head
from projections.storage.protocol import WindowStore
from projections.storage.records import stored_form
from projections.storage.stubs import STUB, decode_stub
from projections.window.window import Window

GROUP = 100
"""Conversations that are looked at side by side."""
Fields = Mapping[bytes, bytes]


class Side(NamedTuple):
    """A generation: its number and its rules."""

    number: int
    rules: Rules


async def find_losses(
    store: WindowStore,
    live: Side,
    other: Side,
    partitions: int,
    catch_up: Callable[[], Awaitable[None]],
) -> dict[Key, str]:
    """The conversations that a switch from ``live`` to ``other`` would make forget something, and
    why.

    Args:
        catch_up: folds ``other`` up to where ``live`` is. What is suspected is judged after it, so
            that a summary of this very moment is not taken for a lost one.

    Raises:
        CorruptWindow: a stored window cannot be read.
        RedisUnavailable: as named.
    """
    suspects: dict[tuple[int, Key], Past] = {}
    for partition in range(partitions):
        keys = sorted(await store.conversations(live.number, partition))
        for i in range(0, len(keys), GROUP):
            group = keys[i : i + GROUP]
            found = await asyncio.gather(
                *(_suspect(store, live, other, partition, k) for k in group)
            )
            suspects |= {
                (partition, key): past
                for key, past in zip(group, found, strict=True)
                if past is not None
            }
    if not suspects:
        return {}
    await catch_up()
    losses: dict[Key, str] = {}
    for (partition, key), past in suspects.items():
        why = why_lost(past, await _window(store, other, partition, key))
        if why is not None:
            losses[key] = why
    return losses


async def _suspect(
    store: WindowStore, live: Side, other: Side, partition: int, key: Key
) -> Past | None:
    """The past that the live window holds, where the other one's summary reaches less far."""
    (_, old), (_, new) = await asyncio.gather(
        *(store.fields(side.number, partition, key, [HEAD, BASE, STUB]) for side in (live, other))
    )
    with stored_form(key):
        head = decode_head(new[HEAD]) if HEAD in new else None
        if HEAD in old:
            mine = decode_head(old[HEAD])
            reach = _reach(old)
            if mine.erased or reach <= (-1 if head is None else _reach(new)):
                return None
            return Past(reach, mine.count + mine.skipped)
        asleep = old.get(STUB)
        if asleep is None or (head is not None and _holds_all(head, decode_stub(asleep).count)):
            return None
    window = await _window(store, live, partition, key)
    return None if window.meta.erased else past_of(window)


def _holds_all(head: Head, count: int) -> bool:
    """Whether a window took every summary that a sleeping one of ``count`` events took."""
    return head.erased or (head.read_header.omitted is None and head.count >= count)


def _reach(fields: Fields) -> int:
    summary = decode_base(fields[BASE]).summary
    return -1 if summary is None else summary.to


async def _window(store: WindowStore, side: Side, partition: int, key: Key) -> Window:
    _, (stored,) = await store.reader.read(side.number, partition, [key])
    if stored is None:
        return Window(key, partition, side.rules)
    return stored.load(key, partition, side.rules)
