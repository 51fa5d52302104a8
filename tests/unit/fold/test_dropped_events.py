"""What an event was dropped for is in no window and no request any more, wherever it stood."""

from __future__ import annotations

import json

import pytest

from projections.events import types as events
from projections.events.types import absolute
from projections.fold.apply import Status, apply
from projections.fold.replay import Logged, apply_with_log
from projections.render.render import render_openai
from projections.window.window import Window
from streams.compaction.requests import request_for
from tests.support.compacted_talk import SMALL, Talk
from tests.support.histories import KEY, PARTITION, RULES, make_event


async def test_a_call_that_was_taken_out_is_not_shown_beside_its_pinned_result() -> None:
    talk = Talk(SMALL)
    call = talk.call("a", arguments='{"card":"4111"}')
    talk.say("tool.result", tool_call_id="a", content="noted", pinned=True)
    talk.chat(20)
    assert (await talk.summarise()).status is Status.APPLIED and "4111" in talk.text()
    talk.say("event.dropped", position=f"0-{call}")
    assert "4111" not in talk.text()


async def test_a_suspension_that_was_taken_out_behind_a_summary_is_not_open_any_more() -> None:
    talk = Talk(SMALL)
    at = talk.say("suspension", suspension_id="s", kind="input", prompt="is 4111 your card?")
    talk.chat(20)
    assert (await talk.summarise()).status is Status.APPLIED and talk.window.state.suspensions
    talk.say("event.dropped", position=f"0-{at}")
    assert talk.window.state.suspensions == []


async def test_calls_of_a_message_that_was_taken_out_behind_a_summary_are_not_open_any_more() -> (
    None
):
    talk = Talk(SMALL)
    call = talk.call("a")
    talk.say("suspension", suspension_id="s", kind="approval", tool_call_id="a", prompt="May I?")
    talk.chat(20)
    assert (await talk.summarise()).status is Status.APPLIED
    assert [one.offset for one in talk.window.state.calls] == [call] < [talk.window.covered_to]
    talk.say("event.dropped", position=f"0-{call}")
    assert talk.window.state.calls == []


def test_what_is_taken_out_of_a_held_range_is_not_given_to_the_compactor() -> None:
    talk = Talk(SMALL)
    users = talk.chat(500)
    assert talk.window.tail[0].start <= users[1] < talk.window.tail[0].offset, (
        "it is not held as a range"
    )
    talk.say("event.dropped", position=f"0-{users[1]}")
    request = request_for(talk.window, 1)
    assert request is not None
    gone = [offset for piece in request.pieces for offset in absolute(piece.gone)]
    assert users[1] in gone and users[0] not in gone


def _talk_rolled_back(*, everything: bool, later: int) -> list[str]:
    """The texts after a rollback behind an ``event.dropped`` with the id of an earlier event and so
    many events after it, with the log as a rebuild reads it, or by the tail's positions, where
    repeats are not.
    """
    log: list[Logged] = [
        (0, make_event(events.Message("user", "stays"), "e0")),
        (1, make_event(events.Message("user", "stays, too"), "e1")),
    ]
    for n in range(2, 400):
        long = events.Message("user" if n % 2 else "assistant", "x" * 300)
        log.append((n, make_event(long, f"e{n}", 40)))
    log.append((400, make_event(events.EventDropped(f"{PARTITION}-0"), "e1")))
    window = Window(KEY, PARTITION, RULES)
    statuses = [apply(window, *one).status for one in log]
    assert statuses[-1] is Status.DUPLICATE
    for n in range(401, 401 + later):
        log.append((n, make_event(events.Message("user", f"{n}"), f"e{n}", 1)))
        apply(window, *log[-1])
    back = make_event(events.Rollback(f"{PARTITION}-1"), "back")
    at = 401 + later
    assert apply(window, at, back).target == 1
    apply_with_log(window, at, back, log if everything else [*log[:400], *log[401:]])
    return [json.loads(body)["content"] for body in render_openai(window).bodies]


# With 800 events the window has forgotten the first event of the id, with 1,500 all of that time.
@pytest.mark.parametrize("later", [0, 800, 1_500])
@pytest.mark.parametrize("everything", [True, False])
def test_a_drop_that_was_passed_over_as_a_repeat_takes_nothing_out_in_a_rollback_either(
    everything: bool, later: int
) -> None:
    assert _talk_rolled_back(everything=everything, later=later) == ["stays", "stays, too"]
