"""The context document: what ``GET …/context`` answers, joined from a render's bytes, and read straight from a stored window."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import sha256
from typing import Any

import msgspec

from projections.chunks import bodies_after, decode_chunk, entries_of
from projections.lanes import RENDERED, Kind
from projections.layout import BASE, HEAD, Head, decode_base, decode_head, numbered
from projections.names import Position
from projections.render import Render, summary_body
from projections.view import View, view_of
from projections.window import InForce, Meta, Window

_encode = msgspec.json.Encoder().encode


def context_document(window: Window, render: Render, fmt_fields: bytes = b"") -> bytes:
    """The JSON document of a window and its render: the render's messages are joined in as they are, the rest is small."""
    meta = window.meta
    rest = _rest(window.partition, meta, meta.summary, view_of(window), render.tokens, render.digest, [s.to_dict() for s in render.trace])
    return b'{"messages":' + render.messages + fmt_fields + b"," + rest


def stored_context(partition: int, fields: Mapping[bytes, bytes], max_tokens: int | None = None) -> bytes | None:
    """The context document of a stored window in OpenAI's format, with its bytes joined and no message parsed.

    Returns None when the window has to be rendered instead (something in it is shortened, answered or left out, or it is larger than
    ``max_tokens``); where a document is returned, it is the one that ``context_document`` makes of the rendered window, byte for byte.

    Raises:
        ValueError, KeyError, msgspec.DecodeError: the fields are not what was stored.
    """
    head = decode_head(fields[HEAD])
    view = head.view
    if head.erased or not view.flat or (max_tokens is not None and view.tokens > max_tokens):
        return None
    base = decode_base(fields[BASE])
    bodies = [item.body for item in base.lanes.pinned]
    tail: list[bytes] = []
    skip = head.skip
    for _, value in numbered(fields):
        chunk = decode_chunk(value)
        if chunk.mixed:
            for entry in entries_of(chunk)[skip:]:
                if entry.kind in RENDERED:
                    tail.append(entry.body)
                elif entry.kind == Kind.SYSTEM:
                    bodies.append(entry.body)
        elif joined := bodies_after(chunk, skip):
            tail.append(joined)
        skip = 0
    if base.summary is not None:
        bodies.append(summary_body(base.summary))
    messages = b"[" + b",".join(bodies + tail) + b"]"
    rest = _rest(partition, head, base.summary, view, view.tokens, sha256(messages).hexdigest(), [])
    return b"".join((b'{"messages":', messages, b",", rest))


def _rest(
    partition: int, meta: Meta | Head, summary: InForce | None, view: View, tokens: int, digest: str, trace: list[dict[str, Any]]
) -> bytes:
    """Everything of the document behind the messages, without the opening brace."""

    def position_of(offset: int) -> str:
        return str(Position(partition, offset))

    rest = {
        "tokens": tokens,
        "budget": view.budget,
        "ceiling": view.ceiling,
        "utilization": round(tokens / view.ceiling, 6),
        "position": position_of(meta.position) if meta.position >= 0 else None,
        "count": meta.count,
        "digest": meta.digest.hex(),
        "render_digest": digest,
        "summary": None
        if summary is None
        else {
            "summary_id": summary.summary_id,
            "position": position_of(summary.offset),
            "text": summary.text,
            "tokens": summary.tokens,
            "trust": summary.trust,
            "to": position_of(summary.to),
            "previous": summary.previous,
        },
        "suspensions": [
            {
                "suspension_id": s.suspension_id,
                "kind": s.kind,
                "tool_call_id": s.tool_call_id,
                "prompt": s.prompt,
                "expires_at": s.expires_at,
                "position": position_of(s.offset),
            }
            for s in view.suspensions
        ],
        "state": view.state,
        "guard": view.guard,
        "trace": trace,
    }
    return _encode(rest)[1:]
