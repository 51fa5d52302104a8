"""``renders show``: what a model was sent, rendered again from the log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec
import orjson

from projections.names import check_name, make_key
from streams.settings.settings import Settings
from threadfold.cli.common import data_option, load_settings, print_json, run
from threadfold.service.conversations import ConversationService


@click.group()
def renders() -> None:
    """The ledger of model calls."""


@renders.command()
@click.argument("render_id", required=False, metavar="[ID]")
@click.option("--tenant", metavar="T", help="With an ID: only if it is this tenant's.")
@click.option(
    "--conversation",
    metavar="C",
    help="In place of an ID: the newest records of this conversation, a line each.",
)
@click.option(
    "--last",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    metavar="N",
    help="How many records to list.",
)
@data_option
def show(
    render_id: str | None,
    tenant: str | None,
    conversation: str | None,
    last: int,
    data: Path | None,
) -> int:
    """Show a recorded model call: its record, and the messages rendered again from the log as it
    stood then.

    Exits 0 when the digests agree, 1 when not (`why` says what can be told). Without an ID,
    --tenant and --conversation list the newest records with their ids, newest first; nothing is
    rendered then.
    """
    if render_id is not None:
        if conversation is not None:
            raise click.UsageError("name an ID, or --tenant and --conversation, not both")
        if tenant is not None:
            check_name("tenant", tenant)
        shown = run(_show(load_settings(data), render_id, tenant))
        print_json(orjson.loads(msgspec.json.encode(shown)), pretty=True)
        return 0 if shown["agrees"] else 1
    if tenant is None or conversation is None:
        raise click.UsageError("name an ID, or --tenant and --conversation")
    make_key(tenant, conversation)
    for record in run(_last(load_settings(data), tenant, conversation, last)):
        print_json(orjson.loads(msgspec.json.encode(record)))
    return 0


async def _show(settings: Settings, render_id: str, tenant: str | None) -> dict[str, Any]:
    async with ConversationService(settings) as backend:
        return await backend.ledger.show(render_id, tenant)


async def _last(
    settings: Settings, tenant: str, conversation: str, count: int
) -> list[dict[str, Any]]:
    async with ConversationService(settings) as backend:
        return await backend.ledger.last(tenant, conversation, count)
