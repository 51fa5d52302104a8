"""``worker`` and ``gateway``: the two services on their own, in the foreground, configured by environment or file."""

from __future__ import annotations

import socket
from pathlib import Path

import click

from projections.errors import ThreadfoldError
from threadfold.cli.common import data_option, load_settings


class PortInUse(ThreadfoldError):
    """Something else listens on the port the gateway should have."""


def check_port(host: str, port: int) -> None:
    """Make sure that a server could listen there now.

    Raises:
        PortInUse: it could not; the message says what to do.
    """
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        raise PortInUse(
            f"port {port} on {host} cannot be listened on ({(error.strerror or str(error)).lower()}): "
            f"stop what uses it or name another with --port"
        ) from error


@click.command()
@data_option
@click.pass_context
def worker(ctx: click.Context, data: Path | None) -> None:
    """Run one worker: the projector and the compactor. SIGTERM or Ctrl-C stops it; any number of workers share the partitions."""
    settings = load_settings(data)
    from streams.worker import run_worker

    ctx.exit(run_worker(settings))


@click.command()
@click.option("--host", help="The address to listen on [default: 127.0.0.1].")
@click.option("--port", type=click.IntRange(1, 65535), help="The port to listen on [default: 8080].")
@data_option
def gateway(host: str | None, port: int | None, data: Path | None) -> None:
    """Run the HTTP gateway. SIGTERM or Ctrl-C stops it."""
    settings = load_settings(data, gateway_host=host, gateway_port=port)
    check_port(settings.gateway_host, settings.gateway_port)
    from threadfold.gateway import serve

    serve(settings)
