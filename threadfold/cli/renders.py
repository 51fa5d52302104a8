"""``renders show``: a recorded model call, its messages rendered again from the log."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from projections.names import check_name, make_key
from threadfold.cli.common import data_option, on_service, print_json
from threadfold.cli.whole_help import Group

if TYPE_CHECKING:
    from threadfold.service.conversations import ConversationService


@click.group(cls=Group)
def renders() -> None:
    """Show the ledger of model calls."""


@renders.command()
@click.argument("render_id", required=False, metavar="[ID]")
@click.option("--tenant", metavar="T", help="The tenant whose call it is.")
@click.option(
    "--conversation",
    metavar="C",
    help="Instead of an ID: list the newest calls of this conversation.",
)
@click.option(
    "--last",
    type=click.IntRange(1, 1000),
    default=10,
    show_default=True,
    metavar="N",
    help="How many calls to list.",
)
@data_option
def show(
    render_id: str | None,
    tenant: str | None,
    conversation: str | None,
    last: int,
    data: Path | None,
) -> int:
    """Show a recorded model call: its record, and its messages rendered again from the log.

    Exit 0 if the digests agree, 1 if not (`why` gives the reason). Without an ID,
    --tenant and --conversation list the latest calls, newest first, one on each line.
    """
    if render_id is not None:
        if conversation is not None:
            raise click.UsageError("give an ID or --conversation, not both")
        if tenant is not None:
            check_name("tenant", tenant)
        shown = on_service(data, tenant, lambda service: service.ledger.show(render_id, tenant))
        print_json(shown, pretty=True)
        return 0 if shown["agrees"] else 1
    if tenant is None or conversation is None:
        raise click.UsageError("give an ID, or --tenant and --conversation")
    key = make_key(tenant, conversation)

    async def calls(service: ConversationService) -> list[dict[str, Any]]:
        found = await service.ledger.last(tenant, conversation, last)
        if not found:
            await service.head(key)  # it says which is not known
        return found

    for record in on_service(data, tenant, calls):
        print_json(record)
    return 0
