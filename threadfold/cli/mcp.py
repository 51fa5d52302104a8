"""``mcp``: the long-term memory for clients of the Model Context Protocol."""

from __future__ import annotations

import asyncio
import os
import signal
from importlib.util import find_spec
from pathlib import Path

import click

from streams.runtime.text_logs import write_text
from streams.runtime.throttle_logs import throttle_logs
from threadfold.cli.common import data_option, load_settings, not_empty
from threadfold.cli.interrupts import interrupts_wait


@click.command()
@click.option("--url", metavar="URL", help="The gateway [default: THREADFOLD_URL].")
@click.option(
    "--user", metavar="U", callback=not_empty, help="Every call uses only this user's memory."
)
@click.option("--http", is_flag=True, help="Serve streamable HTTP at /mcp instead of stdio.")
@click.option("--host", default="127.0.0.1", show_default=True, help="With --http: the address.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8090,
    show_default=True,
    help="With --http: the port; 0: any free port.",
)
@data_option
def mcp(
    url: str | None, user: str | None, http: bool, host: str, port: int, data: Path | None
) -> None:
    """Serve the long-term memory to an MCP client: six tools, mem_save to mem_delete.

    On stdio the credential is THREADFOLD_KEY: a tenant's key or an end user's token. With --http
    each request sends its own as `Authorization: Bearer KEY`; the command prints `ready: URL` once
    it listens. The tools call the gateway, so its scopes and quotas apply.
    """
    with interrupts_wait():  # it imports the package
        found = find_spec("mcp") is not None and find_spec("mcp.server.mcpserver") is not None
    if not found:
        raise click.ClickException(
            "`threadfold mcp` needs the package mcp, version 2: pip install 'threadfold[mcp]'"
        )
    key = os.environ.get("THREADFOLD_KEY", "")
    if not http and not key:
        raise click.ClickException(
            "no credential: set THREADFOLD_KEY to a tenant's key or an end user's token"
        )
    # The SDK's own handler would import more while a line is written, also without descriptors.
    write_text("warning")
    throttle_logs()
    with interrupts_wait():
        from threadfold.gateway.server import loop_factory
        from threadfold.mcp.callers import Callers
        from threadfold.mcp.http_transport import serve_http
        from threadfold.mcp.tools import mcp_server
        from threadfold_client import ClientError

    try:
        callers = Callers(url or _gateway(data), None if http else key)
    except ClientError as error:
        raise click.ClickException(error.detail) from None
    server = mcp_server(callers, user)

    async def serve() -> None:
        try:
            if http:
                await serve_http(server, callers, host, port)
            else:
                await server.run_stdio_async()
        finally:
            await callers.close()

    if not http:
        # A thread waits for the client's next line. Nothing but the end of the process ends it.
        signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
        signal.signal(signal.SIGINT, lambda *_: os._exit(130))
    # As the gateway's: asyncio's own accepts more connections in one turn than there is room for.
    with asyncio.Runner(loop_factory=loop_factory() if http else None) as runner:
        runner.run(serve())


def _gateway(data: Path | None) -> str:
    """The gateway's address: of the environment, of a data folder, or the usual one."""
    if data is None and os.environ.get("THREADFOLD_URL"):
        return os.environ["THREADFOLD_URL"]
    settings = None if data is None else load_settings(data)
    return (settings.gateway_url if settings else "") or "http://127.0.0.1:8080"
