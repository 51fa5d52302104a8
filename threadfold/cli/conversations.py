"""``conversations``: those that somebody has to look at."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import click

from projections.render.read_header import AWAITING
from threadfold.cli.common import (
    data_option,
    load_settings,
    print_json,
    print_line,
    read_state,
    run,
)
from threadfold.cli.dead_letters import opened
from threadfold.service.conversation_list import Filter
from threadfold.service.conversation_list import conversations as page_of
from threadfold.service.conversations import ConversationService

MOST = 1_000
"""Lines that are printed at most, unless ``--limit`` says otherwise."""
FAR = 1 << 52
"""A time in ms after all others."""


@click.command()
@click.option("--over-budget", is_flag=True, help="Conversations that are due for a summary.")
@click.option("--parked", is_flag=True, help="Conversations that are parked at a poison event.")
@click.option(
    "--waiting", is_flag=True, help="Conversations that wait for an approval or an answer."
)
@click.option("--tenant", metavar="T", help="Only this tenant's.")
@click.option(
    "--limit", type=click.IntRange(min=1), default=MOST, show_default=True, help="Lines at most."
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on each line.")
@data_option
def conversations(
    over_budget: bool,
    parked: bool,
    waiting: bool,
    tenant: str | None,
    limit: int,
    as_json: bool,
    data: Path | None,
) -> None:
    """List conversations that are over their budget, parked, or wait for an approval or an answer.

    Over budget: the tail exceeds its working budget and no summary is accepted yet; the longest
    due come first. Parked: events wait behind one that cannot be applied (`dead-letters`).
    Waiting: the last active come first.
    """
    asked = [
        kind
        for kind, given in ((_over_budget, over_budget), (_parked, parked), (_waiting, waiting))
        if given
    ]
    if len(asked) != 1:
        raise click.UsageError("give one of --over-budget, --parked and --waiting")
    (found,) = asked

    async def look() -> list[dict[str, Any]]:
        rows: list[dict[str, Any]] = []
        async for row in found(data, tenant):
            rows.append(row)
            if len(rows) == limit:
                break
        return rows

    rows = run(look())
    if tenant is not None and not rows:
        read_state(data).tenant(tenant)
    for row in rows:
        if as_json:
            print_json(row)
        else:
            print_line("\t".join(str(value) for value in row.values()))


async def _over_budget(data: Path | None, tenant: str | None) -> AsyncIterator[dict[str, Any]]:
    async with opened(load_settings(data)) as (stack, _):
        generation = stack.generation
        for partition in range(generation.partitions):
            for key in await stack.store.due(generation.number, partition, FAR, FAR):
                if tenant in (None, key.tenant):
                    yield {"conversation": str(key), "partition": partition}


async def _parked(data: Path | None, tenant: str | None) -> AsyncIterator[dict[str, Any]]:
    async with opened(load_settings(data)) as (_, letters):
        for one in await letters.quarantined(tenant):
            yield {
                "conversation": str(one.key),
                "position": str(one.position),
                "waiting": one.waiting,
                "cause": one.cause,
            }


async def _waiting(data: Path | None, tenant: str | None) -> AsyncIterator[dict[str, Any]]:
    async with ConversationService(load_settings(data)) as backend:
        for name in sorted(backend.control.state.tenants) if tenant is None else [tenant]:
            for state in AWAITING:
                before = None
                while True:
                    page = await page_of(
                        backend, name, only=Filter(state=state), before=before, limit=200
                    )
                    for one in page["conversations"]:
                        yield {
                            "conversation": f"{name}/{one['conversation']}",
                            "state": one["state"],
                            "since": one["active_at"],
                        }
                    before = page["next_before"]
                    if before is None:
                        break
