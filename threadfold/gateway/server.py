"""Runs the gateway under uvicorn, from its ready line to a clean end on SIGTERM."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import sys
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any, Literal

import uvicorn
from starlette.types import ASGIApp
from uvicorn.config import LOGGING_CONFIG

from projections.errors import InvalidSettings
from streams.runtime.freed_memory import return_memory
from streams.runtime.json_logs import write_json
from streams.runtime.tasks import end_tasks
from streams.runtime.text_logs import write_text
from streams.runtime.throttle_logs import throttle_logs
from streams.runtime.tune_gc import tune_gc
from streams.settings.settings import Settings
from threadfold.gateway.app import Gateway, create_gateway
from threadfold.gateway.concurrency import limits_within
from threadfold.gateway.connections import Connections, most_connections, raise_descriptors
from threadfold.gateway.credentials import check_exposure
from threadfold.gateway.handshakes import after_handshake, report
from threadfold.gateway.receiving import received
from threadfold.gateway.tls import Certificate, certificate_of

SWITCH = 0.0005
"""Seconds for which a thread that reads a body holds up the event loop at each of its calls that
release the interpreter's lock; Python's own are ten times as long.
"""
GRACE = 10
"""Seconds that requests under way may take after SIGTERM."""

CLOSING = 2.0
"""Seconds that closing the connections to Kafka and Redis may take after a second signal."""

KEEP_ALIVE = 75
"""Seconds that a connection may wait for its next request. Clients and load balancers have to be
the first to close (balancers after 60 s, often): a request that is sent while the server closes is
lost, and a balancer answers 502. Where there are too many connections, those that wait make way
before.
"""

ACCEPTED = 8
"""Connections that are accepted in one turn of the event loop. libuv accepts one for each handle on
a listening socket: with a single handle, whoever opened hundreds of connections a second let all
new ones wait for seconds where the loop's turns were long.
"""


class Server(uvicorn.Server):
    """Prints when it listens, and ends its streams when it stops.

    :func:`serve` handles signals: uvicorn would send itself the signal again, and not exit with 0.
    """

    path = ""
    """What of it is announced."""
    certificate: Certificate | None = None
    """What to keep current while it runs."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started and sockets:
            host, port = sockets[0].getsockname()[:2]
            shown = f"[{host}]" if ":" in host else host
            scheme = "http" if self.certificate is None else "https"
            print(f"ready: {scheme}://{shown}:{port}{self.path}", flush=True)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        if isinstance(self.config.app, Gateway):
            self.config.app.end_streams()
        await super().shutdown(sockets)
        if self.force_exit:
            await self._close_at_once()

    async def _close_at_once(self) -> None:
        """Cut off what is under way, and let the application close. uvicorn leaves that out after a
        second signal, and then logs a traceback.
        """
        for request in self.server_state.tasks:
            request.cancel()
        closing = asyncio.ensure_future(self.lifespan.shutdown())
        await asyncio.wait([closing], timeout=CLOSING)


def serve(settings: Settings) -> None:
    """Run the gateway until SIGTERM or SIGINT, then let requests finish, and return.

    It prints ``ready: URL`` on stdout once it listens: with a certificate ``https``. ``/readyz``
    reports whether Kafka and Redis answer. Port 0 stands for a free one. A second signal ends it at
    once.

    Raises:
        InvalidSettings: an address is missing, auth is off and the host not loopback, the
            certificate cannot be used, or host and port cannot be listened on.
    """
    check_exposure(settings)
    return_memory()  # of large bodies and answers
    sys.setswitchinterval(SWITCH)
    connections = connections_of(settings)
    limits = limits_within(connections.most)
    serve_app(create_gateway(settings, tune_gc, limits), settings, connections=connections)


