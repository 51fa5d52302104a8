"""Server-sent events read from bytes: the parser of the HTML standard (section 9.2.6), without any
I/O.
"""

from __future__ import annotations

from typing import NamedTuple

MAX_EVENT = 64 << 20
"""Bytes of one event's lines at most; a stream that goes on without an end of event is refused."""


class ServerSent(NamedTuple):
    """One event of a stream: its name (``message`` where none was given), the id that stood in it
    or None, and its data's lines joined.
    """

    event: str
    id: str | None
    data: str


class StreamTooLong(ValueError):
    """An event, or a line, is longer than :data:`MAX_EVENT`."""


class SseParser:
    """Takes chunks of a stream as they come, split anywhere, and gives the events that are whole.

    ``last_id`` is the id to resume after: of the last block that had one, whether or not it had
    data. ``retry_ms`` is what the server asked to wait before connecting again, None until it did.
    An event that the stream's end cuts off is never given.
    """

    def __init__(self, limit: int = MAX_EVENT) -> None:
        self.last_id: str | None = None
        self.retry_ms: int | None = None
        self._limit = limit
        self._buffer = bytearray()
        self._scanned = 0
        self._begun = False
        self._skip_feed = False
        self._event = ""
        self._id: str | None = None
        self._data: list[str] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[ServerSent]:
        """The events that this chunk completes, in order.

        Raises:
            StreamTooLong: an event goes on beyond the limit.
        """
        self._buffer += chunk
        if not self._begun:
            # A byte order mark may come byte by byte as well.
            if len(self._buffer) < 3 and b"\xef\xbb\xbf".startswith(self._buffer):
                return []
            self._begun = True
            if self._buffer.startswith(b"\xef\xbb\xbf"):
                del self._buffer[:3]
        found: list[ServerSent] = []
        start = 0
        while (line_end := self._next_end(start)) is not None:
            end, start_of_next = line_end
            event = self._line(self._buffer[start:end])
            if event is not None:
                found.append(event)
            start = start_of_next
        del self._buffer[:start]
        self._scanned = len(self._buffer)
        if len(self._buffer) + self._size > self._limit:
            raise StreamTooLong(f"an event of the stream is larger than {self._limit} bytes")
        return found

    def _next_end(self, start: int) -> tuple[int, int] | None:
        """Where the line that begins at ``start`` ends, and the next begins; None where its end has
        not come.
        """
        if self._skip_feed and start < len(self._buffer):
            # The line before ended with CR, the last byte there was: a LF that follows belongs to
            # it.
            self._skip_feed = False
            if self._buffer[start] == 0x0A:
                del self._buffer[start]
                self._scanned = max(start, self._scanned - 1)
        at = max(start, self._scanned)
        line_feed = self._buffer.find(b"\n", at)
        carriage = self._buffer.find(b"\r", at, line_feed if line_feed >= 0 else len(self._buffer))
        if carriage < 0:
            return None if line_feed < 0 else (line_feed, line_feed + 1)
        if carriage + 1 == len(self._buffer):
            self._skip_feed = True
            return carriage, carriage + 1
        return carriage, carriage + (2 if self._buffer[carriage + 1] == 0x0A else 1)

    def _line(self, raw: bytearray) -> ServerSent | None:
        if not raw:
            return self._dispatch()
        name, colon, value = raw.decode("utf-8", "replace").partition(":")
        if not name and colon:
            return None  # a comment: it only keeps the connection alive
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
            self._size += len(raw)
            if self._size > self._limit:
                raise StreamTooLong(f"an event of the stream is larger than {self._limit} bytes")
        elif name == "event":
            self._event = value
        elif name == "id" and "\0" not in value:
            self._id = value
        elif name == "retry" and value.isascii() and value.isdigit():
            self.retry_ms = int(value)
        return None

    def _dispatch(self) -> ServerSent | None:
        event = (
            ServerSent(self._event or "message", self._id, "\n".join(self._data))
            if self._data
            else None
        )
        if self._id is not None:
            self.last_id = self._id or None
        self._event, self._id, self._data, self._size = "", None, [], 0
        return event
