"""The records on the topic of dead letters that are nobody's event."""

from __future__ import annotations

from dataclasses import dataclass

import msgspec

from projections.errors import InvalidPosition
from projections.events.untrusted import Undecodable, json_decoder
from projections.names import Position, parse_position
from streams.log.log import Log
from streams.partition.step import RECORD


@dataclass(frozen=True, slots=True)
class OpenRecord:
    """A record that is nobody's event, and that no operator has taken off the list; ``key`` as it
    stands.
    """

    position: Position
    key: bytes
    cause: str


class _Letter(msgspec.Struct):
    position: str
    cause: str = ""
    kind: str = RECORD
    closed: bool = False


_letter = json_decoder(_Letter)


async def open_records(letters: Log, tenant: str | None = None) -> list[OpenRecord]:
    """Those (of one tenant, as far as their keys say) that no operator has taken off the list, by
    position; each once. ``letters`` is the topic.
    """
    found: dict[str, OpenRecord] = {}
    closed: set[str] = set()
    for number, end in (await letters.end_offsets()).items():
        async for raw in letters.scan(number, 0, end - 1):
            try:
                letter = _letter(raw.value)
                position = parse_position(letter.position)
            except (Undecodable, InvalidPosition):
                continue  # nobody's letter: whoever can write the topic wrote it
            if letter.closed:
                closed.add(letter.position)
            elif letter.kind == RECORD:
                found[letter.position] = OpenRecord(position, raw.key or b"", letter.cause)
    left = [one for name, one in found.items() if name not in closed]
    return sorted(
        (one for one in left if tenant is None or one.key.startswith(f"{tenant}/".encode())),
        key=lambda one: one.position,
    )
