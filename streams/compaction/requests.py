"""Compaction requests: what the projector asks the compactor to summarise. Ids derive from what is
asked, so repeats are the same.
"""

from __future__ import annotations

from hashlib import sha256

import msgspec

from projections.events.types import absolute, delta
from projections.policy.policy import Policy
from projections.reducers.due import places
from projections.window.entry import EARLY, Kind
from projections.window.window import Window


class Piece(msgspec.Struct, omit_defaults=True):
    """A run of a span: offsets (delta-encoded) where they are known, else the bounds to scan;
    ``live`` is False for abandoned events.

    Of a live one the offsets in ``gone`` (delta-encoded) and within ``voids`` (bounds) belong to
    the span, and are not summarised.
    """

    first: int
    last: int
    offsets: list[int] | None = None
    live: bool = True
    gone: list[int] = []
    voids: list[tuple[int, int]] = []


class CompactionRequest(msgspec.Struct, omit_defaults=True):
    """A request to summarise offsets ``first`` to ``last`` of a conversation, in the partition its
    key says, but for those in ``kept``.
    """

    request_id: str
    tenant: str
    conversation: str
    generation: int
    partition: int
    first: int
    last: int
    pieces: list[Piece]
    reason: str
    summarizer: str
    max_tokens: int
    encoding: str
    policy: str
    previous: str | None = None
    previous_offset: int | None = None
    known_to: int = -1
    """The last event that the window had folded."""
    rollback: int | None = None
    left_behind: list[int] = []
    """What came after the span and before the last rollback, delta-encoded: an answer to the same
    question may be among it.
    """
    kept: list[int] = []
    apart: list[int] = []
    """Results of the span that wait for their calls no more, delta-encoded: they are left out."""
    ends: list[int] = []
    """Where a span that is too long for one input may end instead, delta-encoded; any event of a
    piece without offsets will do, too.
    """
    traceparent: str | None = None
    """Of the event by which it became due, if somebody traces."""


def policy_version(policy: Policy) -> str:
    """A short name for a policy's content: the first 16 hex digits of the SHA-256 of its canonical
    JSON.
    """
    return sha256(msgspec.json.encode(policy, order="deterministic")).hexdigest()[:16]


def request_for(window: Window, generation: int) -> CompactionRequest | None:
    """The request a due window makes, None when it is not due."""
    due, meta = window.meta.due, window.meta
    if due is None:
        return None
    pieces: list[Piece] = []
    kept = set(due.kept)
    for entry in window.tail:
        if entry.start > due.last:
            break
        if entry.offset in kept:
            continue
        live = entry.kind not in (Kind.ABANDONED, Kind.NOTE)
        offsets, end = entry.offsets(), entry.offset
        gone = [offset for offset in absolute(entry.gone or []) if offset <= due.last]
        if end > due.last:
            # The span was marked before these entries were held as one range, and ends inside it.
            offsets, end = (
                None if offsets is None else [offset for offset in offsets if offset <= due.last],
                due.last,
            )
        last = pieces[-1] if pieces else None
        if (
            last is not None
            and last.offsets is not None
            and offsets is not None
            and last.live == live
        ):
            last.offsets += offsets
            last.gone += gone
            last.last = end
        else:
            pieces.append(Piece(entry.start, end, offsets, live, gone, entry.voids or []))
    for piece in pieces:
        piece.offsets = None if piece.offsets is None else delta(piece.offsets)
        piece.gone = delta(piece.gone)
    previous = meta.summary
    version = policy_version(window.policy)
    asked = (
        str(window.key),
        due.first,
        due.last,
        due.kept,
        previous.summary_id if previous else None,
        meta.rollback,
        version,
    )
    policy = window.policy
    closing = policy.close_summarizer if due.reason != "budget" else None
    return CompactionRequest(
        request_id=sha256(msgspec.json.encode(asked)).hexdigest()[:32],
        tenant=window.key.tenant,
        conversation=window.key.conversation,
        generation=generation,
        partition=window.partition,
        first=due.first,
        last=due.last,
        pieces=pieces,
        reason=due.reason,
        summarizer=closing or policy.summarizer,
        max_tokens=policy.summary_max_tokens,
        encoding=policy.encoding,
        policy=version,
        previous=previous.summary_id if previous else None,
        previous_offset=previous.offset if previous else None,
        known_to=meta.position,
        rollback=meta.rollback,
        left_behind=_left_behind(window, due.last),
        kept=delta(list(due.kept)),
        apart=delta(_apart(window, due.last, kept)),
        ends=delta(places(window.tail, due, window.covered_to)),
    )


def _apart(window: Window, last: int, kept: set[int]) -> list[int]:
    """The results in a span that came before their calls and are left out: no call gets them."""
    return [
        entry.offset
        for entry in window.tail
        if entry.link == EARLY and entry.out and entry.offset <= last and entry.offset not in kept
    ]


def _left_behind(window: Window, last: int) -> list[int]:
    """The events between a span and the last rollback, as far as the recent ids know."""
    ids, rollback = window.recent_ids, window.meta.rollback
    if rollback is None or rollback <= last:
        return []
    return delta(ids.between(max(last + 1, ids.since), rollback - 1) or [])


def event_id_of(summary_id: str) -> str:
    """The id of the event that is a summary."""
    return f"summary-{summary_id}"


def piece_offsets(piece: Piece) -> list[int] | None:
    """The absolute offsets of a piece, None when they have to be scanned for."""
    return None if piece.offsets is None else absolute(piece.offsets)


Asked = tuple[int, str, str, str, int | None, str]


def what_is_asked(request: CompactionRequest) -> Asked:
    """What a request asks for, whichever rollbacks it knows, and whatever they abandoned in its
    span.
    """
    return (
        request.generation,
        request.tenant,
        request.conversation,
        _standing(request),
        request.previous_offset,
        request.policy,
    )


def _standing(request: CompactionRequest) -> str:
    """A digest of the events that are to be summarised."""
    found = sha256()
    for piece in request.pieces:
        if not piece.live:
            continue
        offsets, gone = piece_offsets(piece), set(absolute(piece.gone))
        if offsets is None:
            found.update(msgspec.json.encode((piece.first, piece.last, piece.gone, piece.voids)))
            continue
        for offset in offsets:
            if offset not in gone and not any(a <= offset <= b for a, b in piece.voids):
                found.update(b"%d " % offset)
    return found.hexdigest()
