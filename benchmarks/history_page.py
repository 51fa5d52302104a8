"""Figure `history_page`: a page of 50 events from the log, the newest one and those 1,000 pages
deep.

One conversation has more than 50,000 events and stands on a chain of summaries, whose text alone is
a fixed one; every fourth record of the log is its own, the others are of 30 more conversations, so
that a page's records lie scattered in the log. Pages are read as the gateway reads them
(``ConversationService.history``), one after another: the newest page over and over (`newest_page`:
it lies in the window's tail, whose positions are at hand), the 20 pages after it (`next_pages`),
and 20 from the cursor 1,000 pages deep (ours).
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from benchmarks.harness import Args, Measured, Result, interleave, percentile, say
from benchmarks.projection import ours as project
from benchmarks.support.grown import GrownLog
from benchmarks.support.stacks import filled_log, running_stack
from benchmarks.support.texts import TENANT, Messages, conversation
from projections.events.validation import Record
from threadfold.service.conversations import ConversationService

PAGE = 50
OTHERS = 30
LONGEST_PAGE = 500
PAGES_IN_A_RUN = 20


@dataclass(slots=True)
class Pages:
    """Milliseconds of each page read, and how many events came."""

    times: list[float] = field(default_factory=list)

    @property
    def row(self) -> dict[str, float]:
        """p50 and p99 in ms, and how many pages."""
        return {
            "p50_ms": round(percentile(self.times, 0.5), 2),
            "p99_ms": round(percentile(self.times, 0.99), 2),
            "pages": len(self.times),
        }


class HistoryPage:
    """Milliseconds of a deep page."""

    name = "history_page"
    goal = "at most 40 ms p50, equal at depth 1 and depth 1,000 pages"

    async def run(self, args: Args) -> Result:
        """Grow the log, project it, and page through it."""
        depth, seconds = (60, 1.0) if args.quick else (1_000, 5.0)
        events = (depth + PAGES_IN_A_RUN + 10) * PAGE
        with running_stack() as bench:
            settings = bench.settings("history", partitions=8)
            grown = GrownLog(settings)
            await grown.grow(_records(events))
            say(f"grew {sum(grown.counts.values())} events with {grown.summaries} summaries")
            async with filled_log(settings, await grown.records()):
                pass
            await project(bench, settings)
            table: dict[str, Any] = {}
            async with ConversationService(settings) as backend:
                cursor = await _cursor_at(backend, depth)

                async def deep() -> Measured:
                    pages = await _read(backend, cursor, seconds)
                    table[f"depth_{depth}"] = pages.row
                    return Measured(pages.row["p50_ms"])

                async def newest() -> Measured:
                    pages = await _read(backend, None, seconds)
                    table["depth_1"] = pages.row
                    return Measured(pages.row["p50_ms"])

                async def shallow() -> Measured:
                    pages = await _read(backend, await _cursor_at(backend, 1), seconds)
                    table["depth_2"] = pages.row
                    return Measured(pages.row["p50_ms"])

                rounds = await interleave(
                    {"ours": deep, "newest_page": newest, "next_pages": shallow}, args.rounds()
                )
        parameters = {
            "depth": depth,
            "page": PAGE,
            "events": events,
            "others": OTHERS,
            "partitions": 8,
            "seconds": seconds,
        }
        more = {"table": table, "summaries": grown.summaries}
        return rounds.result(self.name, "ms (p50)", parameters, better="lower", more=more)


def _records(events: int) -> Iterator[Record]:
    """``events`` of conversation 0, each followed by three of others."""
    messages = Messages()
    number = 0
    for turn in range(events):
        for i in range(4):
            place = 0 if i == 0 else 1 + (turn * 3 + i) % OTHERS
            yield messages.template(turn // OTHERS if place else turn, place).record(
                conversation(place), number
            )
            number += 1


async def _cursor_at(backend: ConversationService, depth: int) -> str:
    """The cursor behind ``depth`` pages of 50, reached by longer ones."""
    left = depth * PAGE
    cursor: str | None = None
    while left:
        page = await backend.history(
            TENANT, conversation(0).conversation, before=cursor, limit=min(left, LONGEST_PAGE)
        )
        left -= len(page["events"])
        cursor = page["next_before"]
        if cursor is None:
            raise RuntimeError(f"the conversation ended {left} events before that depth")
    assert cursor is not None
    return cursor


async def _read(backend: ConversationService, first: str | None, seconds: float) -> Pages:
    """Pages from a cursor on, 20 of them (from the top: always the newest one), over and over for
    ``seconds``.
    """
    pages, cursor, at = Pages(), first, 0
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        begin = time.perf_counter()
        page = await backend.history(
            TENANT, conversation(0).conversation, before=cursor, limit=PAGE
        )
        pages.times.append((time.perf_counter() - begin) * 1e3)
        if len(page["events"]) != PAGE:
            raise RuntimeError(f"a page has {len(page['events'])} events, not {PAGE}")
        at = (at + 1) % PAGES_IN_A_RUN
        cursor = first if first is None or at == 0 else page["next_before"]
    return pages


FIGURE = HistoryPage()
