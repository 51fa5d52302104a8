"""Events with the positions that they name given other ones."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from projections.events.codec import DATA_TYPES
from projections.events.relocation import (
    NOWHERE,
    names_positions,
    relocate_envelope,
    relocate_payload,
)
from projections.names import Position

PLACES = {"to", "after", "position", "positions", "span", "spill", "lease", "rollback"}
"""Names of fields that hold positions."""


class Shifted:
    """Partition 1 is partition 5 in the copy; even offsets had an event, and are 100 further."""

    partition = 1

    def event(self, position: Position) -> Position:
        own = position.partition == 1 and position.offset % 2 == 0
        return Position(5, position.offset + 100) if own else NOWHERE

    def until(self, position: Position) -> Position:
        return self.event(Position(position.partition, position.offset // 2 * 2))


def value_of(type_: str, data: dict[str, Any], **envelope: Any) -> bytes:
    return msgspec.json.encode(
        {
            "specversion": "1.0",
            "id": "e1",
            "type": f"threadfold.{type_}.v1",
            **envelope,
            "data": data,
        }
    )


def moved(type_: str, data: dict[str, Any]) -> Any:
    return msgspec.json.decode(relocate_payload(value_of(type_, data), Shifted()))["data"]


@pytest.mark.parametrize(
    ("type_", "before", "after"),
    [
        ("rollback", {"to": "1-4"}, {"to": "5-104"}),
        (
            "session.closed",
            {"reason": "idle", "after": "1-5"},
            {"reason": "idle", "after": "5-104"},
        ),
        ("event.dropped", {"position": "1-6"}, {"position": "5-106"}),
        ("turn.ended", {"lease": {"since": "1-8"}}, {"lease": {"since": "5-108"}}),
        ("tool.result", {"spill": {"chunks": ["1-2"]}}, {"spill": {"chunks": ["5-102"]}}),
        (
            "memory.saved",
            {"positions": ["1-2", "1-4"], "rollback": None},
            {"positions": ["5-102", "5-104"], "rollback": None},
        ),
        (
            "summary",
            {
                "span": {
                    "from": "1-2",
                    "to": "1-8",
                    "positions": [2, 2, 4],
                    "kept": [6],
                    "apart": [4],
                },
                "previous_position": "1-0",
                "rollback": "1-2",
            },
            {
                "span": {
                    "from": "5-102",
                    "to": "5-108",
                    "positions": [102, 2, 4],
                    "kept": [106],
                    "apart": [104],
                },
                "previous_position": "5-100",
                "rollback": "5-102",
            },
        ),
    ],
)
def test_the_positions_that_a_payload_names_are_given_new_ones(
    type_: str, before: dict[str, Any], after: dict[str, Any]
) -> None:
    assert moved(type_, before) == after


def test_a_position_without_an_event_of_its_conversation_names_none_afterwards() -> None:
    assert moved("rollback", {"to": "1-3"}) == {"to": str(NOWHERE)}
    assert moved("rollback", {"to": "2-4"}) == {"to": str(NOWHERE)}
    value = value_of("message", {}, fence=3)
    assert msgspec.json.decode(relocate_envelope(value, Shifted()))["fence"] == NOWHERE.offset


def test_conditions_are_given_new_positions_beside_a_payload_that_nobody_opens() -> None:
    sealed = {"kid": "k", "nonce": "n", "ciphertext": "c"}
    value = value_of("message", sealed, expect="1-7", fence=4)
    changed = msgspec.json.decode(relocate_envelope(value, Shifted()))
    assert (changed["expect"], changed["fence"], changed["data"]) == ("5-106", 104, sealed)


@pytest.mark.parametrize(
    "value",
    [
        value_of("message", {"role": "user", "content": 'to "1-4", "expect"'}),
        value_of("rollback", {"to": "an-id"}),
        value_of("tool.result", {"tool_call_id": "c", "content": "1-4"}),
        value_of("turn.ended", {"turn_id": "t", "lease": None}),
        value_of("message", {}, expect="", fence="x"),
        b"no event",
        b'{"type": 7}',
        b"\xff",
    ],
)
def test_what_names_no_position_stays_byte_for_byte(value: bytes) -> None:
    assert relocate_payload(relocate_envelope(value, Shifted()), Shifted()) == value


def test_other_bytes_of_a_value_stay() -> None:
    value = b'{"type":"threadfold.rollback.v1","x":1.50,"t":"\\u00e9","data":{"to":"1-4","y":[ 1]}}'
    assert relocate_payload(value, Shifted()) == value.replace(b"1-4", b"5-104")


def test_every_type_with_a_position_among_its_fields_is_known() -> None:
    for name, type_ in DATA_TYPES.items():
        fields = {field.encode_name for field in msgspec.structs.fields(type_)}
        # A turn's lease names a position when it ends.
        named = bool(fields & PLACES) and name != "turn.started"
        assert names_positions(f"threadfold.{name}.v1") == named, name
