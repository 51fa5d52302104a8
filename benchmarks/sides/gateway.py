"""A gateway in a process of its own, until its stdin ends: what `threadfold gateway` runs; or
(``server``) the same on another server.
"""

from __future__ import annotations

import os
import signal
import threading

from starlette.types import ASGIApp

from benchmarks.support.children import read_job
from streams.settings.settings import Settings
from threadfold.gateway import create_gateway, serve
from threadfold.gateway.server import serve_app


def end_with_stdin() -> None:
    """Send this process SIGTERM once its stdin ends: whoever started it is gone, or wants no more
    of it.
    """

    def wait() -> None:
        while os.read(
            0, 4096
        ):  # not sys.stdin: a process that is forked meanwhile would hang on its lock
            pass
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, daemon=True).start()


def application() -> ASGIApp:
    """The gateway's application, for a server that makes it in a process of its own."""
    settings, _, _ = read_job()
    return create_gateway(settings)


def serve_with_granian(settings: Settings) -> None:
    """One worker, its loop uvloop: all else as granian has it by itself. It does not tell when it
    listens.
    """
    from granian.constants import HTTPModes, Interfaces, Loops
    from granian.server import Server

    print(f"ready: http://{settings.gateway_host}:{settings.gateway_port}", flush=True)
    Server(
        "benchmarks.sides.gateway:application",
        settings.gateway_host,
        settings.gateway_port,
        interface=Interfaces.ASGI,
        loop=Loops.uvloop,
        http=HTTPModes.http1,
        websockets=False,
        factory=True,
        log_enabled=False,
        backlog=2048,
    ).serve()


if __name__ == "__main__":
    settings, _, job = read_job()
    server = job.get("server", "uvicorn")
    end_with_stdin()
    if server == "granian":
        serve_with_granian(settings)
    elif server == "uvicorn_h11_asyncio":
        serve_app(create_gateway(settings), settings, "h11", uvloop=False)
    else:
        serve(settings)
