"""Two policies side by side, on a bounded sample: windows as they are stored, and the same events
folded under other rules. Nothing is written, no model is called.

It takes seconds however long the log is. ``streams.rebuild.preview`` reads all of the log instead:
it counts more, and takes as long as the log is.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

from projections.events.types import SummaryEvent
from projections.fold.replay import replay
from projections.names import Key
from projections.policy.policy import Failures, Rules
from projections.render.differences import past_of, seen, spread, why_lost
from projections.storage.protocol import WindowStore
from projections.window.window import Window
from streams.control.generations import compared_generation
from streams.log.history import offsets_of, read_events
from streams.log.log import Log
from streams.rebuild.losses import Side
from streams.rebuild.report_rules import report_rules
from streams.recovery.callable_failures import failed_callables
from streams.settings.settings import Settings
from streams.stack import Stack, open_stack

MOST_CONVERSATIONS = 200
MOST_EVENTS = 20_000
"""Conversations and events of one sample: a few seconds of a core."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """What to compare with the live generation: one under ``policy`` (None: the live one's, with
    the policies of tenants that wait), or the generation ``number``; of all tenants, or of one.
    """

    policy: dict[str, Any] | None = None
    number: int | None = None
    tenant: str | None = None
    conversations: int = MOST_CONVERSATIONS
    events: int = MOST_EVENTS


@dataclass(slots=True)
class _Found:
    """What was looked at: conversations there are, those left out, what callables could not do, and
    a document for each that was compared.
    """

    known: int = 0
    too_long: int = 0
    events: int = 0
    costs: list[float] = field(default_factory=list)
    failures: Failures = field(default_factory=dict)
    windows: list[dict[str, Any]] = field(default_factory=list)


def compare_sample(settings: Settings, wanted: Wanted) -> dict[str, Any]:
    """:func:`compared` in a process of its own, which connects to the deployment by itself; raises
    what ``open_stack`` does, too.

    Raises:
        InvalidPolicy: the policy does not hold.
        UnknownGeneration: no generation has that number.
    """
    return asyncio.run(_opened(settings, wanted))


async def _opened(settings: Settings, wanted: Wanted) -> dict[str, Any]:
    async with open_stack(settings) as stack:
        sides = sides_of(stack, wanted.policy, wanted.number)
        return await compared(stack.log, stack.store, *sides, wanted)


def sides_of(stack: Stack, policy: dict[str, Any] | None, number: int | None) -> tuple[Side, Rules]:
    """The live generation, and the rules of the other: under ``policy``, or of the generation
    ``number``. Raises InvalidPolicy, UnusablePolicy, UnknownGeneration.
    """
    state, live = stack.control.state, stack.generation
    other = compared_generation(state, policy, number)
    return Side(live.number, state.rules(live)), state.rules(other)


async def compared(
    log: Log, store: WindowStore, live: Side, after: Rules, wanted: Wanted
) -> dict[str, Any]:
    """What other rules would make of the sample, as a document for JSON: totals, and ``windows``,
    one for each conversation, those that would lose something first. No text is in it.

    Conversations are chosen by their names' hashes: the same ones every time. One that has more
    events than are left of the sample's is ``too_long``. Tenants whose policy cannot be used are
    left out.

    Raises:
        UnusablePolicy: the policy of the tenant that is asked for.
        CorruptWindow, Healing, RedisUnavailable: a live window cannot be read now.
        KafkaUnavailable, KeyUnusable: as named.
    """
    found = _Found()
    # A render with `exact` cuts calls the live policy's callables, too.
    here, after = report_rules(live.rules, found.failures), report_rules(after, found.failures)
    if wanted.tenant is not None:
        for rules in (here, after):
            rules.check_usable(wanted.tenant)
    begins = await log.beginning_offsets()
    unusable = here.unusable.keys() | after.unusable.keys()
    for partition, key in await _chosen(log, store, live, wanted, found, unusable):
        _, (stored,) = await store.reader.read(live.number, partition, [key])
        if stored is None:
            continue
        before = stored.load(key, partition, here)
        if before.meta.erased:
            continue
        offsets = await offsets_of(log, before, most=wanted.events - found.events)
        if offsets is None:
            found.too_long += 1
            continue
        events = await read_events(log, key, partition, offsets)
        found.events += len(events)
        found.costs += [
            event.data.cost
            for _, event in events
            if isinstance(event, SummaryEvent) and event.data.cost is not None
        ]
        window = replay(key, partition, after, events)
        found.windows.append(_pair(key, before, window, len(events), begins[partition]))
    return _document(live.number, found)


async def _chosen(
    log: Log,
    store: WindowStore,
    live: Side,
    wanted: Wanted,
    found: _Found,
    without: Collection[str],
) -> list[tuple[int, Key]]:
    """The conversations of the sample, each with its partition; none of tenants ``without``."""
    least: list[tuple[bytes, int, Key]] = []
    for partition in range(log.partitions):
        names = await store.conversations(live.number, partition)
        mine = [
            key
            for key in names
            if wanted.tenant in (None, key.tenant) and key.tenant not in without
        ]
        found.known += len(mine)
        placed = ((_place(key), partition, key) for key in mine)
        least = heapq.nsmallest(wanted.conversations, [*least, *placed])
    return [(partition, key) for _, partition, key in least]


def _place(key: Key) -> bytes:
    return blake2b(str(key).encode(), digest_size=8).digest()


def _pair(key: Key, before: Window, after: Window, events: int, begin: int) -> dict[str, Any]:
    looks = {"before": seen(before), "after": seen(after)}
    return {
        "tenant": key.tenant,
        "conversation": key.conversation,
        "events": events,
        "tokens": {side: look.tokens for side, look in looks.items()},
        "messages": {side: len(look.bodies) for side, look in looks.items()},
        "left_out": {side: look.left_out for side, look in looks.items()},
        "summary": {side: look.summary is not None for side, look in looks.items()},
        "due": {side: look.due for side, look in looks.items()},
        "lost": why_lost(past_of(before), after, begin),
    }


def _document(live: int, found: _Found) -> dict[str, Any]:
    windows = sorted(found.windows, key=_weight)

    def totals(name: str) -> dict[str, int]:
        return {side: sum(one[name][side] for one in windows) for side in ("before", "after")}

    tokens = {
        side: [one["tokens"][side] for one in windows if one["tokens"][side] is not None]
        for side in ("before", "after")
    }
    return {
        "generation": live,
        "conversations": {
            "known": found.known,
            "compared": len(windows),
            "too_long": found.too_long,
        },
        "events": found.events,
        "tokens": {side: spread(counts) for side, counts in tokens.items()},
        "messages": totals("messages"),
        "does_not_fit": {side: len(windows) - len(counts) for side, counts in tokens.items()},
        "left_out": totals("left_out"),
        "summaries": totals("summary"),
        "due": totals("due"),
        "cost_of_a_summary": sum(found.costs) / len(found.costs) if found.costs else None,
        "lost": sum(one["lost"] is not None for one in windows),
        "callable_failures": [asdict(one) for one in failed_callables(found.failures)],
        "windows": windows,
    }


def _weight(window: Mapping[str, Any]) -> tuple[bool, int, str]:
    """Losses first, then the largest changes."""
    before, after = (window["tokens"][side] or 0 for side in ("before", "after"))
    return (
        window["lost"] is None,
        -abs(after - before),
        f"{window['tenant']}/{window['conversation']}",
    )
