"""One event whole, as the log has it, with the text of a spilled result; or a page of its text."""

from __future__ import annotations

from hashlib import sha256
from itertools import starmap
from typing import Any, NamedTuple

import msgspec

from projections.errors import InvalidPosition, InvalidRequest, SpillLost
from projections.events import types as events
from projections.names import Key, Position, parse_position
from streams.log.history import event_of
from streams.log.log import Log, Raw
from streams.runtime.keyed_limit import Turn
from threadfold.service.pages import flat_event_beside
from threadfold.service.spill import spill_id_of, text_and_parts

PAGE_CHARS = 100_000
"""Characters of a page by default."""
MAX_PAGE_CHARS = 1_000_000


def check_page(offset: int | None, limit: int | None) -> None:
    """Raise :class:`InvalidRequest` unless offset and limit are in range."""
    if offset is not None and offset < 0:
        raise InvalidRequest(f"offset is {offset}: it must be 0 or more")
    if limit is not None and not 1 <= limit <= MAX_PAGE_CHARS:
        raise InvalidRequest(f"limit is {limit}: it must be 1 to {MAX_PAGE_CHARS} characters")


async def whole_event(
    log: Log, key: Key, at: Position, offset: int | None, limit: int | None, turn: Turn
) -> dict[str, Any] | None:
    """The event at a position as :func:`unfold` gives it; None if none of the conversation is
    there. Large ones are put together within the caller's ``turn``.

    Raises: as :func:`unfold` says.
    """
    raw = (await log.read([at])).get(at)
    if raw is None:
        return None
    flat = await flat_event_beside(raw, key, log.seals, turn)
    return None if flat is None else await unfold(log, key, flat, offset, limit, turn)


async def unfold(
    log: Log,
    key: Key,
    flat: dict[str, Any],
    offset: int | None,
    limit: int | None,
    turn: Turn | None = None,
) -> dict[str, Any]:
    """A flat event with its whole content or, with ``offset`` or ``limit``, a page of its text;
    long texts are joined within the caller's ``turn``.

    A page counts in characters, over the joined texts of a list of parts. Field ``page`` has
    offset, limit and the number of all characters. A page reads only the pieces it needs and checks
    each; the checksum is checked for the whole text only.

    Raises:
        InvalidRequest: the event has no text content.
        SpillLost: a piece is not in the log, or the pieces are not the text that was spilled.
        KafkaUnavailable: the log cannot be read now.
    """
    spill = _spill_of(flat)
    pieces = None if spill is None else _Pieces(log, key, flat, spill, turn or Turn())
    if offset is None and limit is None:
        return flat if pieces is None else {**flat, "content": await pieces.content()}
    if flat["type"] not in ("message", "tool.result"):
        raise InvalidRequest(
            f"event {flat['position']} is a {flat['type']}, which has no pages: leave out offset"
            " and limit"
        )
    offset, limit = offset or 0, limit or PAGE_CHARS
    if pieces is None:
        content = text_and_parts(flat.get("content"))
        text = content[0] if content else ""
        total, page = len(text), text[offset : offset + limit]
    else:
        total, page = pieces.spill.chars, await pieces.page(offset, limit)
    return {
        **flat,
        "content": page,
        "page": {"offset": offset, "limit": limit, "characters": total},
    }


def _spill_of(flat: dict[str, Any]) -> events.Spill | None:
    if flat["type"] != "tool.result" or flat.get("spill") is None:
        return None
    return msgspec.convert(flat["spill"], events.Spill)  # valid: the event was decoded before


def _whole(flat: dict[str, Any], spill: events.Spill, text: str) -> Any:
    """The content of a result whose pieces are together ``text``."""
    if len(text) != spill.chars or sha256(text.encode()).hexdigest() != spill.sha256:
        raise SpillLost(
            f"the pieces of result {flat['position']} are not the text that was spilled: its"
            " checksum differs"
        )
    if spill.parts is None:
        return text
    kept = [part for part in flat.get("content") or () if part.get("type") != "text"]
    if sum(length or 0 for length in spill.parts) != spill.chars or spill.parts.count(None) != len(
        kept
    ):
        raise SpillLost(f"the parts of result {flat['position']} are not those that were spilled")
    content: list[Any] = []
    at, others = 0, iter(kept)
    for length in spill.parts:
        content.append(
            next(others) if length is None else {"type": "text", "text": text[at : at + length]}
        )
        at += length or 0
    return content


class _Pieces(NamedTuple):
    """The pieces of a spilled result; long ones are put together within ``turn``."""

    log: Log
    key: Key
    flat: dict[str, Any]
    spill: events.Spill
    turn: Turn

    async def content(self) -> Any:
        """The whole content."""
        text = await self.text(0, len(self.spill.chunks))
        return await self.turn.work(len(text), lambda: _whole(self.flat, self.spill, text))

    async def page(self, offset: int, limit: int) -> str:
        """So many characters from ``offset`` on."""
        spill = self.spill
        end = min(offset + limit, spill.chars)
        if offset >= end:
            return ""
        if spill.size < 1 or len(spill.chunks) != -(-spill.chars // spill.size):
            raise SpillLost(f"result {self.flat['position']} does not name the pieces of its text")
        first, last = offset // spill.size, (end - 1) // spill.size
        text = await self.text(first, last + 1)
        return text[offset - first * spill.size : end - first * spill.size]

    async def text(self, first: int, end: int) -> str:
        """The joined texts of pieces ``first`` up to ``end``."""
        try:
            positions = [parse_position(text) for text in self.spill.chunks[first:end]]
        except InvalidPosition as error:
            raise SpillLost(
                f"result {self.flat['position']} names a piece that cannot be: {error}"
            ) from None
        own = parse_position(self.flat["position"]).partition
        rows = await self.log.read(position for position in positions if position.partition == own)
        found = [(i, at, rows.get(at)) for i, at in enumerate(positions, first)]
        size = sum(len(raw.value or b"") for raw in rows.values())
        return await self.turn.work(size, lambda: "".join(starmap(self._one, found)))

    def _one(self, i: int, position: Position, raw: Raw | None) -> str:
        """The text of a piece, checked: conversation, result, index."""
        flat, spill = self.flat, self.spill
        event = None if raw is None else event_of(raw, self.key, self.log.seals)
        data = event.data if isinstance(event, events.ToolResultChunkEvent) else None
        if (
            data is None
            or data.spill_id != spill_id_of(flat["id"])
            or data.index != i
            or data.count != len(spill.chunks)
        ):
            raise SpillLost(
                f"piece {i + 1} of {len(spill.chunks)} of result {flat['position']} is not at"
                f" {position} in the log"
            )
        if i < len(spill.chunks) - 1 and len(data.content) != spill.size:
            raise SpillLost(
                f"piece {i + 1} of result {flat['position']} has {len(data.content)} characters,"
                f" not {spill.size}"
            )
        return data.content
