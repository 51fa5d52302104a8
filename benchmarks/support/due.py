"""Stacks whose windows wait for summaries that nobody has begun to make."""

from __future__ import annotations

from collections.abc import Iterable

from benchmarks.support.children import run_side
from benchmarks.support.stacks import Bench, filled_log
from projections.events.validation import Record
from streams.settings.settings import Settings


async def fold_without_compactor(
    bench: Bench, settings: Settings, records: Iterable[Record]
) -> None:
    """Fill the log and fold it. What is due for a summary is asked for, as always, and the requests
    wait on their topic for the worker that comes next.
    """
    async with filled_log(settings, records):
        pass
    await run_side("projector", bench, settings)
