"""The server's HTTP protocol, with limits on the size of a request's head and on the time that it
takes.

Without them, anybody who reaches the port can fill the process' memory with one endless header,
without a key. uvicorn limits the heads of h11 (https://www.uvicorn.org/settings/,
``--h11-max-incomplete-event-size``), not those of httptools. This module needs httptools.
"""

from __future__ import annotations

import asyncio
from http import HTTPStatus

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from threadfold.gateway.problems import problem

MAX_HEAD = 64 << 10
"""At most so many bytes of a head, or of trailers and chunk extensions. A head that comes whole in
one read of the socket (256 KiB at most) is accepted.
"""
HEAD_SECONDS = 30.0
"""Seconds from the start of a connection, or the first byte of a head, to the end of the head."""


class BoundedProtocol(HttpToolsProtocol):
    """One connection: httptools' protocol with limits."""

    _quiet = 0
    _progress = False
    _in_head = False
    _late: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._late = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        self._progress = False
        super().data_received(data)
        if self._progress:
            self._quiet = 0
        else:
            self._quiet += len(data)
            if self._quiet > MAX_HEAD and not self.transport.is_closing():
                self._refuse(431, f"the request's head is over the limit of {MAX_HEAD} bytes")
        if self._in_head and self._late is None and not self.transport.is_closing():
            self._late = self.loop.call_later(HEAD_SECONDS, self._too_late)

    def on_message_begin(self) -> None:
        self._in_head = True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._progress, self._in_head = True, False
        self._in_time()
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._progress = True
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._progress = True
        super().on_message_complete()

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "this is not a valid HTTP request")

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_late(self) -> None:
        self._late = None
        if self._in_head:
            self._refuse(408, f"the request's head did not end within {HEAD_SECONDS:g} s")
        else:
            self.transport.close()

    def _refuse(self, status: int, detail: str) -> None:
        """Answer with a problem document, unless another answer is under way, and close."""
        if self.cycle is None or self.cycle.response_complete:
            known = HTTPStatus(status)
            answer = problem(
                status, known.phrase.title().replace(" ", ""), detail, {"Connection": "close"}
            )
            lines = [
                f"HTTP/1.1 {status} {known.phrase}".encode(),
                *(name + b": " + value for name, value in answer.raw_headers),
            ]
            self.transport.write(b"\r\n".join([*lines, b"", bytes(answer.body)]))
        self._in_time()
        self.transport.close()
