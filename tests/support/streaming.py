"""Gateways under a real uvicorn in the test's own loop, and a subscriber of their server-sent
events.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import httpx
import uvicorn

from streams.log.log import Row
from streams.settings.settings import Settings
from tests.support.worker import until
from threadfold.gateway import create_gateway
from threadfold.gateway.app import Gateway as App
from threadfold.gateway.server import Server, listen


class Heard:
    """A listener of the tail of the log: the offsets it got, and why it was told to begin anew."""

    def __init__(self) -> None:
        self.offsets: list[int] = []
        self.why = ""

    def deliver(self, row: Row, partition: int) -> None:
        del partition
        self.offsets.append(row.offset)

    def broken(self, reason: str) -> None:
        self.why = reason


class Gateway(NamedTuple):
    """A gateway that listens; ``http`` has no key."""

    url: str
    app: App
    server: uvicorn.Server
    http: httpx.AsyncClient

    async def stop(self) -> None:
        """End it as SIGTERM does, and wait until it has ended."""
        self.server.should_exit = True
        await until(self._ended, 20, "the gateway's end")

    async def _ended(self) -> bool:
        return self.app.state.live is None


@asynccontextmanager
async def serving(settings: Settings) -> AsyncIterator[Gateway]:
    """A gateway on a free port, ready."""
    app = create_gateway(settings)
    listening = listen("127.0.0.1", 0)
    server = Server(
        uvicorn.Config(
            app, log_level="error", access_log=False, lifespan="on", timeout_graceful_shutdown=10
        )
    )
    running = asyncio.create_task(server.serve(sockets=[listening]), name="uvicorn")
    url = f"http://127.0.0.1:{listening.getsockname()[1]}"
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:

        async def ready() -> bool:
            try:
                return (await http.get("/readyz")).status_code == 200
            except httpx.TransportError:
                return False

        try:
            await until(ready, 60)
            yield Gateway(url, app, server, http)
        finally:
            server.should_exit = True
            await running


class Event(NamedTuple):
    """A server-sent event: its kind ("" for a comment, whose text is ``data``), its id, and its
    decoded data.
    """

    kind: str
    id: str | None
    data: Any


class Subscriber:
    """A stream that is open; what came is in ``got``, and ``ended`` once it ended."""

    def __init__(self, response: httpx.Response) -> None:
        self.response = response
        self.got: list[Event] = []
        self.ended = asyncio.Event()

    async def run(self) -> None:
        """Read until it ends."""
        fields: dict[str, str] = {}
        try:
            async for line in self.response.aiter_lines():
                if line.startswith(":"):
                    self.got.append(Event("", None, line[2:]))
                elif line:
                    name, _, value = line.partition(": ")
                    fields[name] = value
                elif "event" in fields:
                    self.got.append(
                        Event(fields["event"], fields.get("id"), json.loads(fields["data"]))
                    )
                    fields = {}
                else:
                    fields = {}
        except httpx.TransportError as error:
            self.got.append(Event("", None, f"transport: {error}"))
        finally:
            self.ended.set()

    def events(self) -> list[Event]:
        """What can be resumed by: events and summaries."""
        return [event for event in self.got if event.id is not None]

    def of(self, kind: str) -> list[Any]:
        """The data of the events of a kind."""
        return [event.data for event in self.got if event.kind == kind]

    async def until(self, condition: Callable[[], object], limit: float = 20.0) -> None:
        """Wait until the condition holds of what came."""

        async def holds() -> bool:
            return bool(condition())

        try:
            await until(holds, limit)
        except TimeoutError:
            raise AssertionError(f"it did not come; what came: {self.got[-12:]}") from None


@asynccontextmanager
async def subscribed(
    gateway: Gateway, path: str, key: str, **headers: str
) -> AsyncIterator[Subscriber]:
    """A subscriber whose stream has begun."""
    async with httpx.AsyncClient(base_url=gateway.url, timeout=60) as http:
        request = http.build_request(
            "GET",
            path,
            headers={
                "Authorization": f"Bearer {key}",
                **{k.replace("_", "-"): v for k, v in headers.items()},
            },
        )
        response = await http.send(request, stream=True)
        if response.status_code != 200:
            await response.aread()
            raise AssertionError(f"{response.status_code}: {response.text}")
        subscriber = Subscriber(response)
        reading = asyncio.create_task(subscriber.run(), name="subscriber")
        try:
            yield subscriber
        finally:
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            await response.aclose()
