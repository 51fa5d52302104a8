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
    """Save the topics that everything else follows from, and restore them.

    A backup has the texts of all conversations: keep it as you keep Kafka. Master keys are not in
    it.
    """


@backup.command("export")
@click.argument("folder", type=_PATH)
@click.option(
    "--since",
    type=_PATH,
    metavar="FOLDER",
    help="Write only what came after this backup. Keep both: one needs the other.",
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
    """Compare the files of FOLDER, and of the backups that it follows, with their digests.

    Needs no Kafka. Backups that it follows are looked for beside it: name those that are elsewhere.
    Exit 1 if one is damaged or missing.
    """
    _report([backup.manifest for backup in read_chain(folders)], "unharmed")


@backup.command("import")
@_folders
@data_option
def import_(folders: tuple[Path, ...], data: Path | None) -> None:
    """Create the topics from FOLDER, each record at its offset, and compare what was written.

    A FOLDER that follows other backups needs them: those that are not beside it are named, too.
    Stop workers and gateways before. The topics must not exist, or be empty. Redis is filled by
    the workers, once they start.
    """
    settings = load_settings(data)
    with metered("import", "records") as meter:
        _report([one.manifest for one in run(restore(settings, folders, meter))], "imported")


def _report(chain: Sequence[Manifest], what: str) -> None:
    if len(chain) > 1:
        click.echo(f"{what} {len(chain)} backups, one after the other")
    for name in chain[-1].topics:
        compacted = is_compacted(SAVED[name])
        parts = chain[-1:] if compacted else chain
        records = sum(saved.records for one in parts for saved in one.topics[name])
        click.echo(f"{what} {name}: {records} records")
