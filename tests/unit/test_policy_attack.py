"""What an attack on the context policy found; each test fails on the code it was found in."""

from __future__ import annotations

import json
from typing import Any

from projections.events.types import absolute, decode_event
from projections.events.validation import make_record
from projections.fold.apply import Outcome, Status
from projections.fold.replay import Logged, apply_with_log
from projections.formats.context_document import context_document, stored_context
from projections.policy.policy import Callables, Rules
from projections.render.render import render_openai
from projections.window.window import Window
from streams.compaction.compactor import Compactor
from streams.compaction.requests import request_for
from streams.settings.settings import Settings
from tests.support.generated import KEY, Mirror, Terse
from threadfold.testing.memory_log import MemoryLog

SMALL: dict[str, Any] = {"working_budget": 300, "keep_recent_tokens": 10, "min_messages": 2}


class Talk:
    """A conversation in a log in memory, folded as it comes."""

    def __init__(
        self,
        policy: dict[str, Any],
        *,
        callables: Callables | None = None,
        input_tokens: int = 100_000,
    ) -> None:
        self.rules = Rules(policy, callables=callables)
        self.window, self.mirror = Window(KEY, 0, self.rules), Mirror()
        self.messages = MemoryLog(1)
        self.log: list[Logged] = []
        self.compactor = Compactor(
            Settings(summary_input_tokens=input_tokens), self.messages, lambda _: Terse()
        )

    def say(self, kind: str, /, **fields: Any) -> int:
        """Append an event; returns its offset."""
        flat = {"type": kind, **fields}
        record = make_record(
            KEY,
            flat,
            where="talk",
            now="2026-01-01T00:00:00Z",
            new_id=f"e{len(self.log)}",
            operator=True,
        )
        offset = self.messages.put(0, str(KEY).encode(), record.value).offset
        self.fold(offset, record.value)
        return offset

    def fold(self, offset: int, value: bytes) -> Outcome:
        """Fold what stands at an offset of the log."""
        event = decode_event(value)
        outcome = apply_with_log(self.window, offset, event, self.log)
        self.log.append((offset, event))
        self.mirror.write(self.window)
        return outcome

    def call(self, *ids: str, arguments: str = "{}") -> int:
        """An assistant's message with calls."""
        calls = [{"id": id_, "name": "look", "arguments": arguments} for id_ in ids]
        return self.say("message", role="assistant", content=None, tool_calls=calls)

    def chat(self, turns: int) -> list[int]:
        """Users and assistants in turns; returns the users' offsets."""
        found = []
        for _ in range(turns):
            found.append(self.say("message", role="user", content="word " * 20))
            self.say("message", role="assistant", content="reply " * 20)
        return found

    async def summarise(self) -> Outcome:
        """Have the request that stands answered, and fold the answer."""
        request = request_for(self.window, 1)
        assert request is not None
        position = await self.compactor.answer(request)
        raw = (await self.messages.read([position]))[position]
        return self.fold(position.offset, raw.value or b"")

    def text(self) -> str:
        return render_openai(self.window).messages.decode()


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
    assert (await talk.summarise()).status is Status.APPLIED and talk.window.lanes.suspensions
    talk.say("event.dropped", position=f"0-{at}")
    assert talk.window.lanes.suspensions == []


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


def test_a_callable_that_makes_half_a_character_does_not_stop_the_fold() -> None:
    policy = {
        "working_budget": 300,
        "reducers": [{"name": "compact_tool_results", "replacement": "callable:half"}],
    }
    talk = Talk(policy, callables={"half": lambda *_: "x\ud800"})
    for _ in range(20):
        talk.call("a")
        talk.say("tool.result", tool_call_id="a", content="blah " * 50)
        talk.chat(1)
    assert "[look a: 250 characters]" in talk.text()


def test_a_system_message_that_was_cut_is_in_the_trace_of_the_stored_window_too() -> None:
    talk = Talk({**SMALL, "pinned_max_tokens": 60, "compaction": False})
    talk.say("message", role="system", content="rule " * 300)
    # What was cut in the tail is rendered; behind the tail it stands as it is stored.
    talk.window.cover(1, set())
    talk.window.derive()
    talk.say("message", role="user", content="hi")
    stored = stored_context(0, talk.mirror.fields)
    assert stored is not None and stored == context_document(
        talk.window, render_openai(talk.window)
    )
    assert [step["reducer"] for step in json.loads(stored)["trace"]] == ["cut_system_text"]


async def test_a_suspension_of_a_call_that_waits_for_its_summary_does_not_block_compaction() -> (
    None
):
    talk = Talk(SMALL)
    talk.call("a")
    talk.chat(8)
    assert talk.window.meta.due is not None
    talk.say("suspension", suspension_id="s", kind="approval", tool_call_id="a")
    assert (await talk.summarise()).status is Status.APPLIED
    assert '"id":"a"' in talk.text()


async def test_a_span_cut_to_the_input_cap_ends_beyond_what_is_summarised() -> None:
    talk = Talk(SMALL, input_tokens=200)
    talk.call("a", "b")
    talk.say("suspension", suspension_id="s", kind="approval", tool_call_id="a")
    talk.say("tool.result", tool_call_id="b", content="found " * 150)
    talk.chat(10)
    assert (await talk.summarise()).status is Status.APPLIED and talk.window.tail[0].offset == 0
    talk.say("resolution", suspension_id="s", outcome="approved")
    talk.say("tool.result", tool_call_id="a", content="done")
    talk.chat(10)
    for _ in range(40):
        if talk.window.meta.due is None:
            break
        assert (await talk.summarise()).status is Status.APPLIED
    assert talk.window.meta.due is None


async def test_a_span_cut_to_the_input_cap_does_not_end_in_what_a_rollback_abandoned() -> None:
    talk = Talk({**SMALL, "min_messages": 8}, input_tokens=60)
    first = talk.say("message", role="user", content="hi")
    talk.say("message", role="user", content="gone")
    talk.call("a")
    talk.say("rollback", to=f"0-{first}")
    talk.chat(20)
    assert (await talk.summarise()).status is Status.APPLIED
