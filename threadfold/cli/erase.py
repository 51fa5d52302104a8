"""``erase``: erases a conversation, or all of a user's, and prints the receipts."""

from __future__ import annotations

from pathlib import Path

import click

from projections.names import check_name, make_key
from threadfold.cli.common import data_option, on_service, print_json
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser
from threadfold.service.erasure_receipt import Receipt
from threadfold.streaming.partial_store import PartialStore


@click.command()
@click.argument("tenant")
@click.argument("conversation", required=False)
@click.option(
    "--user", metavar="U", help="Instead of a conversation: erase all that belong to this user now."
)
@data_option
def erase(tenant: str, conversation: str | None, user: str | None, data: Path | None) -> None:
    """Erase a conversation for good and print the receipt: the state of each store and its
    deadline. A worker must run.

    Run it again after an interruption: it continues. Afterwards it prints the same receipt. With
    --user it prints one receipt a line.
    """
    if (conversation is None) == (user is None):
        raise click.UsageError(
            "give a conversation, or --user U" + ("" if user is None else ", not both")
        )
    check_name("tenant", tenant)
    if conversation is not None:
        make_key(tenant, conversation)
    for receipt in on_service(
        data, tenant, lambda service: _erase(service, tenant, conversation, user)
    ):
        print_json(receipt, pretty=user is None)


async def _erase(
    service: ConversationService, tenant: str, conversation: str | None, user: str | None
) -> list[Receipt]:
    settings = service.settings
    texts = PartialStore(settings.redis, settings.topic_prefix, settings.partial_timeout)
    eraser = Eraser(service, texts.forget)
    try:
        if conversation is not None:
            return [await eraser.conversation(tenant, conversation)]
        return await eraser.user(tenant, user or "")
    finally:
        await texts.close_connections()
