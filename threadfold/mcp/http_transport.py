"""The server over streamable HTTP. It keeps no session: any process answers any request."""

from __future__ import annotations

from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.transport_security import TransportSecuritySettings
from starlette.types import ASGIApp

from threadfold.gateway.connections import Connections, most_connections, raise_descriptors
from threadfold.gateway.server import (
    Server,
    http_protocol,
    listen,
    serve_until_stopped,
    server_config,
)
from threadfold.mcp.admission import PATH, Admission
from threadfold.mcp.callers import Callers

GRACE = 10
"""Seconds that open requests have at the end."""
_LOCAL = ("127.0.0.1", "localhost", "::1")
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_PORTS = ("", ":*")
"""Behind a proxy at the default port a head names none."""
_OWN_PAGES = TransportSecuritySettings(
    allowed_hosts=[f"{name}{port}" for name in _LOOPBACK for port in _PORTS],
    allowed_origins=[f"http://{name}{port}" for name in _LOOPBACK for port in _PORTS],
)


def http_app(server: MCPServer[Any], callers: Callers, host: str) -> ASGIApp:
    """The server's application, for whoever the gateway lets in.

    On a loopback address only pages of this machine may call it (checks of Host and Origin).
    """
    app = server.streamable_http_app(
        streamable_http_path=PATH,
        json_response=True,
        stateless_http=True,
        host=host,
        transport_security=_OWN_PAGES if host.strip("[]") in _LOCAL else None,
    )
    return Admission(app, callers)


async def serve_http(server: MCPServer[Any], callers: Callers, host: str, port: int) -> None:
    """Serve until SIGTERM or Ctrl-C; it prints ``ready: URL`` once it listens.

    Raises:
        InvalidSettings: it cannot listen there.
    """
    app = http_app(server, callers, host)
    with listen(host, port, "the MCP server", "with --host and --port") as listening:
        bounded = http_protocol(Connections(most_connections(raise_descriptors())))
        served = Server(server_config(app, bounded, "warning", GRACE))
        served.path = PATH
        await serve_until_stopped(served, listening)
