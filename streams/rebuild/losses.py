"""What a switch would lose: conversations whose live window is of events that the other
generation's is not of, has a summary of what that neither summarises nor shows, or pins what that
does not.

All stored windows are compared. Of most only is read of how many events they are, how far their
summaries reach, and what left the tail pinned; where that is less in the new one, or its pinned
lane may be shorter, the windows are read whole.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

from projections.errors import CorruptWindow
from projections.names import Key
from projections.policy.key_bounds import PINNED_KEYS
from projections.policy.limits import ALLOW, MAXIMA
from projections.policy.policy import Rules
from projections.render.differences import (
    Past,
    covers,
    past_of,
    pinned_of,
    results_of,
    why_lost,
)
from projections.storage.layout import BASE, HEAD, Base, Head, decode_base, decode_head
from projections.storage.protocol import WindowStore
from projections.storage.records import Checkpoint, stored_form
from projections.storage.stubs import STUB, Stub, decode_stub
from projections.window.window import Window
from streams.control.generations import live_heals, whole

GROUP = 100
"""Conversations that are looked at side by side."""
PATIENCE = 60.0
PAUSE = 0.2
"""Seconds to wait for a live partition of which a conversation is being restored, and between two
looks.
"""
CHANGES = "it changes while it is compared"
LATE = "a rollback of its partition is still being restored"
UNREADABLE = "one of its windows cannot be read"
UNKNOWN = (CHANGES, LATE, UNREADABLE)
"""Of these nothing is known."""


class _Suspect(NamedTuple):
    """What a live window holds, up to which offset windows of its partition are folded, and whether
    one of them is being restored: then it may be this one, with a summary that is undone.
    """

    past: Past
    place: int
    restoring: bool


class Side(NamedTuple):
    """A generation: its number and its rules."""

    number: int
    rules: Rules


async def find_losses(
    store: WindowStore,
    live: Side,
    other: Side,
    begins: Mapping[int, int],
    catch_up: Callable[[], Awaitable[None]],
) -> dict[Key, str]:
    """The conversations that a switch from ``live`` to ``other`` would make forget something, and
    why.

    Args:
        begins: for each partition the offset of its log's first record.
        catch_up: folds ``other`` up to where ``live`` is. What is suspected is judged after it, so
            that a summary of this very moment is not taken for a lost one.

    Raises:
        Healing: a live partition does not hold all that readers have seen.
        RedisUnavailable: as named.
    """
    suspects: dict[tuple[int, Key], _Suspect] = {}
    losses: dict[Key, str] = {}

    async def look(partition: int, key: Key) -> _Suspect | None:
        try:
            return await _suspect(store, live, other, partition, key, begins[partition])
        except CorruptWindow:
            losses[key] = UNREADABLE
            return None

    for partition in sorted(begins):
        await whole(store, live.number, partition)
        keys = sorted(await store.conversations(live.number, partition))
        for i in range(0, len(keys), GROUP):
            group = keys[i : i + GROUP]
            found = await asyncio.gather(*(look(partition, k) for k in group))
            for key, suspect in zip(group, found, strict=True):
                if suspect is not None:
                    suspects[partition, key] = suspect
    end, judged = time.monotonic() + PATIENCE, set[tuple[int, Key]]()
    while suspects:
        lost = await _judge(store, other, suspects, begins, catch_up, end)
        again: dict[tuple[int, Key], _Suspect] = {}
        for place, why in lost.items():
            now = await look(*place)
            if now is None:
                continue  # a rollback took the live summary meanwhile, too
            then = suspects[place].past
            stands = (
                not now.restoring
                and now.past.reach >= then.reach
                and now.past.lane.keys() >= then.lane.keys()
                and now.past.pinned.keys() >= then.pinned.keys()
            )
            # Where more came meanwhile it is judged twice: the summary may be another one by now,
            # which the other generation takes, too.
            certain = now.place == suspects[place].place or place in judged
            if (stands and certain) or time.monotonic() > end:
                losses[place[1]] = CHANGES if not stands and why not in UNKNOWN else why
            else:
                again[place] = now
        suspects, judged = again, set(lost)
        await asyncio.sleep(PAUSE if suspects else 0)
    for partition in begins:
        await whole(store, live.number, partition)  # as it was when its windows were listed
    return losses


async def _judge(
    store: WindowStore,
    other: Side,
    suspects: Mapping[tuple[int, Key], _Suspect],
    begins: Mapping[int, int],
    catch_up: Callable[[], Awaitable[None]],
    end: float,
) -> dict[tuple[int, Key], str]:
    """Of the suspects those that lack what the live windows held when they were looked at, and
    why. ``end`` is when to wait no longer, of ``time.monotonic``.
    """
    places: dict[int, int] = {}
    for (partition, _), suspect in suspects.items():
        places[partition] = max(places.get(partition, -1), suspect.place)
    late = await _caught_up(store, other.number, places, catch_up, end)
    lost: dict[tuple[int, Key], str] = {}
    for (partition, key), suspect in suspects.items():
        if partition in late:
            lost[partition, key] = LATE
            continue
        try:
            window = await _window(store, other, partition, key)
            why = why_lost(suspect.past, window, begins[partition])
        except CorruptWindow:
            why = UNREADABLE
        if why:
            lost[partition, key] = why
    return lost


async def _caught_up(
    store: WindowStore,
    generation: int,
    places: Mapping[int, int],
    catch_up: Callable[[], Awaitable[None]],
    end: float,
) -> set[int]:
    """Have a generation folded up to an offset of each partition; returns the partitions in which
    that offset is not reached.

    It is folded up to the live checkpoints. While a conversation is being restored, other windows
    of its partition are ahead of that: one more round is needed then.
    """
    while True:
        await catch_up()
        late = set()
        for partition, place in places.items():
            checkpoint = await store.checkpoint(generation, partition)
            if checkpoint is None or checkpoint.offset < place:
                late.add(partition)
        if not late or time.monotonic() > end:
            return late
        await asyncio.sleep(PAUSE)


async def _suspect(
    store: WindowStore, live: Side, other: Side, partition: int, key: Key, begin: int
) -> _Suspect | None:
    """The past that the live window holds, where the other one is of fewer events, or its summary
    reaches less far, or both look alike without their recent ids: where the log's beginning
    (up to ``begin``) is lost, a parked window may be of other events, not of more.
    """
    (checkpoint, old), (_, new) = await asyncio.gather(
        *(store.fields(side.number, partition, key, [HEAD, BASE, STUB]) for side in (live, other))
    )
    checkpoint = checkpoint or Checkpoint()
    if not checkpoint.whole:
        raise live_heals(live.number, partition, checkpoint)
    partition_is = checkpoint.latest, checkpoint.restoring
    with stored_form(key):
        folded = (decode_head(new[HEAD]), decode_base(new[BASE])) if HEAD in new else None
        cut = folded is not None and _may_be_cut(live, other, key, *folded)
        if HEAD in old:
            mine, base = decode_head(old[HEAD]), decode_base(old[BASE])
            lane, results = pinned_of(base.state), results_of(base.state)
            past = Past(_reach(base), mine.events, lane, {}, results)
            alike = begin <= 0 or mine.quarantine is None
            if mine.erased or (folded is not None and not cut and alike and _holds(*folded, past)):
                return None
            if not cut and begin <= 0:
                return _Suspect(past, *partition_is)
        else:
            if STUB not in old:
                return None
            stub = decode_stub(old[STUB])
            if folded is not None and not cut and _holds_all(folded[0], stub):
                return None
    window = await _window(store, live, partition, key)
    return None if window.meta.erased else _Suspect(past_of(window), *partition_is)


def _holds(head: Head, base: Base, past: Past) -> bool:
    """Whether a window holds a past, as far as it can be seen without its tail."""
    return (
        past.reach <= _reach(base)
        and past.events <= head.events
        and covers(pinned_of(base.state), past.lane)
    )


def _may_be_cut(live: Side, other: Side, key: Key, head: Head, base: Base) -> bool:
    """Whether a window's pinned lane may be cut where that of the live one is not: other rules
    bound it, and not all stands as it came, or may once it has left the tail.
    """
    if _bounds(live.rules, key.tenant) == _bounds(other.rules, key.tenant):
        return False
    state, header = base.state, head.read_header
    if not header.flat or any(state.pins_lost) or any(state.pinned_lost):
        return True
    then, now = (side.rules.for_window(key.tenant, None).pinned_limit for side in (other, live))
    return then < min(header.tokens, now)


def _bounds(rules: Rules, tenant: str) -> list[object]:
    """What decides, beside a conversation's own policy, how much it may pin. That policy may still
    be in the tail, which is not read here. So what tells whether it holds is compared, too.
    """
    own = [rules.deployment.get(name) for name in (*PINNED_KEYS, ALLOW, MAXIMA)]
    return [*own, rules.tenants.get(tenant), tenant in rules.unusable]


def _holds_all(head: Head, asleep: Stub) -> bool:
    """Whether a window took every summary that a sleeping one took, and that one pins no results:
    the call of one may have left this window before the result came.
    """
    took = head.read_header.omitted is None and head.count >= asleep.count
    return head.erased or (took and asleep.pins is False)


def _reach(base: Base) -> int:
    return -1 if base.summary is None else base.summary.to


async def _window(store: WindowStore, side: Side, partition: int, key: Key) -> Window:
    _, (stored,) = await store.reader.read(side.number, partition, [key])
    if stored is None:
        return Window(key, partition, side.rules)
    return stored.load(key, partition, side.rules)
