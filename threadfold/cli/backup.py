"""``backup export|check|import``: what has to be saved, in files with digests, and back again."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from streams.log.topic_copies import is_compacted
from streams.maintenance.backup import export, restore
from streams.maintenance.backup_files import SAVED, Manifest, read_chain
from threadfold.cli.common import data_option, load_settings, run
from threadfold.cli.progress import metered
from threadfold.cli.whole_help import Group

_PATH = click.Path(file_okay=False, path_type=Path)
_folders = click.argument("folders", metavar="FOLDER...", nargs=-1, required=True, type=_PATH)


@click.group(cls=Group)
def backup() -> None:
    """Save and restore the topics from which everything else can be rebuilt.

    A backup contains the texts of all conversations: protect it like Kafka. It contains no master
    keys.
    """


@backup.command("export")
@click.argument("folder", type=_PATH)
@click.option(
    "--since",
    type=_PATH,
    metavar="FOLDER",
    help="Write only records that are newer than this backup. Keep both: a restore needs them.",
)
@data_option
def export_(folder: Path, since: Path | None, data: Path | None) -> None:
    """Write events, summaries, memories, control and keys into a new FOLDER, while traffic runs."""
    settings = load_settings(data)
    with metered("export", "records") as meter:
        _report([run(export(settings, folder, meter, since))], "exported")


@backup.command()
@_folders
def check(folders: tuple[Path, ...]) -> None:
    """Compare the files of FOLDER, and of the backups before it, with their digests.

    It needs no Kafka. It looks for the earlier backups beside FOLDER: name those that are
    elsewhere. Exit 1 if one is damaged or missing.
    """
    _report([backup.manifest for backup in read_chain(folders)], "unharmed")


@backup.command("import")
@_folders
@data_option
def import_(folders: tuple[Path, ...], data: Path | None) -> None:
    """Create the topics from FOLDER, each record at its offset, and check the result.

    An incremental FOLDER needs the backups before it: name those that are not beside it. Stop
    workers and gateways first. The topics must not exist, or must be empty. The workers fill
    Redis when they start.
    """
    settings = load_settings(data)
    with metered("import", "records") as meter:
        _report([one.manifest for one in run(restore(settings, folders, meter))], "imported")


def _report(chain: Sequence[Manifest], what: str) -> None:
    if len(chain) > 1:
        click.echo(f"{what} {len(chain)} backups, in order")
    for name in chain[-1].topics:
        compacted = is_compacted(SAVED[name])
        parts = chain[-1:] if compacted else chain
        records = sum(saved.records for one in parts for saved in one.topics[name])
        click.echo(f"{what} {name}: {records} records")
