"""A server on a free port that answers each connection with bytes as it is told, and breaks off
where it is told to.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

Answer = bytes | Callable[[asyncio.StreamWriter], Awaitable[None]]


@dataclass
class Asked:
    line: str
    headers: dict[str, str]
    body: Any


@dataclass
class RawServer:
    """``asked`` are the requests that came, in order; the n-th connection gets the n-th answer,
    later ones the last.
    """

    answers: list[Answer]
    url: str = ""
    asked: list[Asked] = field(default_factory=list)

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {
                name.lower(): value.strip()
                for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            self.asked.append(Asked(head[0], headers, json.loads(body) if body else None))
            answer = self.answers[min(len(self.asked), len(self.answers)) - 1]
            if isinstance(answer, bytes):
                writer.write(answer)
            else:
                await answer(writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # the client went away
        finally:
            writer.close()


@asynccontextmanager
async def raw_server(*answers: Answer) -> AsyncIterator[RawServer]:
    made = RawServer(list(answers))
    server = await asyncio.start_server(made.serve, "127.0.0.1", 0)
    made.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    try:
        yield made
    finally:
        server.close()


def answer(status: int, document: Any, **headers: str) -> bytes:
    """A whole response that ends its connection."""
    body = json.dumps(document).encode()
    lines = [
        f"HTTP/1.1 {status} X",
        "Content-Type: application/json",
        f"Content-Length: {len(body)}",
        "Connection: close",
    ]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return "\r\n".join([*lines, "", ""]).encode() + body


def problem(status: int, name: str, **headers: str) -> bytes:
    document = {
        "type": f"urn:threadfold:problem:{name}",
        "title": name,
        "status": status,
        "detail": f"{name} it is",
    }
    return answer(status, document, **headers)


STREAM = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\n\r\n"


def sent(event: str, data: Any, id: str | None = None) -> bytes:  # noqa: A002 (the field's name)
    return (
        f"event: {event}\n" + (f"id: {id}\n" if id else "") + f"data: {json.dumps(data)}\n\n"
    ).encode()
