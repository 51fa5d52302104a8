"""The span that a request asks a summary of, read back from the log."""

from __future__ import annotations

from collections.abc import AsyncIterator
from hashlib import sha256
from typing import NamedTuple

from projections.errors import ThreadfoldError
from projections.events.token_cost import trusted_tokens
from projections.events.types import AnyEvent, MessageEvent, Summary, ToolResultEvent, absolute
from projections.fold.replay import Logged
from projections.names import Key
from projections.window.recent_ids import LIMIT
from streams.compaction.requests import CompactionRequest, Piece, piece_offsets
from streams.log.log import Log
from streams.log.said import chars_of, said_at, said_between, unsaid

CHARS_A_TOKEN, LEAST = 4, 8
"""What an event is counted as that costs a window no tokens: it is read and named all the same."""


class SpanLost(ThreadfoldError):
    """The log does not hold the events a request names; a newer request will name others, or the
    log lost its past.
    """


class Span(NamedTuple):
    """All events of a span as offsets and ids; those of them to be summarised, without the bytes of
    images and files, and their tokens. ``whole``: no cap made it shorter than was asked for.
    """

    events: list[tuple[int, str]]
    summarised: list[Logged]
    tokens: int
    whole: bool


async def read_span(log: Log, request: CompactionRequest, key: Key, most_tokens: int) -> Span:
    """The span of a request, or its begin where that has more than ``most_tokens``.

    A span that is cut ends where the window takes a summary to end (``request.ends``), if need be
    beyond the cap.

    Raises:
        SpanLost: the log does not hold it.
    """
    named: list[tuple[int, str]] = []
    summarised: list[Logged] = []
    costs: list[int] = []
    read, end = 0, request.last
    for piece in request.pieces:
        dead = set(absolute(piece.gone))
        async for offset, event in _read_piece(log, piece, key, request.partition):
            if offset > end:
                break
            out = offset in dead or any(first <= offset <= last for first, last in piece.voids)
            if piece.live and not out:
                costs.append(_tokens(event, request.encoding))
                read += costs[-1] or max(LEAST, chars_of(event) // CHARS_A_TOKEN)
                if read > most_tokens and summarised and end == request.last:
                    end = _cut(request, summarised[-1][0])
                # Where a span cannot end, any number of events may stand that cost nothing.
                full = read > most_tokens and not costs[-1]
                summarised.append((offset, unsaid(event) if full else event))
            named.append((offset, event.id))
        if piece.last > end:
            break
    if not named:
        raise SpanLost(
            f"the log holds no event of {key} between offsets {request.first} and {request.last}"
        )
    # The one that was too many was taken before it was seen that it is.
    named = [one for one in named if one[0] <= end]
    kept = [one for one in summarised if one[0] <= end]
    return Span(named, kept, sum(costs[: len(kept)]), end == request.last)


async def _read_piece(log: Log, piece: Piece, key: Key, partition: int) -> AsyncIterator[Logged]:
    offsets = piece_offsets(piece)
    if offsets is not None:
        wanted = iter(offsets)
        async for step in said_at(log, key, partition, offsets):
            for offset, event in step:
                if (lost := next(wanted)) != offset:
                    raise _lost(key, lost)
                yield offset, event
        if (lost := next(wanted, -1)) >= 0:
            raise _lost(key, lost)
        return
    seen: dict[str, None] = {}
    async for offset, event in said_between(log, key, partition, piece.first, piece.last):
        # A repeat within the range was applied once: of as many ids as the fold knows.
        if event.id not in seen:
            seen[event.id] = None
            if len(seen) > LIMIT:
                del seen[next(iter(seen))]
            yield offset, event


def _lost(key: Key, offset: int) -> SpanLost:
    return SpanLost(f"the log holds no event of {key} at offset {offset}, which its window names")


def _tokens(event: AnyEvent, encoding: str) -> int:
    if isinstance(event, MessageEvent | ToolResultEvent):
        return trusted_tokens(event.data, event.tokens, encoding)
    return 0


def _cut(request: CompactionRequest, last: int) -> int:
    """Where a span of which no more than up to offset ``last`` fits one input may end: at the last
    place before, else at the next.
    """
    ends = absolute(request.ends)
    if any(
        piece.live and piece.offsets is None and piece.first <= last <= piece.last
        for piece in request.pieces
    ):
        return last
    return max(
        (end for end in ends if end <= last),
        default=min((end for end in ends if end > last), default=request.last),
    )


def content_of(request: CompactionRequest, span: Span, previous: Summary | None) -> bytes:
    """A digest of all that a summary's text is made of, and who is asked for it."""
    who = f"{request.tenant}/{request.conversation}\n{request.policy}\n{request.summarizer}\n"
    found = sha256(who.encode())
    found.update(",".join(str(offset) for offset, _ in span.summarised).encode())
    if previous is not None:
        found.update(b"\n" + previous.text.encode(errors="surrogatepass"))
    return found.digest()


def standing_of(positions: list[int], stands: str | None) -> list[int] | None:
    """The offsets of a span's events that were summarised; None where the summary does not say."""
    if stands is None:
        return None
    return [offset for offset, one in zip(absolute(positions), stands, strict=False) if one == "1"]
