"""The server's HTTP protocol, with bounds: how many connections there are, how long a head may be
and take, how slowly a body may come, and how slowly an answer may be read.

Upgrades to another protocol are ignored (RFC 9110, 7.8): the request is answered, its body is read.

Without limits whoever reaches the port fills the process' memory with one header that does not end,
or holds all of its connections open, no key needed: uvicorn bounds the heads of h11
(https://www.uvicorn.org/settings/, ``--h11-max-incomplete-event-size``), not those of httptools.
Needs httptools.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import cast

from httptools import HttpParserError, HttpParserUpgrade, HttpRequestParser
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.flow_control import FlowControl
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from threadfold.gateway.arrivals import Arrivals
from threadfold.gateway.body_pace import BodyPace
from threadfold.gateway.connections import LARGE_HEAD, Connections
from threadfold.gateway.counted import CountedProtocol
from threadfold.gateway.heads import (
    HEAD_SECONDS,
    MAX_HEAD,
    MAX_HEADERS,
    REFUSED_SECONDS,
    announced_length,
    fault_of_coding,
    fault_of_head,
    fault_of_length,
    fault_of_target,
    in_origin_form,
    without_upgrade,
)
from threadfold.gateway.problems import last_answer
from threadfold.gateway.unread_answers import LINGER, Unread

NO_ROOM = "the gateway holds as many connections as it may: try again shortly"
HALF_CLOSED = 2.0
"""Seconds in which a client that has shut its writing side is answered. One that has left looks the
same: nobody may hold a place for longer.
"""
CHECK = 2.0
"""Seconds between two looks at a body that has not ended."""
UNWANTED = 0.1
UNWANTED_BYTES = 256 << 10
"""Seconds after each so many bytes of a body whose request is answered."""


class _Refused(Exception):
    """Nothing more is read: the parser is to stop where it is."""


class BoundedProtocol(CountedProtocol):
    """One connection: httptools' protocol with limits. Made by :func:`bounded`."""

    _quiet = 0
    _progress = False
    _in_head = False
    _in_body = False
    _pace = BodyPace(0.0)
    _unwanted = 0
    _late: asyncio.TimerHandle | None = None
    _coming: RequestResponseCycle | None = None
    """The request whose body has not ended."""
    _refusal: bytes | None = None
    """The last answer of a connection of which nothing more is read. It waits for those of the
    whole requests before it; empty where no answer can follow.
    """

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._pieces: list[bytes] = []
        self._unread = Unread(self.loop, transport)
        here = self._come()
        self._arrivals = Arrivals(
            self.open_connections.reading, self.address, transport, self.whose_key, self._read
        )
        self.flow = FlowControl(cast("asyncio.Transport", self._arrivals))
        if here:
            seconds = HEAD_SECONDS if self._counted else REFUSED_SECONDS
            self._late = self.loop.call_later(seconds, self._too_late)

    def connection_lost(self, exc: Exception | None) -> None:
        self._in_time()
        self._unread.forget()
        self._arrivals.end()
        self._disconnected()
        super().connection_lost(exc)
        self._unset_keepalive_if_required()
        self._leave()
        # What refers to itself would stay until the collector looks, which it does seldom.
        self.scope = self.cycle = self._answered = self._coming = self._on_left = None  # type: ignore[assignment]

    def make_way(self) -> None:
        self._counted = False
        lingers = self._refused and self.open_connections.may_linger()
        if not self._may_explain():
            return
        if lingers:
            self._unread.end_soon(LINGER)
            return
        if self._in_head:
            self._refuse(503, NO_ROOM)
        else:
            self.transport.close()
        self._unread.end_soon()

    def pause_writing(self) -> None:
        super().pause_writing()
        self._place()
        self._unread.watch()

    def resume_writing(self) -> None:
        super().resume_writing()
        self._unread.forget()
        self._place()
        if self.transport.is_closing():
            self._unread.watch()

    def timeout_keep_alive_handler(self) -> None:
        super().timeout_keep_alive_handler()
        self._closes()

    def _close(self) -> None:
        self.transport.close()
        self._closes()

    def _closes(self) -> None:
        """It is being closed: TLS reads on until its client has read why."""
        self._unread.watch()
        self.flow.resume_reading()

    def data_received(self, data: bytes) -> None:
        self._unset_keepalive_if_required()
        if self.scheme == "https":
            self._read(memoryview(data))
        else:
            self._arrivals.add(data)

    def behind_tls(
        self, plain: asyncio.Transport, decrypt: Callable[[memoryview], None]
    ) -> Arrivals:
        """What arrives is decrypted before it is received; returns where it goes first."""
        self._arrivals.go_through(plain, decrypt)
        return self._arrivals

    def _read(self, data: memoryview) -> None:
        self._progress = False
        if self._refusal is not None:
            self._pass_over(data)
            return
        try:
            self._parse(data)
        except HttpParserError:
            if self._refusal is None:
                self.logger.warning("Invalid HTTP request received.")
                self.send_400_response("")
        self._hand_on()
        if self._in_body and self.cycle is not None and self.cycle.response_complete:
            self._unwanted += len(data)
            if self._unwanted >= UNWANTED_BYTES:
                self._unwanted = 0
                self.flow.pause_reading()
                self.loop.call_later(UNWANTED, self.flow.resume_reading)
        if self._progress:
            self._quiet = 0
        else:
            self._quiet += len(data)
            if self._quiet > LARGE_HEAD and self._in_head and self._counted and not self.has_key():
                self.open_connections.has_large_head(self)
            if self._quiet > MAX_HEAD and not self.transport.is_closing():
                self._refuse(*fault_of_length(self.url if self._in_head else b""))
        if self._late is None and self._refusal is None and not self.transport.is_closing():
            if self._in_head:
                self._late = self.loop.call_later(HEAD_SECONDS, self._too_late)
            elif self._in_body:
                self._pace = BodyPace(self.loop.time())
                self._late = self.loop.call_later(CHECK, self._check_body)

    def _pass_over(self, data: memoryview) -> None:
        """Nothing of a refused connection is read, but whether its client is there."""
        self._quiet += len(data)
        if self._quiet > MAX_HEAD + UNWANTED_BYTES:
            self._close()

    def eof_received(self) -> bool:  # type: ignore[override]
        """Answer what has come whole, then close; but no stream, nothing after the end of TLS, and
        nothing that waits long for its turn: most have left.
        """
        if not (goes_on := self._answers_on()):
            self._unread.watch()  # it is closed once all of it is sent
        return goes_on

    def _answers_on(self) -> bool:
        """Whether a client is answered that sends no more."""
        if self.scheme == "https":
            return False
        self._arrivals.now()
        if self._refusal is None:
            if self._in_head or self._in_body:
                self._read_no_more(b"")
            elif self.cycle is None or self.cycle.response_complete or self.cycle.chunked_encoding:
                return False
            else:
                self.cycle.keep_alive = False
                self._give_up_soon()
        if self.transport.is_closing():
            return False
        self._in_time()
        self._late = self.loop.call_later(HALF_CLOSED, self._close)
        return True

    def _parse(self, data: memoryview) -> None:
        """Feed the parser. It leaves a request at the end of a head that asks for an upgrade:
        another one is given that head without the upgrade, and goes on.
        """
        while data:
            try:
                self.parser.feed_data(data)
                return
            except HttpParserUpgrade as upgrade:
                if self._tunnels():
                    return
                data = data[upgrade.args[0] :]
                version = self.parser.get_http_version()
                head = without_upgrade(self.parser.get_method(), self.url, version, self.headers)
                # The old parser takes nothing more after a request that closes the connection.
                self.parser = HttpRequestParser(self)
                self.parser.set_dangerous_leniencies(lenient_data_after_close=True)
                self.parser.feed_data(head)

    def _tunnels(self) -> bool:
        return self.parser.get_method() == b"CONNECT"

    def on_message_begin(self) -> None:
        if self._refusal is not None:
            raise _Refused
        self._in_head = True
        super().on_message_begin()
        self._be_told()

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer is no header of the request (RFC 9110, 6.5.1)
        super().on_header(name, value)
        if len(self.headers) > MAX_HEADERS:
            self._refuse(431, f"the request has over {MAX_HEADERS} headers")
            raise _Refused

    def on_headers_complete(self) -> None:
        if self._refusal is not None:
            return
        if self.parser.should_upgrade() and not self._tunnels():
            return  # the head comes again
        self._progress, self._in_head, self._in_body = True, False, True
        self._in_time()
        if not self._counted:
            self._refuse(503, NO_ROOM)
            return
        if self._tunnels():
            self._refuse(501, "method CONNECT is not supported")
            return
        fault = fault_of_head(self.parser.get_http_version(), self.headers, self.url)
        fault = fault or fault_of_target(self.parser.get_method(), self.url)
        if fault is not None:
            self._refuse(*fault)
            raise _Refused
        most = self.open_connections.may_wait(keyed=self.has_key())
        if len(self.pipeline) >= most:
            self._refuse(503, f"{most} requests wait here for their answers: wait for them")
            raise _Refused
        if not self._arrivals.expect(announced_length(self.headers)):
            self._read_no_more(b"")
            raise _Refused
        self.url, self.headers[:] = in_origin_form(self.url, self.headers)
        super().on_headers_complete()
        self._count_waiting()
        self._place()
        self._coming = self.cycle

    def on_body(self, body: bytes) -> None:
        # As little as can be: it may be called for each byte.
        self._pieces.append(body)

    def _hand_on(self) -> None:
        """Hand on what came of a body, together: it may have come in chunks of one byte."""
        if not self._pieces:
            return
        pieces, self._pieces = self._pieces, []
        body = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._progress = True
        self._arrivals.came_in(len(pieces), len(body))
        self._pace.add(len(body), self.loop.time())
        if self._counted and self._refusal is None:
            super().on_body(body)

    def on_message_complete(self) -> None:
        if self._refusal is not None or self.parser.should_upgrade():
            return
        self._hand_on()
        self._arrivals.body_ended()
        self._progress, self._in_body, self._coming = True, False, None
        self._in_time()
        if self._counted:
            super().on_message_complete()
            self._place()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self._answered = cycle
        super()._start_asgi_task(cycle, app)

    def on_response_complete(self) -> None:
        last = not self.pipeline
        super().on_response_complete()
        self._count_waiting()
        if last:
            self.open_connections.has_no_large_head(self)
        if self.transport.is_closing():
            self._closes()
        if self._refusal is not None:
            if last:
                self._end()
        else:
            # Also while the body of a refused request still comes.
            self._place()

    def send_400_response(self, msg: str) -> None:
        version = self.parser.get_http_version()
        fault = fault_of_coding(version, self.headers) if self._in_head else None
        self._refuse(*fault or (400, "this is not a valid HTTP request"))

    def _in_time(self) -> None:
        if self._late is not None:
            self._late.cancel()
            self._late = None

    def _too_late(self) -> None:
        self._late = None
        if self._in_head:
            self._refuse(408, f"the request's head did not end within {HEAD_SECONDS:g} s")
        else:
            self._close()

    def _check_body(self) -> None:
        """Refuse the request if its body comes too slowly. The time in which what came was not
        read, or not taken by the application, is not the sender's.
        """
        self._late = None
        if self.transport.is_closing():
            return
        if self.flow.read_paused or self._arrivals.behind:
            self._pace.give(CHECK)
        if (fault := self._pace.fault(self.loop.time())) is not None:
            self._refuse(408, fault)
        else:
            self._late = self.loop.call_later(CHECK, self._check_body)

    def _refuse(self, status: int, detail: str) -> None:
        """Read nothing more; answer the whole requests, then this one with a problem document, and
        close.
        """
        if self._refusal is not None:
            return
        self._in_time()
        self._read_no_more(last_answer(status, detail))

    def _read_no_more(self, last: bytes) -> None:
        """Answer the whole requests, then say ``last`` in place of the one that is not whole, and
        close.
        """
        self._refusal = last
        if self.scheme != "https":  # TLS needs all of it
            self._arrivals.forget()
        coming, answered = self._coming, self._answered
        if coming is not None and coming is answered:
            if coming.response_started:
                self._refusal = b""
            self._end()
            return
        if coming is not None and self.pipeline:
            self.pipeline.popleft()  # it is the last of them
        if answered is None or answered.response_complete:
            self._end()

    def _end(self) -> None:
        """Say the last thing and close, unless the answer before said that it closes."""
        if self._refusal and not self.transport.is_closing():
            self.transport.write(self._refusal)
        self._close()


def bounded(connections: Connections) -> type[BoundedProtocol]:
    """The protocol of a server that holds these connections."""
    return type("BoundedProtocol", (BoundedProtocol,), {"open_connections": connections})
