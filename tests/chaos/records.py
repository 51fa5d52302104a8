"""The log's records, taken apart."""

from __future__ import annotations

import json
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from tests.chaos.evidence import Row

PREFIX = "threadfold."


@dataclass(frozen=True, slots=True)
class Logged:
    """A record of the log, taken apart: ``type`` is short (``message``), ``data`` its fields."""

    offset: int
    id: str
    type: str
    data: dict[str, Any]
    time: str | None = None


def logged(row: Row) -> Logged:
    """Take a record apart; raises ValueError or KeyError when it is no event."""
    event = json.loads(row.value)
    kind = str(event["type"])
    short = kind[len(PREFIX) : -3] if kind.startswith(PREFIX) and kind.endswith(".v1") else kind
    return Logged(row.offset, str(event["id"]), short, event.get("data") or {}, event.get("time"))


def offset_of(position: str | None) -> int:
    """The offset of a position, -1 of none."""
    return -1 if position is None else int(position.partition("-")[2])


def absolute(steps: list[int]) -> list[int]:
    """Offsets from the first one and the differences after it."""
    return list(accumulate(steps))
