"""An event for subscribers, and its form in a stream of server-sent events (WHATWG HTML, section
9.2).
"""

from __future__ import annotations


class SseEvent:
    """An event for subscribers: its kind, the id to resume after it (None: there is none), and its
    data as JSON.

    Many subscribers share one instance, so its frame is made once. A comment has no kind, and its
    text is ``data``. ``holders``: how many times it waits to be sent (``threadfold.streaming
    .unsent``). ``of`` is the name of a conversation: once that is erased, the event is not sent.
    """

    __slots__ = ("_frame", "data", "event", "holders", "id", "of")

    def __init__(self, event: str, id: str | None, data: bytes, of: bytes = b"") -> None:  # noqa: A002 (the standard's name)
        self.event = event
        self.id = id
        self.data = data
        self.of = of
        self.holders = 0
        self._frame: bytes | None = None

    @property
    def frame(self) -> bytes:
        """Its bytes in the stream. The data must not contain line breaks."""
        if self._frame is None:
            resume = "" if self.id is None else f"id: {self.id}\n"
            head = f"event: {self.event}\n{resume}data: " if self.event else ": "
            self._frame = head.encode() + self.data + b"\n\n"
        return self._frame

    def __repr__(self) -> str:
        return f"SseEvent({self.event!r}, {self.id!r}, {self.data!r})"


def comment(text: str) -> SseEvent:
    """A line that clients ignore."""
    return SseEvent("", None, text.encode())


HEARTBEAT = comment("heartbeat")
RETRY = b"retry: 1000\n\n"
"""The first line of a stream: the ms that a client waits before it connects again."""
