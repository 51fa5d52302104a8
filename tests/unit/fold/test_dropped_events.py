"""What an event was dropped for is in no window and no request any more, wherever it stood."""

from __future__ import annotations

from projections.events.types import absolute
from projections.fold.apply import Status
from streams.compaction.requests import request_for
from tests.support.compacted_talk import SMALL, Talk


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
