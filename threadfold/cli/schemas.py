"""``schemas``: the JSON Schemas of the events, the AsyncAPI document of the topics and the OpenAPI
document of the routes.
"""

from __future__ import annotations

import json
from pathlib import Path

import click

OPENAPI = "openapi"


@click.command()
@click.argument("name", required=False)
@click.option(
    "--dir",
    "folder",
    type=click.Path(file_okay=False, path_type=Path),
    metavar="DIR",
    help="Write all documents but `openapi` into this folder.",
)
def schemas(name: str | None, folder: Path | None) -> None:
    """Print the schema NAME: `message` (the CloudEvent), `message.flat` (the form appended over
    HTTP), `asyncapi` (the topics), `openapi` (the HTTP routes, as the gateway serves it).

    Without a name, it lists the names. With --dir, it writes all documents except `openapi` as
    files.
    """
    from threadfold.schemas.documents import texts, write

    if folder is not None:
        if name is not None:
            raise click.UsageError("give a name or --dir, not both")
        try:
            written = write(folder)
        except OSError as error:
            raise click.UsageError(
                f"{folder} cannot be written: {error.strerror or error}"
            ) from None
        click.echo(f"wrote {len(written)} documents into {folder}")
        return
    known = {file.removesuffix(".json"): text for file, text in texts().items()}
    if name is None:
        click.echo("\n".join((*known, OPENAPI)))
    elif name == OPENAPI:
        from threadfold.gateway.app import Gateway

        click.echo(json.dumps(Gateway.openapi(), ensure_ascii=False))
    elif name in known:
        click.echo(known[name], nl=False)
    else:
        raise click.UsageError(f"{name[:60]} is not one of {', '.join((*known, OPENAPI))}")
