"""Spill: a tool result that is too long for one event is stored as pieces, and the result holds a
preview and their positions.

The pieces are events of the same conversation (``tool.result.chunk``). They are appended and
acknowledged before the result that names them. Windows and summarisers see the preview; a reader of
the result's position gets the whole text or a page of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import Any, NamedTuple

import orjson

from projections.errors import EventTooLarge
from projections.events.validation import Record, make_record
from projections.names import Position
from projections.policy.policy import Policy
from streams.log.log import Log
from threadfold.service.pinned_limit import PinnedExcess

MAX_CHUNKS = 256
"""The maximum number of pieces of a result. A longer text has larger pieces."""
_ESCAPED = 6
"""The maximum number of bytes of a character in JSON (``\\u0001``)."""
_ENVELOPE_BYTES = 2_048
"""Bytes reserved for a piece's envelope: the conversation's name twice and two ids."""


class Spilled(NamedTuple):
    """A spilled result: its index in the list, its pieces, its ``spill`` without positions."""

    at: int
    chunks: list[Record]
    spill: dict[str, Any]


class Drafts(NamedTuple):
    """Checked events, ready for the log. ``records`` holds previews of spilled results; ``tokens``
    counts each record. ``made_ids`` are the ids of events that came without one. ``pinned_excess``
    is to be checked against the conversations' own limits before anything is appended.
    """

    records: list[Record]
    spilled: list[Spilled]
    tokens: list[int]
    made_ids: frozenset[str] = frozenset()
    pinned_excess: Sequence[PinnedExcess] = ()

    def and_(self, more: Drafts) -> Drafts:
        """These and the next ones of their list."""
        self.records.extend(more.records)
        self.spilled.extend(more.spilled)
        self.tokens.extend(more.tokens)
        return self._replace(
            made_ids=self.made_ids | more.made_ids,
            pinned_excess=[*self.pinned_excess, *more.pinned_excess],
        )


class Preview(NamedTuple):
    """The shortened content of a long result, its whole text, and its parts' lengths."""

    content: Any
    text: str
    parts: list[int | None] | None


def preview_of(content: object, policy: Policy, where: str) -> Preview | None:
    """The preview of a result's content; None if it fits one event or has no valid form.

    The text parts of a list count together and become one preview; the other parts stay.

    Raises:
        EventTooLarge: the text is over the policy's ``max_result_bytes``.
    """
    found = text_and_parts(content)
    if found is None:
        return None
    text, parts = found
    # A character has at most four bytes, so most short texts are not encoded here.
    if len(text) * 4 > policy.max_result_bytes:
        try:
            size = len(text.encode())
        except UnicodeEncodeError:
            return None  # not Unicode: the check of the event reports it
        if size > policy.max_result_bytes:
            raise EventTooLarge(
                f"{where}: field content: {size} bytes of text are over the limit of"
                f" {policy.max_result_bytes} bytes for one result"
            )
    if not 0 < policy.spill_chars < len(text):
        return None
    short = shortened(text, min(policy.soft_trim_chars, policy.spill_chars))
    if parts is None:
        return Preview(short, text, None)
    assert isinstance(content, list)
    kept = [part for part, length in zip(content, parts, strict=True) if length is None]
    kept.insert(
        next(i for i, length in enumerate(parts) if length is not None),
        {"type": "text", "text": short},
    )
    return Preview(kept, text, parts)


def shortened(text: str, keep: int) -> str:
    """The head and the tail of a text, ``keep`` characters in all. A line between them says what is
    missing and where it is.
    """
    head, tail = keep - keep // 2, keep // 2
    left_out = f"{len(text) - keep} of {len(text)} characters"
    line = (
        f"[{left_out} left out here: the whole result is at this event's own position,"
        " events/{position}]"
    )
    return "\n".join(part for part in (text[:head], line, text[len(text) - tail :]) if part)


def text_and_parts(content: object) -> tuple[str, list[int | None] | None] | None:
    """The joined texts of a content, and for each of its parts the length of its text, None for a
    part of another kind; no list for a text alone. None where there is no text.
    """
    if isinstance(content, str):
        return content, None
    if not isinstance(content, list) or not all(isinstance(part, dict) for part in content):
        return None
    texts = [part.get("text") if part.get("type") == "text" else None for part in content]
    if any(
        part.get("type") == "text" and not isinstance(text, str)
        for part, text in zip(content, texts, strict=True)
    ):
        return None
    found = [text for text in texts if isinstance(text, str)]
    if not found:
        return None
    return "".join(found), [None if text is None else len(text) for text in texts]


def make_spilled(
    at: int,
    record: Record,
    preview: Preview,
    policy: Policy,
    *,
    where: str,
    now: str,
    max_bytes: int,
) -> Spilled:
    """The pieces of the result at place ``at`` of a list, whose event (with the preview) is
    ``record``.

    Ids derive from the event's id and the piece's number, so a repeat has the same pieces.

    Raises:
        InvalidEvent: the text is no Unicode.
        EventTooLarge: the event that names the pieces is over ``max_bytes``.
    """
    text = preview.text
    size = min(
        max(policy.spill_chars, -(-len(text) // MAX_CHUNKS)),
        max(1, (max_bytes - _ENVELOPE_BYTES) // _ESCAPED),
    )
    pieces = [text[i : i + size] for i in range(0, len(text), size)]
    spill_id = spill_id_of(record.id)
    chunks = [
        make_record(
            record.key,
            {
                "type": "tool.result.chunk",
                "spill_id": spill_id,
                "index": i,
                "count": len(pieces),
                "content": piece,
            },
            where=where,
            now=now,
            new_id=f"{spill_id}-{i}",
            max_bytes=max_bytes,
            operator=True,
        )
        for i, piece in enumerate(pieces)
    ]
    raw = text.encode()
    spill: dict[str, Any] = {
        "chars": len(text),
        "bytes": len(raw),
        "sha256": sha256(raw).hexdigest(),
        "size": size,
    }
    if preview.parts is not None:
        spill["parts"] = preview.parts
    total = len(with_spill(record, spill, [Position(999_999_999, 10**18 - 1)] * len(pieces)).value)
    if total > max_bytes:
        raise EventTooLarge(
            f"{where}: {total} bytes are over the limit of {max_bytes} bytes for one event"
        )
    return Spilled(at, chunks, spill)


def spill_id_of(event_id: str) -> str:
    """What the pieces of an event's result have in common; it fits wherever an id does, however
    long the event's own is.
    """
    return sha256(f"spill\n{event_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


async def append_drafts(log: Log, drafts: Drafts) -> list[Position]:
    """Append a checked list and return the positions of its own events, in order; pieces go first,
    and are safe before any other.

    Pieces whose result did not follow (Kafka went away between) stay in the log and are named by
    nothing.

    Raises:
        EventTooLarge, Overloaded, KafkaUnavailable: as ``streams.log.log.Log.append`` says; nothing
            of the list's own events is in, or unknown.
    """
    if not drafts.spilled:
        return await log.append(drafts.records)
    records = list(drafts.records)
    positions = iter(
        await log.append([chunk for spilled in drafts.spilled for chunk in spilled.chunks])
    )
    for at, chunks, spill in drafts.spilled:
        records[at] = with_spill(records[at], spill, [next(positions) for _ in chunks])
    return await log.append(records)


def with_spill(record: Record, spill: dict[str, Any], positions: Sequence[Position]) -> Record:
    event = orjson.loads(record.value)
    event["data"]["spill"] = {**spill, "chunks": [str(position) for position in positions]}
    return Record(record.key, record.id, record.type, orjson.dumps(event))
