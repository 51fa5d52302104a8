"""Requests as bytes, and one keep-alive connection that asks them: as plain as HTTP/1.1 gets, so
that the server is what is measured.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def raw(method: str, path: str, headers: dict[str, str], body: str = "") -> bytes:
    """A request's bytes."""
    data = body.encode()
    lines = [
        f"{method} {path} HTTP/1.1",
        "Host: gateway",
        *(f"{name}: {value}" for name, value in headers.items()),
    ]
    if data or method == "POST":
        lines.append(f"Content-Length: {len(data)}")
    return "\r\n".join([*lines, "", ""]).encode() + data


def keep(path: Path, requests: Sequence[tuple[str, str, dict[str, str], str]]) -> str:
    """Write requests (method, path, headers, body) to a file for ``sides.http_load``; returns its
    name.
    """
    path.write_text(json.dumps(requests, ensure_ascii=False))
    return str(path)


class Caller:
    """A connection that is made when it is needed, and made again once the server has closed it."""

    def __init__(self, address: str, authorization: str) -> None:
        self._host, _, port = address.rpartition(":")
        self._port = int(port)
        self._headers = {"Authorization": authorization}
        self._open: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(
        self, method: str, path: str, body: Any = None, **headers: str
    ) -> tuple[int, bytes]:
        """Send one request; returns the status and the body of its answer.

        Raises:
            OSError, asyncio.IncompleteReadError: the connection ended before the answer did.
        """
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        return await self.send(
            raw(method, path, {**self._headers, **named}, "" if body is None else json.dumps(body))
        )

    async def send(self, request: bytes) -> tuple[int, bytes]:
        """Send a request that is made already; answers and raises like :meth:`ask`."""
        if self._open is None:
            self._open = await asyncio.open_connection(self._host, self._port, limit=1 << 20)
        reader, writer = self._open
        try:
            writer.write(request)
            head = (await reader.readuntil(b"\r\n\r\n")).lower()
            at = head.index(b"content-length:") + 15
            body = await reader.readexactly(int(head[at : head.index(b"\r", at)]))
        except BaseException:
            self.close()
            raise
        if b"connection: close" in head:
            self.close()
        return int(head[9:12]), body

    async def join(self, path: str, until: bytes) -> int:
        """Open a stream on a connection of its own, read until something is in it, and leave;
        returns the status.
        """
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=1 << 20)
        try:
            writer.write(raw("GET", path, self._headers))
            got = b""
            while until not in got:
                part = await reader.read(1 << 16)
                if not part:
                    raise RuntimeError(
                        f"the stream {path} ended before {until!r} came: {got[-300:]!r}"
                    )
                got += part
            return int(got[9:12])
        finally:
            writer.close()

    def close(self) -> None:
        """Close the connection; the next request opens one again."""
        if self._open is not None:
            self._open[1].close()
            self._open = None
