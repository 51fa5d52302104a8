"""What another policy would change: a sample of conversations is folded from the log under both, in
memory, and compared.

One pass over the log, whatever its length, with as many windows in memory as conversations are
compared. Nothing is written, no model is called. The windows are those a rebuild would store: it is
the same fold.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from typing import Any

import msgspec

from projections.events.types import AnyEvent, Summary, SummaryEvent
from projections.fold.apply import Status, apply
from projections.names import Key, parse_key
from projections.policy.policy import Failures, Rules
from projections.render.differences import (
    Seen,
    diff_lines,
    difference,
    past_of,
    seen,
    spread,
    why_lost,
    why_unpinned,
)
from projections.window.window import Window
from streams.control.control_topic import Control
from streams.log.history import event_of
from streams.log.log import Log, Row
from streams.log.rollback_cache import RollbackCache
from streams.rebuild.report_rules import report_rules
from streams.recovery.callable_failures import failed_callables

SAMPLE = 1_000
"""Conversations compared by default."""
EXAMPLES = 3
CACHE_BYTES = 128 << 20
_HASHES = 1 << 64
NOTES = (
    "tokens count each compared conversation's context once, as it would be rendered now. The"
    " report does not know how often a context is read",
    "summaries are events of the log. The fold accepts or refuses each under either policy."
    " Summaries that the other policy would have requested in the past do not exist. Their"
    " conversations are shown without them, and as due",
)


@dataclass(slots=True)
class _Side:
    """One conversation under one policy."""

    window: Window
    accepted: dict[str, Summary] = field(default_factory=dict)
    refused: dict[str, str] = field(default_factory=dict)
    """The reason for each summary that was refused."""


@dataclass(slots=True)
class _Pair:
    before: _Side
    after: _Side
    events: int = 0


@dataclass(slots=True)
class _Room:
    """What summaries stand for that would fit verbatim."""

    conversations: int = 0
    events: int = 0
    tokens: int = 0


@dataclass(slots=True)
class _Totals:
    """What is added up over the compared conversations."""

    compared: int = 0
    erased: int = 0
    windows: int = 0
    renders: int = 0
    tokens: tuple[list[int], list[int]] = field(default_factory=lambda: ([], []))
    unfit: list[int] = field(default_factory=lambda: [0, 0])
    due: list[int] = field(default_factory=lambda: [0, 0])
    active: list[int] = field(default_factory=lambda: [0, 0])
    accepted: list[int] = field(default_factory=lambda: [0, 0])
    refused: int = 0
    refusals: Counter[str] = field(default_factory=Counter)
    only_after: int = 0
    lost: list[dict[str, str]] = field(default_factory=list)
    cut: int = 0
    left_out: list[int] = field(default_factory=lambda: [0, 0])
    leaving_out: list[int] = field(default_factory=lambda: [0, 0])
    room: _Room = field(default_factory=lambda: _Room())
    examples: list[dict[str, Any]] = field(default_factory=list)


class Preview:
    """Folds and compares; ask for :meth:`document` once :meth:`run` is done."""

    def __init__(
        self,
        control: Control,
        log: Log,
        before: Rules,
        after: Rules,
        *,
        sample: int = SAMPLE,
        examples: int = EXAMPLES,
        seed: str = "",
    ) -> None:
        """Args: ``sample`` conversations at most are compared, chosen by their names' hashes;
        another ``seed`` gives others.
        """
        self._log = RollbackCache(log, CACHE_BYTES)
        self._failures: Failures = {}
        self._rules = report_rules(before, self._failures), report_rules(after, self._failures)
        self._learn: tuple[Callable[[str], Awaitable[None]], ...] = tuple(
            control.learner(rules) for rules in self._rules
        )
        self._sample = sample
        self._examples = examples
        self._seed = seed.encode()
        self._pairs: dict[Key, _Pair] = {}
        self._highest: list[tuple[int, Key]] = []
        """Of those chosen, the ones with the highest hashes first (as negative numbers)."""
        self._left_out = False
        self._tenants: set[str] = set()
        self._costs: list[float] = []
        self._begins: dict[int, int] = {}

    async def run(self, progress: Callable[[int, int], None] | None = None) -> None:
        """Fold the log up to where it ends now; raises ``KafkaUnavailable``."""
        begins = await self._log.beginning_offsets()
        self._begins = {number: offset for number, offset in sorted(begins.items()) if offset}
        ends = await self._log.end_offsets()
        total, done = sum(ends.values()), 0
        async with aclosing(
            self._log.stream({number: (0, end - 1) for number, end in ends.items()})
        ) as batches:
            async for number, rows in batches:
                for row in rows:
                    await self._row(number, row)
                done += len(rows)
                if progress is not None:
                    progress(done, total)

    async def _row(self, number: int, row: Row) -> None:
        key = parse_key(row.key) if row.key is not None else None
        if key is None:
            return
        pair = self._pairs.get(key)
        place = 0
        if pair is None:
            place = self._place(key)
            if len(self._pairs) >= self._sample and place >= -self._highest[0][0]:
                self._left_out = True
                return
        event = event_of(row, key, self._log.seals)
        if event is None:
            return
        if pair is None:
            pair = await self._choose(key, place, number)
        pair.events += 1
        if isinstance(event, SummaryEvent) and event.data.cost is not None:
            self._costs.append(event.data.cost)
        for side in (pair.before, pair.after):
            await self._fold(side, row.offset, event)

    def _place(self, key: Key) -> int:
        return int.from_bytes(
            blake2b(str(key).encode(), digest_size=8, key=self._seed[:64]).digest()
        )

    async def _choose(self, key: Key, place: int, number: int) -> _Pair:
        """Take a conversation in at its first event. The place that lets one in only gets lower, so
        all who stay were there from theirs.
        """
        if key.tenant not in self._tenants:
            for learn in self._learn:
                await learn(key.tenant)
            self._tenants.add(key.tenant)
        if len(self._pairs) >= self._sample:
            self._left_out = True
            del self._pairs[heapq.heappop(self._highest)[1]]
        heapq.heappush(self._highest, (-place, key))
        before, after = self._rules
        pair = self._pairs[key] = _Pair(
            _Side(Window(key, number, before)), _Side(Window(key, number, after))
        )
        return pair

    async def _fold(self, side: _Side, offset: int, event: AnyEvent) -> None:
        outcome = apply(side.window, offset, event)
        if outcome.status is Status.NEEDS_HISTORY:
            history = await self._log.fetch(self._log, side.window, outcome)
            outcome = apply(side.window, offset, event, history)
        if isinstance(event, SummaryEvent):
            summary = msgspec.structs.replace(event.data, text="")
            if outcome.reason is not None:
                side.refused[summary.summary_id] = outcome.reason
            elif outcome.accepted:
                side.accepted[summary.summary_id] = summary

    # -- what was found

    def document(self, price: float | None = None) -> dict[str, Any]:
        """The report as a document for JSON.

        Args:
            price: of a million tokens sent; the currency is the caller's. None: no cost of contexts
                is reported.
        """
        totals = _Totals()
        for key in sorted(self._pairs):
            self._compare(key, self._pairs[key], totals)
        before, after = (spread(tokens) for tokens in totals.tokens)
        mean = sum(self._costs) / len(self._costs) if self._costs else None
        return {
            "conversations": {
                "in_log": self._conversations(),
                "in_log_estimated": self._left_out,
                "compared": totals.compared,
                "erased": totals.erased,
            },
            "events": sum(pair.events for pair in self._pairs.values()),
            "differing": {"windows": totals.windows, "renders": totals.renders},
            "tokens": {"before": before, "after": after},
            "does_not_fit": _sides(totals.unfit),
            "cost": (
                None
                if price is None
                else {
                    "estimated": True,
                    "price_per_million": price,
                    "before": before["sum"] / 1e6 * price,
                    "after": after["sum"] / 1e6 * price,
                }
            ),
            "compactions": {
                "due": _sides(totals.due),
                "summaries_taken": _sides(totals.accepted),
                "summaries_in_force": _sides(totals.active),
                "refused_after": totals.refused,
                "refusals_after": dict(totals.refusals),
                "taken_only_after": totals.only_after,
                "cost_of_due_estimated": (
                    None
                    if mean is None
                    else {side: n * mean for side, n in _sides(totals.due).items()}
                ),
            },
            "losses": totals.lost,
            "log_begins": self._begins,
            "summaries_cut": totals.cut,
            "left_out": {
                "conversations": _sides(totals.leaving_out),
                "messages": _sides(totals.left_out),
            },
            "room": asdict(totals.room),
            "callable_failures": [asdict(one) for one in failed_callables(self._kept_failures())],
            "examples": totals.examples,
            "notes": list(NOTES),
        }

    def _kept_failures(self) -> Failures:
        """What callables could not do in the conversations that stayed in the sample."""
        return {key: failed for key, failed in self._failures.items() if key in self._pairs}

    def _conversations(self) -> int:
        """How many there are; where some were left out, an estimate from how dense the hashes of
        the chosen ones are (k minimum values).
        """
        if not self._left_out:
            return len(self._pairs)
        return max(
            len(self._pairs), round((len(self._pairs) - 1) * _HASHES / max(1, -self._highest[0][0]))
        )

    def _compare(self, key: Key, pair: _Pair, totals: _Totals) -> None:
        if pair.before.window.meta.erased:
            totals.erased += 1
            return
        totals.compared += 1
        looks = seen(pair.before.window), seen(pair.after.window)
        for i, (look, side) in enumerate(zip(looks, (pair.before, pair.after), strict=True)):
            if look.tokens is None:
                totals.unfit[i] += 1
            else:
                totals.tokens[i].append(look.tokens)
            totals.due[i] += look.due
            totals.active[i] += look.summary is not None
            totals.accepted[i] += len(side.accepted)
            totals.left_out[i] += look.left_out
            totals.leaving_out[i] += look.left_out > 0
        self._compare_summaries(key, pair, totals)
        differs = difference(*looks)
        totals.windows += differs.window
        totals.renders += differs.render
        if differs.render and len(totals.examples) < self._examples:
            totals.examples.append(_example(key, *looks))

    def _compare_summaries(self, key: Key, pair: _Pair, totals: _Totals) -> None:
        before, after = pair.before, pair.after
        lost = before.accepted.keys() - after.accepted.keys()
        totals.refused += len(lost)
        totals.refusals.update(after.refused[id_] for id_ in lost & after.refused.keys())
        totals.only_after += len(after.accepted.keys() - before.accepted.keys())
        why = why_lost(past_of(before.window), after.window)
        if why is not None:
            totals.lost.append(_loss(key, before, after, why))
        totals.cut += _is_cut(after) and not _is_cut(before)
        events, tokens = _room(after)
        if events > _room(before)[0]:
            totals.room.conversations += 1
            totals.room.events += events
            totals.room.tokens += tokens


def _loss(key: Key, before: _Side, after: _Side, why: str) -> dict[str, str]:
    """Which part of a conversation is lost, and why: the first summary that was refused, or what is
    not pinned any more.
    """
    window, summary = before.window, after.window.meta.summary
    past = past_of(window)
    if why == why_unpinned(past, after.window):
        last = max({*past.lane, *past.pinned})
        return {
            "conversation": str(key),
            "after": "the beginning",
            "to": window.position_of(last),
            "because": why,
        }
    reasons = (after.refused[id_] for id_ in before.accepted if id_ in after.refused)
    first = "the beginning" if summary is None else after.window.position_of(summary.to)
    return {
        "conversation": str(key),
        "after": first,
        "to": window.position_of(window.covered_to),
        "because": next(reasons, why),
    }


def _is_cut(side: _Side) -> bool:
    """Whether the active summary is shorter than its event in the log."""
    active = side.window.meta.summary
    event = side.accepted.get(active.summary_id) if active else None
    return active is not None and event is not None and active.tokens < event.tokens


def _room(side: _Side) -> tuple[int, int]:
    """How many of the newest summarised events would fit into the budget beside the tail, summary
    by summary, and their tokens: what a rollback to before these summaries brings back. None where
    a reducer leaves all but the newest out anyway.
    """
    window, active = side.window, side.window.meta.summary
    if window.policy.counted:
        return 0, 0
    used, events, tokens = window.tail_tokens + window.held_tokens, 0, 0
    name = active.summary_id if active else None
    while name is not None and (summary := side.accepted.get(name)) is not None:
        if used + tokens + summary.tokens_before > window.limits.mark:
            break
        stands = summary.span.stands
        events += summary.span.count if stands is None else stands.count("1")
        tokens += summary.tokens_before
        name = summary.previous
    return events, tokens


def _example(key: Key, before: Seen, after: Seen) -> dict[str, Any]:
    return {
        "conversation": str(key),
        "tokens": {"before": before.tokens, "after": after.tokens},
        "messages": {"before": len(before.bodies), "after": len(after.bodies)},
        "diff": diff_lines(before, after),
    }


def _sides(pair: list[int]) -> dict[str, int]:
    return {"before": pair[0], "after": pair[1]}
