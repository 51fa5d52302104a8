"""What is said in a conversation, for the index of raw turns, and what is found of it."""

from __future__ import annotations

from typing import Any

from projections.events import types as events
from projections.memory.words import stems_of
from projections.names import Key, Position
from projections.policy.policy import Rules
from streams.memory.store import Filter
from streams.memory.turns import Said, SqliteTurns
from tests.support.histories import make_event

MINUTE = 60_000_000
ANN = Filter("acme", user="ann")
TALK = Key("acme", "c1")
LARGE = Rules({"model_window": 4_000_000, "reserve_tokens": 1000, "compaction": False})


def said(offset: int, data: Any, log: Key = TALK, id_: str | None = None) -> Said:
    event = make_event(data, id_ or f"e{offset}", None)
    return Said(log, Position(0, offset), offset * MINUTE, event)


def user(text: str, name: str | None = None) -> events.Message:
    return events.Message("user", text, name=name)


def opened(of: str | None = "ann", channel: str | None = None) -> events.Opened:
    return events.Opened(user=of, channel=channel)


def texts(turns: SqliteTurns, query: str, only: Filter = ANN) -> list[str]:
    return [hit.turn.text for hit in turns.search(only, stems_of(query), 10)]
