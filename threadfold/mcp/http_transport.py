"""The server over streamable HTTP. It keeps no session: any process answers any request."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import MCPServer

from threadfold.gateway.connections import Connections, most_connections, raise_descriptors
from threadfold.gateway.server import (
    Server,
    http_protocol,
    listen,
    serve_until_stopped,
    server_config,
)

PATH = "/mcp"
GRACE = 10
"""Seconds that open requests have at the end."""


async def serve_http(server: MCPServer[Any], host: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C; it prints ``ready: URL`` once it listens.

    On a loopback address only pages of this machine may call it (checks of Host and Origin).

    Raises:
        InvalidSettings: it cannot listen there.
    """
    app = server.streamable_http_app(
        streamable_http_path=PATH, json_response=True, stateless_http=True, host=host
    )
    with listen(host, port, "the MCP server", "with --host and --port") as listening:
        bounded = http_protocol(Connections(most_connections(raise_descriptors())))
        served = Server(server_config(app, bounded, "warning", GRACE))
        served.path = PATH
        await serve_until_stopped(served, listening)
