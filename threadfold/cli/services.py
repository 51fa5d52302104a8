"""``worker`` and ``gateway``: each service alone, in the foreground."""

from __future__ import annotations

import logging
from pathlib import Path

import click

from threadfold.cli.common import data_option, load_settings

_log_format = click.option(
    "--log-format",
    type=click.Choice(["text", "json"]),
    help="The form of log lines; json: one object on each line [default: text].",
)


@click.command()
@click.option(
    "--only",
    type=click.Choice(["projector", "compactor"]),
    help="Run only this part; other workers run the other.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    help="The port of Prometheus metrics (/metrics) [default: none].",
)
@_log_format
@data_option
@click.pass_context
def worker(
    ctx: click.Context,
    only: str | None,
    metrics_port: int | None,
    log_format: str | None,
    data: Path | None,
) -> None:
    """Run one worker: the projector and the compactor. Workers share the partitions. SIGTERM or
    Ctrl-C stops it.

    The projector applies events to windows. The compactor makes summaries. With --only each scales
    apart from the other.
    """
    settings = load_settings(data, metrics_port=metrics_port, log_format=log_format)
    # Before Faust sets up logging, a client's log line would only repeat the error's own line.
    logging.lastResort = logging.NullHandler()
    from streams.worker import run_worker
    from streams.worker_parts import PARTS

    ctx.exit(run_worker(settings, frozenset((only,)) if only else PARTS))


@click.command()
@click.option("--host", help="The address to listen on [default: 127.0.0.1].")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="The port to listen on; 0: any free port [default: 8080].",
)
@_log_format
@data_option
def gateway(host: str | None, port: int | None, log_format: str | None, data: Path | None) -> None:
    """Run the HTTP gateway; print `ready: URL` once it listens. SIGTERM or Ctrl-C stops it after
    the open requests.
    """
    settings = load_settings(data, gateway_host=host, gateway_port=port, log_format=log_format)
    from threadfold.gateway import serve

    serve(settings)
