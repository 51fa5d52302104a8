"""An assistant's text in progress as one gateway's subscribers see it: pure, fed with deltas from
Redis and messages from the log.

The two come by different ways and may overtake each other. A text is known by its turn and by
``since``, the log's end when it began: a message at or after ``since`` ends it, and what began at
or before an assistant's message is over. A text that begins while another one is still shown waits
until the message that ends that one has come, or the log has been read up to its beginning.
"""

from __future__ import annotations

import msgspec

from threadfold.streaming.sse_event import SseEvent

_encode = msgspec.json.Encoder().encode
MOST_AHEAD = 2_000
"""Deltas of a next text that are kept back; beyond, the text is read from Redis again."""


class Delta(msgspec.Struct, frozen=True):
    """A piece of the text that ``turn`` is saying since the log's end ``since``; ``offset`` in
    characters.
    """

    turn: str
    since: int
    offset: int
    text: str


class PartialText:
    """The text in progress of one conversation. Every method returns what is to be sent, in
    order.
    """

    def __init__(self) -> None:
        self.turn: str | None = None
        self.since = -1
        self.chars = 0
        self.torn = False
        """Something is missing: the text has to be read from Redis again (:meth:`held`)."""
        self._parts: list[str] = []
        self._over = -1
        self._ahead: list[Delta] = []

    @property
    def waits_for(self) -> int | None:
        """The offset up to which the log has to be read before the next text is shown; None while
        none waits.
        """
        return self._ahead[0].since if self._ahead else None

    def so_far(self) -> list[SseEvent]:
        """What somebody who joins now has to know: all that was said so far."""
        if self.turn is None:
            return []
        self._parts = ["".join(self._parts)]
        return [_said(self.turn, 0, self._parts[0])]

    def delta(self, delta: Delta) -> list[SseEvent]:
        """A piece came."""
        if delta.since <= self._over:
            return []
        if self.turn is None:
            self.turn, self.since, self.chars, self._parts = delta.turn, delta.since, 0, []
        elif (delta.turn, delta.since) != (self.turn, self.since):
            if delta.since >= self.since:
                if len(self._ahead) >= MOST_AHEAD:
                    self._ahead.clear()
                    self.torn = True
                else:
                    self._ahead.append(delta)
            return []
        if delta.offset > self.chars:
            self.torn = True
            return []
        text = delta.text[self.chars - delta.offset :]
        if not text:
            return []
        sent = _said(delta.turn, self.chars, text)
        self._parts.append(text)
        self.chars += len(text)
        return [sent]

    def held(self, turn: str, since: int, text: str) -> list[SseEvent]:
        """What Redis holds, after a subscription was made (again)."""
        self.torn = False
        return self.delta(Delta(turn, since, 0, text))

    def message(self, offset: int, status: str) -> list[SseEvent]:
        """An assistant's message came in the log."""
        self._over = max(self._over, offset)
        sent = self._end(status) if self.turn is not None and self.since <= offset else []
        return sent + self._next()

    def dropped(self, turn: str, since: int) -> list[SseEvent]:
        """A text ended without a message, as nothing had been said yet, or the conversation was
        erased.
        """
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
        return [sent for delta in ahead for sent in self.delta(delta)]

    def _end(self, status: str) -> list[SseEvent]:
        if self.turn is None:
            return []
        data = _encode({"turn_id": self.turn, "offset": self.chars, "ended": status})
        self.turn, self.chars, self._parts = None, 0, []
        return [SseEvent("partial", None, data)]


def _said(turn: str, offset: int, text: str) -> SseEvent:
    return SseEvent("partial", None, _encode({"turn_id": turn, "offset": offset, "delta": text}))
