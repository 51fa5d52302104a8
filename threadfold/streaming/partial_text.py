"""An assistant's text in progress as one gateway's subscribers see it. It is pure: its inputs are
deltas from Redis and messages from the log.

The two may overtake each other. A turn and ``since``, the log's end when the text began, identify a
text. A message at or after ``since`` ends it; what began at or before an assistant's message is
over. A text that begins while another one is shown waits until the message that ends that one has
come, or the log has been read up to its own beginning.
"""

from __future__ import annotations

import msgspec

from threadfold.streaming.sse_event import SseEvent

_encode = msgspec.json.Encoder().encode
MOST_AHEAD = 2_000
"""Deltas of a next text that are kept; beyond that the text is read from Redis again."""


class Delta(msgspec.Struct, frozen=True):
    """A piece of the text that ``turn`` began at the log's end ``since``.

    ``offset`` is in characters.
    """

    turn: str
    since: int
    offset: int
    text: str


class PartialText:
    """The text in progress of one conversation. Its methods return the events to send, in order."""

    def __init__(self) -> None:
        self.turn: str | None = None
        self.since = -1
        self.chars = 0
        self.incomplete = False
        """A piece is missing: read the text from Redis again (:meth:`stored`)."""
        self._parts: list[bytes] = []
        """In UTF-8: a text with one sign beyond the basic plane takes four times that as text."""
        self._over = -1
        self._ahead: list[Delta] = []

    @property
    def waits_for(self) -> int | None:
        """The offset up to which the log has to be read before the next text is shown; None while
        none waits.
        """
        return self._ahead[0].since if self._ahead else None

    def snapshot(self) -> list[SseEvent]:
        """The whole text so far, for a subscriber that joins now."""
        if self.turn is None:
            return []
        self._parts = [b"".join(self._parts)]
        return [_sse(self.turn, 0, self._parts[0].decode())]

    def delta(self, delta: Delta) -> list[SseEvent]:
        """Take a piece from Redis."""
        if delta.since <= self._over:
            return []
        if self.turn is None:
            self.turn, self.since, self.chars, self._parts = delta.turn, delta.since, 0, []
        elif (delta.turn, delta.since) != (self.turn, self.since):
            if delta.since >= self.since:
                if len(self._ahead) >= MOST_AHEAD:
                    self._ahead.clear()
                    self.incomplete = True
                else:
                    self._ahead.append(delta)
            return []
        if delta.offset > self.chars:
            self.incomplete = True
            return []
        text = delta.text[self.chars - delta.offset :]
        if not text:
            return []
        event = _sse(delta.turn, self.chars, text)
        self._parts.append(text.encode())
        self.chars += len(text)
        return [event]

    def stored(self, turn: str, since: int, text: str) -> list[SseEvent]:
        """Take the text as Redis stores it, after a subscription was made (again)."""
        self.incomplete = False
        return self.delta(Delta(turn, since, 0, text))

    def message(self, offset: int, status: str) -> list[SseEvent]:
        """Take an assistant's message from the log."""
        self._over = max(self._over, offset)
        ended = self._end(status) if self.turn is not None and self.since <= offset else []
        return ended + self._next()

    def dropped(self, turn: str, since: int) -> list[SseEvent]:
        """A text ended without a message, because it was empty or the conversation was erased."""
        self._ahead = [delta for delta in self._ahead if (delta.turn, delta.since) != (turn, since)]
        if (turn, since) == (self.turn, self.since):
            return self._end("interrupted") + self._next()
        return []

    def passed(self, upto: int) -> list[SseEvent]:
        """The log has been read up to an offset (excluded)."""
        waits = self.waits_for
        if waits is None or upto < waits:
            return []
        return self._end("interrupted") + self._next()

    def _next(self) -> list[SseEvent]:
        ahead, self._ahead = self._ahead, []
        return [event for delta in ahead for event in self.delta(delta)]

    def _end(self, status: str) -> list[SseEvent]:
        if self.turn is None:
            return []
        data = _encode({"turn_id": self.turn, "offset": self.chars, "ended": status})
        self.turn, self.chars, self._parts = None, 0, []
        return [SseEvent("partial", None, data)]


def _sse(turn: str, offset: int, text: str) -> SseEvent:
    return SseEvent("partial", None, _encode({"turn_id": turn, "offset": offset, "delta": text}))
