"""``keys new-master|rotate``: the master keys that wrap the data keys of encrypted
conversations.
"""

from __future__ import annotations

from pathlib import Path

import click

from streams.encryption.master_keys import new_master as make_master
from streams.settings.settings import Settings
from streams.stack import reach
from threadfold.cli.common import data_option, load_settings, run


@click.group()
def keys() -> None:
    """Make master keys, and wrap data keys anew."""


@keys.command("new-master")
@click.option("--id", "name", metavar="ID", help="The key's id [default: a random one].")
def new_master(name: str | None) -> None:
    """Print a new master key as `id:base64`: a line of the master key file, or an entry of
    THREADFOLD_MASTER_KEYS.

    Put it first to make it the current one, and keep the others until `threadfold keys rotate` has
    run. Nothing else knows it: whoever loses it loses what it protects.
    """
    click.echo(make_master(name))


@keys.command()
@data_option
def rotate(data: Path | None) -> None:
    """Wrap all data keys with the current master key, the first one configured; prints `rotated:
    n`.

    Cut off, it goes on when repeated. When it is done, and every service runs with the new key, the
    old one may be taken away.
    """
    click.echo(f"rotated: {run(_rotate(load_settings(data)))}")


async def _rotate(settings: Settings) -> int:
    async with reach(settings) as stack:
        return await stack.keys.rotate()
