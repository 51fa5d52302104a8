"""The context document: what ``GET …/context`` answers, joined from a render's bytes, and read
straight from a stored window.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from projections.fold.quarantine import quarantine_of
from projections.names import Position
from projections.render.parts import Render
from projections.render.read_header import ReadHeader, lead_of, read_header_of
from projections.storage.chunks import split_chunk
from projections.storage.layout import (
    BASE,
    HEAD,
    Base,
    Head,
    checksum,
    decode_base,
    decode_head,
    numbered,
)
from projections.window.conversation_state import OpenSuspension
from projections.window.meta import ActiveSummary, Meta
from projections.window.window import Window

_encode = msgspec.json.Encoder().encode


def context_document(window: Window, render: Render, fields: bytes | None = None) -> bytes:
    """The JSON document of a window and its render: the render's messages are joined in as they
    are, the rest is small.

    Args:
        fields: what another format has beside its messages, as JSON that begins with a comma.
            None: ``positions``, parallel to ``messages``: the position of each message's event,
            null for a message of no single event (the summary, a pinned result's call, the line
            for what was left out, the answer to an open call).
    """
    meta = window.meta
    header = msgspec.structs.replace(read_header_of(window), suspensions=window.state.suspensions)
    rest = _rest(
        window.partition,
        meta,
        meta.summary,
        header,
        render.tokens,
        render.digest,
        [s.to_dict() for s in render.trace],
    )
    if fields is None:
        shown = [window.position_of(o) if o >= 0 else None for o in render.offsets]
        fields = b',"positions":' + _encode(shown)
    return b'{"messages":' + render.messages + fields + b"," + rest


class Piece(NamedTuple):
    """What a chunk adds to a context: system messages, and rendered messages joined by commas, with
    their positions in the same form.

    ``checksum`` and ``skip`` identify the chunk it was made of.
    """

    checksum: bytes
    skip: int
    system: tuple[bytes, ...]
    system_positions: bytes
    joined: bytes
    positions: bytes


def piece_of(partition: int, value: bytes, skip: int) -> Piece:
    """The piece of a stored chunk whose first ``skip`` entries have left the tail; raises like
    :func:`stored_context`.
    """
    split = split_chunk(value, skip)
    return Piece(
        checksum(value),
        skip,
        split.system,
        _positions(partition, split.system_offsets),
        split.joined,
        _positions(partition, split.offsets),
    )


def _positions(partition: int, offsets: Sequence[int]) -> bytes:
    """The positions of offsets as JSON strings, joined by commas; see :class:`Position`."""
    if not offsets:
        return b""
    between = f'","{partition}-'
    return f'"{partition}-{between.join(map(str, offsets))}"'.encode()


def is_joined(head: Head, max_tokens: int | None) -> bool:
    """Whether the context of a window with this head is its stored messages as they are: nothing
    shortened, answered or left out.
    """
    header = head.read_header
    return header.flat and not head.erased and (max_tokens is None or header.tokens <= max_tokens)


def bodies_of(partition: int, head: Head, base: Base, pieces: Sequence[Piece]) -> list[bytes]:
    """The messages of a window of which :func:`is_joined` is true, in their order: each alone, or
    several that are joined by commas.
    """
    bodies = lead_of(base.state, base.summary, head.read_header.omitted, partition)
    at = len(base.state.pinned)
    bodies[at:at] = [body for piece in pieces for body in piece.system]
    return bodies + [piece.joined for piece in pieces if piece.joined]


def join_context(
    partition: int, head: Head, base: Base, pieces: Sequence[Piece], bodies: Sequence[bytes]
) -> bytes:
    """The context document of a window of which :func:`is_joined` is true, from its parts;
    ``bodies`` is :func:`bodies_of` them. No message is parsed.
    """
    omitted = head.read_header.omitted
    pinned, positions = base.state.pinned, []
    if pinned:
        positions.append(_positions(partition, [item.offset for item in pinned]))
    positions += [piece.system_positions for piece in pieces if piece.system]
    if base.summary is not None:
        positions.append(b"null")
    for pin in base.state.pins:
        positions += (b"null", _positions(partition, [pin.offset]))
    if omitted is not None:
        positions.append(b"null")
    positions += [piece.positions for piece in pieces if piece.joined]
    trace = [step.to_dict() for step in head.read_header.trace]
    rest = _rest(
        partition,
        head,
        base.summary,
        head.read_header,
        head.read_header.tokens,
        head.messages.hex(),
        trace,
    )
    # One join, so that a large text is copied once.
    parts = [part for body in bodies for part in (b",", body)][1:]
    shown = (b'],"positions":[', b",".join(positions), b"],", rest)
    return b"".join((b'{"messages":[', *parts, *shown))


def stored_context(
    partition: int, fields: Mapping[bytes, bytes], max_tokens: int | None = None
) -> bytes | None:
    """The context document of a stored window in OpenAI's format.

    Returns None when the window has to be rendered instead (see :func:`is_joined`); where a
    document is returned, it is the one that ``context_document`` makes of the rendered window, byte
    for byte.

    Raises:
        ValueError, KeyError, msgspec.DecodeError: the fields are not what was stored.
    """
    head = decode_head(fields[HEAD])
    if not is_joined(head, max_tokens):
        return None
    pieces = [
        piece_of(partition, value, 0 if i else head.skip)
        for i, (_, value) in enumerate(numbered(fields))
    ]
    base = decode_base(fields[BASE])
    return join_context(partition, head, base, pieces, bodies_of(partition, head, base, pieces))


def suspension_of(partition: int, open_: OpenSuspension) -> dict[str, Any]:
    """An open suspension as callers see it."""
    return {
        "suspension_id": open_.suspension_id,
        "kind": open_.kind,
        "tool_call_id": open_.tool_call_id,
        "prompt": open_.prompt,
        "expires_at": open_.expires_at,
        "position": str(Position(partition, open_.offset)),
    }


def summary_of(partition: int, summary: ActiveSummary) -> dict[str, Any]:
    """The active summary as callers see it."""
    return {
        "summary_id": summary.summary_id,
        "position": str(Position(partition, summary.offset)),
        "text": summary.text,
        "tokens": summary.tokens,
        "trust": summary.trust,
        "to": str(Position(partition, summary.to)),
        "previous": summary.previous,
    }


def _rest(
    partition: int,
    meta: Meta | Head,
    summary: ActiveSummary | None,
    header: ReadHeader,
    tokens: int,
    digest: str,
    trace: list[dict[str, Any]],
) -> bytes:
    """Everything of the document behind the messages, without the opening brace."""
    rest: dict[str, Any] = {
        "tokens": tokens,
        "budget": header.budget,
        "ceiling": header.ceiling,
        "utilization": round(tokens / header.ceiling, 6),
        "position": str(Position(partition, meta.position)) if meta.position >= 0 else None,
        "count": meta.count,
        "digest": meta.digest.hex(),
        "render_digest": digest,
        "summary": None if summary is None else summary_of(partition, summary),
        "suspensions": [suspension_of(partition, s) for s in header.suspensions],
        "state": header.state,
        "awaits": header.awaits,
        "guard": header.guard,
        "trace": trace,
    }
    if meta.quarantine is not None:
        rest["parked"] = quarantine_of(partition, meta.quarantine)
    return _encode(rest)[1:]