def serve_app(
    app: ASGIApp,
    settings: Settings,
    http: Literal["auto", "h11"] = "auto",
    *,
    uvloop: bool = True,
    connections: Connections | None = None,
) -> None:
    """Serve any application as :func:`serve` serves the gateway: same host and port, same server,
    same settings.

    Args:
        http: the parser of requests. `auto` is httptools with limits if it is installed, else h11
            (docs/decisions/0018).
        uvloop: its event loop, where it is installed; else asyncio's own.
        connections: how many it may hold; None: as many as the process has descriptors for.

    Raises:
        InvalidSettings: host and port cannot be listened on, or the certificate cannot be used.
    """
    certificate = certificate_of(settings)
    listening = listen(settings.gateway_host, settings.gateway_port)
    if settings.log_format == "json":
        write_json(settings.log_level)
    else:
        write_text(settings.log_level)
    throttle_logs()
    if connections is None:
        connections = connections_of(settings)
    config = server_config(
        app,
        http_protocol(connections, certificate, http),
        settings.log_level.lower(),
        own_logs=True,
    )
    server = Server(config)
    server.certificate = certificate
    with listening, asyncio.Runner(loop_factory=loop_factory() if uvloop else None) as runner:
        runner.run(serve_until_stopped(server, listening))


def server_config(
    app: ASGIApp,
    http: Any,
    log_level: str,
    grace: int = GRACE,
    *,
    own_logs: bool = False,
) -> uvicorn.Config:
    """uvicorn's settings; ``own_logs``: its lines go where all others of the process go.

    Nothing is offered to upgrade to: a websocket would stay open, unanswered, outside of all
    bounds.
    """
    return uvicorn.Config(
        app,
        http=http,
        ws="none",
        log_level=log_level,
        access_log=False,
        log_config=None if own_logs else LOGGING_CONFIG,
        server_header=False,
        lifespan="on",
        timeout_graceful_shutdown=grace,
        timeout_keep_alive=KEEP_ALIVE,
    )


def connections_of(settings: Settings) -> Connections:
    """What a gateway's process may hold; its limit of file descriptors is raised first."""
    return Connections(most_connections(raise_descriptors()), settings.connections_per_address)


def http_protocol(
    connections: Connections,
    certificate: Certificate | None = None,
    http: Literal["auto", "h11"] = "auto",
) -> Any:
    """uvicorn's setting ``http``: httptools' protocol with bounds where it is installed, else h11,
    which has its own for heads; with a certificate after TLS' handshake.
    """
    protocol: Any = None
    if http == "auto":
        with contextlib.suppress(ImportError):
            protocol = import_module("threadfold.gateway.protocol").bounded(connections)
    if protocol is None:
        plain = protocol = import_module("uvicorn.protocols.http.h11_impl").H11Protocol
    else:
        plain = received(protocol)
    return plain if certificate is None else after_handshake(protocol, connections, certificate)


def loop_factory() -> Callable[[], asyncio.AbstractEventLoop] | None:
    """uvloop's event loop if it is installed (it has no wheel for Windows); else None, for
    asyncio's own.
    """
    try:
        uvloop: Any = __import__("uvloop")
    except ImportError:
        return None
    factory: Callable[[], asyncio.AbstractEventLoop] = uvloop.new_event_loop
    return factory


async def serve_until_stopped(server: Server, listening: socket.socket) -> None:
    """Serve until SIGTERM or Ctrl-C; a second one does not wait for open requests."""
    loop = asyncio.get_running_loop()

    def end() -> None:
        server.force_exit = server.should_exit
        server.should_exit = True

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    loop.set_exception_handler(report)
    certificate = server.certificate
    current = None if certificate is None else asyncio.create_task(certificate.keep_current())
    try:
        await server.serve(acceptors(listening))
    finally:
        await end_tasks([current])


def acceptors(listening: socket.socket) -> list[socket.socket]:
    """The handles of a listening socket that a server accepts with, itself first."""
    return [listening, *(listening.dup() for _ in range(ACCEPTED - 1))]


def listen(
    host: str,
    port: int,
    who: str = "the gateway",
    remedy: str = "with --host and --port, or the settings gateway_host and gateway_port",
) -> socket.socket:
    """A socket that listens; raises :class:`InvalidSettings`, which says who cannot, and why."""
    # asyncio sets TCP_NODELAY only if the protocol is named. Without it, answers wait 40 ms for the
    # peer's delayed ACK.
    listening = socket.socket(
        socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP
    )
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(2048)
    except (OSError, OverflowError) as error:
        listening.close()
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidSettings(
            f"{who} cannot listen on {host}:{port} ({reason}): give another address {remedy}"
        ) from None
    return listening
