"""The ledger's records and ids: what a call must say, and ids that name one record of one
conversation.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from projections.errors import EventTooLarge, InvalidEvent, InvalidPosition
from projections.names import Key, Position
from projections.window.window import Window
from streams.control.control_topic import Control
from streams.control.state import Generation
from streams.runtime.processor import Here
from streams.settings.settings import Settings
from threadfold.service.ledger import Ledger
from threadfold.service.model_call import read_called, read_id, write_id
from threadfold.service.past_windows import PastWindows
from threadfold.testing.memory_log import MemoryLog

CALLED: dict[str, Any] = {
    "model": "m",
    "render_digest": "0" * 64,
    "position": "1-2",
    "format": "openai",
    "tokens": 3,
}


def test_a_call_says_what_the_context_said() -> None:
    called = read_called(
        {
            **CALLED,
            "reported_usage": {"prompt_tokens": 4},
            "latency_ms": 12,
            "summary_id": None,
            "max_tokens": 50,
        }
    )
    assert (called.model, called.position, called.reported_usage, called.generation) == (
        "m",
        "1-2",
        {"prompt_tokens": 4},
        None,
    )


@pytest.mark.parametrize(
    ("change", "part"),
    [
        ({"model": None}, "field model"),
        ({"model": ""}, "field model: expected 1 to 256"),
        ({"render_digest": "A" * 64}, "field render_digest"),
        ({"format": "xml"}, "field format"),
        ({"tokens": -1}, "field tokens: expected 0 or more"),
        ({"tokens": "3"}, "field tokens: expected a whole number"),
        ({"max_tokens": 0}, "field max_tokens"),
        ({"latency_ms": -0.5}, "field latency_ms"),
        ({"generation": 1}, "field generation: unknown"),
        ({"reported_usage": {"n": 10**30}}, "field reported_usage: an integer is over 64 bits"),
        ({"reported_usage": [1]}, "field reported_usage"),
    ],
)
def test_what_is_wrong_is_named(change: dict[str, Any], part: str) -> None:
    with pytest.raises(InvalidEvent) as caught:
        read_called({**CALLED, **change})
    assert str(caught.value).startswith("render: ")
    assert part in str(caught.value)


def test_missing_fields_other_json_and_sizes_are_refused() -> None:
    for field in CALLED:
        with pytest.raises(InvalidEvent, match=f"field {field}: missing"):
            read_called({name: value for name, value in CALLED.items() if name != field})
    with pytest.raises(InvalidEvent, match="expected an object"):
        read_called([CALLED])
    with pytest.raises(InvalidPosition):
        read_called({**CALLED, "position": "nowhere"})
    with pytest.raises(EventTooLarge, match="32768"):
        read_called({**CALLED, "reported_usage": {"x": "y" * 40_000}})


def test_ids_name_a_place_and_are_bound_to_their_conversation() -> None:
    position = Position(3, 1 << 40)
    render_id = write_id(Key("acme", "c"), position)
    place = read_id(render_id)
    assert place is not None
    assert place[0] == position
    assert "=" not in render_id
    for other in (Key("acme", "d"), Key("rival", "c")):
        found = read_id(write_id(other, position))
        assert found is not None
        assert found[1] != place[1]
    for wrong in ("", "é", render_id[:-1], render_id + "AAAA", "____" + render_id[4:]):
        assert read_id(wrong) is None


def test_it_renders_under_the_rules_of_then_where_there_still_are_any() -> None:
    settings = Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    control = Control(settings)
    for number, budget in ((1, 111), (2, 222)):
        control.state.put(
            b"generation/%d" % number,
            msgspec.json.encode(Generation(number, 4, {"working_budget": budget})),
        )
    control.state.put(b"generation/live", b"2")

    async def no_window(key: Key, position: str) -> Window:
        raise AssertionError(f"no window is asked for: {key} {position}")

    log = MemoryLog(4)
    ledger = Ledger(settings, control, log, PastWindows(log, no_window, Here()))

    def budget_and_why(generation: int | None) -> tuple[int, str]:
        called = read_called(CALLED)
        called.generation = generation
        rules, why = ledger.rules_of(called)
        return rules.for_conversation("acme", None).working_budget, " ".join(why)

    assert budget_and_why(1) == (111, "")
    assert budget_and_why(2) == (222, "")
    control.state.put(b"generation/1", None)
    assert budget_and_why(1) == (
        222,
        "generation 1, which was live then, is deleted: it is rendered under generation 2",
    )
    assert budget_and_why(None)[0] == 222
