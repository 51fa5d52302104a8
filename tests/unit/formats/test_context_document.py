"""The context document read from what is stored is the one of the rendered window."""

from __future__ import annotations

import json
import random

import pytest

from projections.events import types as events
from projections.formats.context_document import context_document, stored_context
from projections.policy.policy import Rules
from projections.render.render import render_openai
from projections.storage.records import NOTHING, Stored, write_of
from tests.support.compacted_talk import SMALL, Talk
from tests.support.histories import PARTITION, Writer


def _stored(writer: Writer) -> Stored:
    write = write_of(writer.window, NOTHING)
    return Stored(dict(write.put), dict(write.id_blocks_put))


@pytest.mark.parametrize("limit", [0, 5, 10])
def test_a_system_text_that_was_cut_to_the_same_tokens_is_not_read_uncut(limit: int) -> None:
    writer = Writer(random.Random(1), Rules({"pinned_max_tokens": limit}))
    writer.append(events.Message("system", "Be brief, please and always polite."), tokens=11)
    found = stored_context(PARTITION, _stored(writer).fields)
    assert found in (None, context_document(writer.window, render_openai(writer.window)))


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


def test_a_result_that_a_session_took_with_it_unread_is_named_in_the_stored_window_too() -> None:
    writer = Writer(random.Random(1), Rules({"profile": "sliding", "compaction": False}))
    calls = [events.ToolCall("a", "refund", "{}")]
    writer.append(events.Message("user", "Refund it."))
    writer.append(events.Message("assistant", None, tool_calls=calls))
    writer.append(events.ToolResult("a", "refunded"))
    at = writer.next_offset
    writer.append(events.SessionClosed("explicit"))
    writer.append(events.Message("user", "is it paid?"))
    document = context_document(writer.window, render_openai(writer.window))
    last = json.loads(document)["messages"][-1]["content"]
    assert last == f"[A result has come at {PARTITION}-{at}: its call is not in sight any more]"
    assert stored_context(PARTITION, _stored(writer).fields) in (None, document)
    writer.append(events.Message("assistant", "Yes."))
    document = context_document(writer.window, render_openai(writer.window))
    assert stored_context(PARTITION, _stored(writer).fields) == document
