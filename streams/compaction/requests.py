"""Compaction requests: what the projector asks the compactor to summarise. Ids derive from what is
asked, so repeats are the same.
"""

from __future__ import annotations

from collections.abc import Callable
from hashlib import sha256

import msgspec

from projections.events.types import absolute, delta
from projections.fold.outcomes import id_hash_of
from projections.policy.policy import Policy
from projections.reducers.due import places
from projections.window.entry import Kind
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
    rollback: int | None = None
    abandoned: int | None = None
    """Where a rollback left behind an answer to the same question."""
    kept: list[int] = []
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

    def id_of(rollback: int | None) -> str:
        predecessor = previous.summary_id if previous else None
        asked = (str(window.key), due.first, due.last, due.kept, predecessor, rollback, version)
        return sha256(msgspec.json.encode(asked)).hexdigest()[:32]

    policy = window.policy
    closing = policy.close_summarizer if due.reason != "budget" else None
    return CompactionRequest(
        request_id=id_of(meta.rollback),
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
        rollback=meta.rollback,
        abandoned=_abandoned_answer(window, due.last, id_of),
        kept=delta(list(due.kept)),
        ends=delta(places(window.tail, due, window.covered_to)),
    )


def _abandoned_answer(window: Window, last: int, id_of: Callable[[int | None], str]) -> int | None:
    """Where the latest answer stands that was asked for by ``id_of`` an earlier rollback (or none),
    among the recent ids; None where there is none, or no rollback came after the span.
    """
    ids, rollback = window.recent_ids, window.meta.rollback
    if rollback is None or rollback <= last:
        return None
    earlier = ids.between(ids.since, rollback - 1) or []
    found = (ids.find(id_hash_of(event_id_of(id_of(known)))) for known in (None, *earlier))
    return max((seen.offset for seen in found if seen is not None), default=None)


def event_id_of(summary_id: str) -> str:
    """The id of the event that is a summary."""
    return f"summary-{summary_id}"


def piece_offsets(piece: Piece) -> list[int] | None:
    """The absolute offsets of a piece, None when they have to be scanned for."""
    return None if piece.offsets is None else absolute(piece.offsets)


Asked = tuple[int, str, str, int, int, tuple[int, ...], int | None, str, int | None]


def what_is_asked(request: CompactionRequest) -> Asked:
    """What a request asks for, whichever rollback it knows. A window that says where rollbacks left
    an answer behind does not wait for that one.
    """
    return (
        request.generation,
        request.tenant,
        request.conversation,
        request.first,
        request.last,
        tuple(request.kept),
        request.previous_offset,
        request.policy,
        request.abandoned,
    )
