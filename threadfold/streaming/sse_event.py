"""What subscribers get, and how it stands in a stream of server-sent events (WHATWG HTML, section
9.2).
"""

from __future__ import annotations


class SseEvent:
    """One thing that is sent to subscribers: the kind of event, its id to resume by (None: not to
    be resumed by), and its data as JSON.

    Many subscribers share one instance, so its frame is made once. A comment has no kind, and its
    text as ``data``.
    """

    __slots__ = ("_frame", "data", "event", "id")

    def __init__(self, event: str, id: str | None, data: bytes) -> None:  # noqa: A002 (the standard's name)
        self.event = event
        self.id = id
        self.data = data
        self._frame: bytes | None = None

    @property
    def frame(self) -> bytes:
        """Its bytes in the stream. The data must not hold line ends."""
        if self._frame is None:
            if not self.event:
                self._frame = b": " + self.data + b"\n\n"
            elif self.id is None:
                self._frame = b"event: " + self.event.encode() + b"\ndata: " + self.data + b"\n\n"
            else:
                self._frame = (
                    b"event: "
                    + self.event.encode()
                    + b"\nid: "
                    + self.id.encode()
                    + b"\ndata: "
                    + self.data
                    + b"\n\n"
                )
        return self._frame

    def __repr__(self) -> str:
        return f"Sent({self.event!r}, {self.id!r}, {self.data!r})"


def comment(text: str) -> SseEvent:
    """A line that clients pass over."""
    return SseEvent("", None, text.encode())


HEARTBEAT = comment("heartbeat")
RETRY = b"retry: 1000\n\n"
"""What a stream begins with: how long a client waits before it connects again, in ms."""
