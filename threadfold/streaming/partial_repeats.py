"""Tells what says an ended text again from what begins another one.

One turn may have several texts in a row, and a request may come once more, or late, after its
text had its message. What agrees with a text that ended, is a repeat. A next text may begin with
the same words: it is one as soon as it differs, and begins with what was taken for a repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple


class EndedText(NamedTuple):
    """The beginning of a text that ended with a message; ``repeated`` of its characters were said
    again without a gap.
    """

    turn: str
    since: int
    repeated: int
    text: str
    raw: bytes
    """``text`` as it is stored: its last character may be cut."""

    @classmethod
    def parse(cls, stored: bytes) -> EndedText:
        """Read what :meth:`stored` made."""
        turn, since, repeated, raw = stored.split(b"\n", 3)
        return cls(turn.decode(), int(since), int(repeated), raw.decode(errors="ignore"), raw)

    def stored(self, repeated: int | None = None) -> bytes:
        """The form in Redis, with another number of ``repeated`` characters if that is given."""
        said = self.repeated if repeated is None else repeated
        return f"{self.turn}\n{self.since}\n{said}\n".encode() + self.raw

    def has(self, delta: str, offset: int) -> bool:
        """Whether the text has this delta there."""
        return offset + len(delta) <= len(self.text) and self.text.startswith(delta, offset)


def whole_delta(texts: Sequence[EndedText], delta: str, offset: int) -> str | None:
    """A delta of a turn that has no text now, with what stands before it in its text: a beginning
    that was taken for a repeat, or nothing. None where it repeats one of the ended ``texts``.
    """
    if any(text.has(delta, offset) for text in texts):
        return None
    return next((text.text[:offset] for text in texts if text.repeated >= offset), "") + delta
