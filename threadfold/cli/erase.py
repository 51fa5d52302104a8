"""``erase``: erases a conversation, or all of a user's, and prints the receipts."""

from __future__ import annotations

from pathlib import Path

import click

from projections.names import check_name, make_key
from streams.settings.settings import Settings
from threadfold.cli.common import data_option, load_settings, print_json, run
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser, Receipt
from threadfold.streaming.partial_store import PartialStore


@click.command()
@click.argument("tenant")
@click.argument("conversation", required=False)
@click.option(
    "--user", metavar="U", help="Instead of a conversation: erase all opened with this user."
)
@data_option
def erase(tenant: str, conversation: str | None, user: str | None, data: Path | None) -> None:
    """Erase a conversation for good and print the receipt: the state of each store and its
    deadline. A worker must run.

    Run it again after an interruption: it continues. Afterwards it prints the same receipt. With
    --user it prints one receipt a line.
    """
    if (conversation is None) == (user is None):
        raise click.UsageError("give a conversation, or --user U")
    check_name("tenant", tenant)
    if conversation is not None:
        make_key(tenant, conversation)
    receipts = run(_erase(load_settings(data), tenant, conversation, user))
    for receipt in receipts:
        print_json(receipt, pretty=user is None)


async def _erase(
    settings: Settings, tenant: str, conversation: str | None, user: str | None
) -> list[Receipt]:
    async with ConversationService(settings) as backend:
        texts = PartialStore(settings.redis, settings.topic_prefix, settings.partial_timeout)
        eraser = Eraser(backend, texts.forget)
        try:
            if conversation is not None:
                return [await eraser.conversation(tenant, conversation)]
            return await eraser.user(tenant, user or "")
        finally:
            await texts.close_connections()
