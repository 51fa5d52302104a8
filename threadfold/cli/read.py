"""``context`` and ``history``: a conversation's rendered window, and its events in the log."""

from __future__ import annotations

from pathlib import Path

import click

from projections.names import make_key
from threadfold.cli.common import data_option, on_service, print_json
from threadfold.service.documents import FORMATS
from threadfold.service.pages import MAX_PAGE


@click.command()
@click.argument("tenant")
@click.argument("conversation")
@click.option(
    "--format",
    "fmt",
    type=click.Choice(FORMATS),
    default="openai",
    show_default=True,
    help="The format of `messages`.",
)
@data_option
def context(tenant: str, conversation: str, fmt: str, data: Path | None) -> None:
    """Print a conversation's window as a model receives it: a JSON document with `messages`,
    tokens, position and digests.

    The format `events` gives the window's own events with their positions.
    """
    make_key(tenant, conversation)
    document = on_service(
        data, tenant, lambda service: service.context(tenant, conversation, fmt=fmt)
    )
    print_json(document, pretty=True)


@click.command()
@click.argument("tenant")
@click.argument("conversation")
@click.option(
    "--before",
    metavar="CURSOR",
    help="The `next_before` of the last page [default: begin with the newest event].",
)
@click.option(
    "--limit",
    type=click.IntRange(1, MAX_PAGE),
    default=50,
    show_default=True,
    metavar="N",
    help="Events a page.",
)
@click.option(
    "--type",
    "types",
    metavar="TYPES",
    help="Types of events, separated by commas [default: all].",
)
@data_option
def history(
    tenant: str,
    conversation: str,
    before: str | None,
    limit: int,
    types: str | None,
    data: Path | None,
) -> None:
    """Print a page of a conversation's events, newest first, from the log: `{"events": [...],
    "next_before": CURSOR or null}`.
    """
    make_key(tenant, conversation)
    wanted = None if types is None else types.split(",")
    page = on_service(
        data,
        tenant,
        lambda service: service.history(
            tenant, conversation, before=before, limit=limit, types=wanted
        ),
    )
    print_json(page, pretty=True)
