"""``backup export|check|import``: what has to be saved, in files with digests, and back again."""

from __future__ import annotations

from pathlib import Path

import click

from streams.maintenance.backup import Manifest, export, read_manifest, restore
from threadfold.cli.common import data_option, load_settings, run
from threadfold.cli.progress import metered
from threadfold.cli.whole_help import Group

_folder = click.argument("folder", type=click.Path(file_okay=False, path_type=Path))


@click.group(cls=Group)
def backup() -> None:
    """Save the topics that everything else follows from, and restore them.

    A backup has the texts of all conversations: keep it as you keep Kafka. Master keys are not in
    it.
    """


@backup.command("export")
@_folder
@data_option
def export_(folder: Path, data: Path | None) -> None:
    """Write events, summaries, memories, control and keys into a new FOLDER, while traffic runs."""
    settings = load_settings(data)
    with metered("export", "records") as meter:
        _report(run(export(settings, folder, meter)), "exported")


@backup.command()
@_folder
def check(folder: Path) -> None:
    """Compare the files of FOLDER with their digests; needs no Kafka. Exit 1 if one differs."""
    _report(read_manifest(folder), "unharmed")


@backup.command("import")
@_folder
@data_option
def import_(folder: Path, data: Path | None) -> None:
    """Create the topics from FOLDER, each record at its offset, and compare what was written.

    Stop workers and gateways before. The topics must not exist, or be empty. Redis is filled by
    the workers, once they start.
    """
    settings = load_settings(data)
    with metered("import", "records") as meter:
        _report(run(restore(settings, folder, meter)), "imported")


def _report(manifest: Manifest, what: str) -> None:
    for name, found in manifest.topics.items():
        click.echo(f"{what} {name}: {sum(part.records for part in found)} records")
