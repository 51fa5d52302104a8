"""Tool calls by identity: what makes two of them the same call, how many came in a row, and which
ids were used before.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256

import msgspec
from msgspec import Struct

from projections.events.content import ToolCall
from projections.events.json_depth import nested_beyond
from projections.events.json_limits import MAX_DEPTH

_MARK = 4
_MOST = 256
_canonical = msgspec.json.Encoder(order="sorted").encode


class GuardRun(Struct, array_like=True, frozen=True):
    """Identical calls in a row so far: the hash of :func:`call_hash`, the tool, how many."""

    sha: bytes
    tool: str
    count: int


CANONICAL_WITHIN = 1 << 16
"""Characters of a message's arguments that are made canonical: a fold holds up its partition."""


def named_calls(calls: Sequence[ToolCall]) -> tuple[tuple[str, str, bytes], ...]:
    """The id, the tool and the :func:`call_hash` of each call of a message."""
    whole = sum(len(call.arguments) for call in calls) <= CANONICAL_WITHIN
    return tuple((c.id, c.name, call_hash(c.name, c.arguments, canonical=whole)) for c in calls)


def call_hash(tool: str, arguments: str, *, canonical: bool = True) -> bytes:
    """The SHA-256 of a tool's name and its canonical arguments (JSON with sorted keys and no
    blanks; what is no JSON, as it is).

    ``canonical``: whether the arguments are made canonical; else they count as they are.
    """
    written = arguments.encode("utf-8", "surrogatepass")
    if canonical and not nested_beyond(written, MAX_DEPTH):
        # What a model wrote otherwise counts as it is.
        with suppress(msgspec.DecodeError, UnicodeError, OverflowError):
            written = _canonical(msgspec.json.decode(written))
    return sha256(tool.encode("utf-8", "surrogatepass") + b"\n" + written).digest()


class Used:
    """The ids of the last 256 calls, as 4 bytes of the SHA-256 of each: kept as plain bytes, as a
    window stores it.

    An id that is taken for another one (a chance of 256 in 2^32) is only given a longer name where
    each has to be unique.
    """

    @staticmethod
    def add(used: bytes, call_id: str) -> bytes:
        """With one id more."""
        return (used + _mark(call_id))[-_MARK * _MOST :]

    @staticmethod
    def holds(used: bytes, call_id: str) -> bool:
        """Whether the id is among them."""
        mark = _mark(call_id)
        at = used.find(mark)
        while at >= 0 and at % _MARK:
            at = used.find(mark, at + 1)
        return at >= 0


def _mark(call_id: str) -> bytes:
    return sha256(call_id.encode("utf-8", "surrogatepass")).digest()[:_MARK]
