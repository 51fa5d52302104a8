"""One conversation under two policies, message by message: its window as it is stored beside what
the same events give under other rules. Nothing is written, no model is called.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Any

from projections.errors import InvalidRequest, UnknownConversation
from projections.fold.replay import replay
from projections.names import Key, make_key, partition_of
from projections.policy.policy import Failures, Rules
from projections.render.differences import past_of, text_of, why_lost
from projections.render.fit_to_limit import DoesNotFit
from projections.render.inspection import Inspected, inspect
from projections.storage.protocol import WindowStore
from projections.window.window import Window
from streams.log.history import offsets_of, read_events
from streams.log.log import Log
from streams.rebuild.losses import Side
from streams.rebuild.report_rules import report_rules
from streams.rebuild.sample import MOST_EVENTS, sides_of
from streams.recovery.callable_failures import check_shown
from streams.settings.settings import Settings
from streams.stack import open_stack

MOST_ROWS = 1_000
"""Rows that are shown: the newest ones of longer windows."""
MOST_CHARS = 500
"""Characters that are shown of a message."""
Item = dict[str, Any]
SIDES = ("before", "after")


@dataclass(frozen=True, slots=True)
class WantedWindow:
    """Which conversation, and what to compare with the live generation, as
    :class:`streams.rebuild.sample.Wanted` says. Without ``text`` nobody sees what was said.
    """

    tenant: str
    conversation: str
    policy: dict[str, Any] | None = None
    number: int | None = None
    text: bool = False
    events: int = MOST_EVENTS


def compare_window(settings: Settings, wanted: WantedWindow) -> dict[str, Any]:
    """:func:`side_by_side` in a process of its own, which connects to the deployment by itself;
    raises what ``open_stack`` does, too.

    Raises:
        InvalidPolicy: the policy does not hold.
        UnknownGeneration: no generation has that number.
    """
    return asyncio.run(_opened(settings, wanted))


async def _opened(settings: Settings, wanted: WantedWindow) -> dict[str, Any]:
    async with open_stack(settings) as stack:
        sides = sides_of(stack, wanted.policy, wanted.number)
        return await side_by_side(stack.log, stack.store, *sides, wanted)


async def side_by_side(
    log: Log, store: WindowStore, live: Side, after: Rules, wanted: WantedWindow
) -> dict[str, Any]:
    """The two windows of a conversation as a document for JSON. ``rows`` pair their messages: those
    of one event stand in one row, and ``differs`` marks rows whose sides a model is sent otherwise,
    or on one side alone. Of a window that cannot be rendered the tokens are null.

    Raises:
        UnknownConversation: it has no window, or was erased.
        InvalidRequest: it has more events than may be folded.
        CallableUnavailable: a callable of one of the policies is missing here, or failed.
        UnusablePolicy: its tenant's policy.
        CorruptWindow, Healing, RedisUnavailable: the live window cannot be read now.
        KafkaUnavailable, KeyUnusable: as named.
    """
    key = make_key(wanted.tenant, wanted.conversation)
    for rules in (live.rules, after):
        rules.check_usable(key.tenant)
    partition = partition_of(key, log.partitions)
    failures: Failures = {}
    _, (stored,) = await store.reader.read(live.number, partition, [key])
    before = (
        None if stored is None else stored.load(key, partition, report_rules(live.rules, failures))
    )
    if before is None or before.meta.erased:
        raise UnknownConversation(f"conversation {key} is not known")
    offsets = await offsets_of(log, before, most=wanted.events)
    if offsets is None:
        raise InvalidRequest(
            f"conversation {key} has more than {wanted.events} events: too many to fold here"
        )
    events = await read_events(log, key, partition, offsets)
    window = replay(key, partition, report_rules(after, failures), events)
    begin = (await log.beginning_offsets()).get(partition, 0)
    looks = _look(before), _look(window)
    check_shown(failures, key)
    rows = list(_rows(*(_items(look) for look in looks)))
    shown = [_shown(row, text=wanted.text) for row in rows[-MOST_ROWS:]]
    return {
        "generation": live.number,
        **_named(key),
        "events": len(events),
        "text": wanted.text,
        "tokens": {
            side: None if look is None else look.render.tokens
            for side, look in zip(SIDES, looks, strict=True)
        },
        "lost": why_lost(past_of(before), window, begin),
        "differing": sum(row["differs"] for row in rows),
        "more": len(rows) - len(shown),
        "rows": shown,
    }


def _named(key: Key) -> dict[str, str]:
    return {"tenant": key.tenant, "conversation": key.conversation}


def _look(window: Window) -> Inspected | None:
    try:
        return inspect(window)
    except DoesNotFit:
        return None


def _items(look: Inspected | None) -> list[Item]:
    return [] if look is None else look.items


def _rows(before: Sequence[Item], after: Sequence[Item]) -> Iterator[Item]:
    """The messages of both sides in their order, those of one event in one row."""
    names = _names(before), _names(after)
    for kind, a, b, c, d in SequenceMatcher(None, *names, autojunk=False).get_opcodes():
        if kind == "equal":
            for old, new in zip(before[a:b], after[c:d], strict=True):
                yield {"before": old, "after": new, "differs": old["message"] != new["message"]}
        else:
            for old in before[a:b]:
                yield {"before": old, "after": None, "differs": True}
            for new in after[c:d]:
                yield {"before": None, "after": new, "differs": True}


def _names(items: Sequence[Item]) -> list[tuple[str, int]]:
    """What pairs messages: their event, and the how many-th they are of it; of no event, their
    place.
    """
    seen = Counter[str]()
    found = []
    for item in items:
        name = item["position"] or item["lane"]
        found.append((name, seen[name]))
        seen[name] += 1
    return found


def _shown(row: Item, *, text: bool) -> Item:
    return {**row, **{side: row[side] and _message(row[side], text=text) for side in SIDES}}


def _message(item: Item, *, text: bool) -> Item:
    message = item["message"]
    calls = [call.get("function", {}) for call in message.get("tool_calls") or ()]
    said = " ".join(
        [
            text_of(message.get("content")),
            *(f"[calls {call.get('name')} {call.get('arguments')}]" for call in calls),
        ]
    ).strip()
    return {
        "lane": item["lane"],
        "role": message["role"],
        "tokens": item["tokens"],
        "position": item["position"],
        "shortened": [one["reducer"] for one in item.get("shortened", ())],
        "text": (said if len(said) <= MOST_CHARS else f"{said[: MOST_CHARS - 1]}…")
        if text
        else None,
    }
