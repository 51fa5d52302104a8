"""What lists show of a conversation beside its head: its card, and the begin of its last message."""

from __future__ import annotations

import random
from typing import Any

import pytest

from projections.errors import CorruptWindow
from projections.events import types as events
from projections.policy.policy import Rules
from projections.render.read_header import state_of
from projections.storage.card import (
    CARD,
    MAX_METADATA,
    MAX_PREVIEW,
    Card,
    Opened,
    decode_card,
    encode_card,
    preview,
)
from projections.storage.layout import BASE, HEAD, last_message_of
from projections.storage.records import Stored
from tests.support.fields import Fields
from tests.support.histories import KEY, PARTITION, Writer


def talk(*said: Any) -> tuple[Writer, Fields]:
    writer, store = Writer(random.Random(1), rules=Rules()), Fields()
    for data in said:
        writer.append(data, tokens=5)
        store.write(writer.window)
    return writer, store


def test_a_card_is_written_when_it_changes_and_left_out_where_nothing_is_on_it() -> None:
    _, store = talk(events.Message("user", "hello"))
    assert CARD not in store.fields
    writer, store = talk(events.Opened(user="ann", channel="web", metadata={"title": "Order"}))
    assert decode_card(store.fields[CARD]) == Card("ann", "web", {"title": "Order"})
    writer.append(events.Message("user", "hello"), tokens=5)
    assert CARD not in dict(store.write(writer.window).put)
    writer.append(events.Opened(metadata={"title": "Refund"}), tokens=5)
    store.write(writer.window)
    assert decode_card(store.fields[CARD]).title == "Refund"
    loaded, mark = store.stored.open(KEY, PARTITION, Rules())
    assert loaded.image() == writer.window.image()
    assert mark.layout.opened == ("ann", "web", {"title": "Refund"})


def test_a_rollback_before_the_opening_takes_the_card_away() -> None:
    writer, store = talk(events.Message("user", "hello"), events.Opened(user="ann"))
    assert CARD in store.fields
    writer.append(events.Rollback(to=writer.window.position_of(writer.log[0][0])), tokens=0)
    store.write(writer.window)
    assert CARD not in store.fields
    store.stored.load(KEY, PARTITION, Rules())


def test_a_card_of_another_conversation_is_found_out() -> None:
    _, store = talk(events.Opened(user="ann"))
    fields = {**store.fields, CARD: encode_card(Opened("ben"))}
    with pytest.raises(CorruptWindow, match="card"):
        Stored(fields, store.stored.id_blocks).load(KEY, PARTITION, Rules())


def test_metadata_on_a_card_is_bounded_and_says_that_it_was_cut() -> None:
    metadata = {"title": "x" * 300, "first": 1, "long": "y" * MAX_METADATA, "last": 2}
    card = decode_card(encode_card(Opened(metadata=metadata)))
    assert card.metadata == {"title": "x" * 300, "first": 1} and card.cut
    assert card.title == "x" * 200
    assert len(encode_card(Opened(metadata=metadata))) < MAX_METADATA
    assert not decode_card(encode_card(Opened(metadata={}))).cut
    assert decode_card(encode_card(Opened(metadata={"title": 5}))).title is None


@pytest.mark.parametrize(
    ("content", "shown"),
    [
        ("hello\n  there", "hello there"),
        ([{"type": "text", "text": "a"}, {"type": "image_url"}, {"type": "text", "text": "b"}], "a b"),
        (None, ""),
        ([{"type": "image_url"}], ""),
    ],
)  # fmt: skip
def test_a_preview_is_one_line_of_the_text(content: object, shown: str) -> None:
    assert preview(content) == shown
    assert len(preview("word " * 100_000)) == MAX_PREVIEW


def test_the_last_message_is_the_last_one_with_text_in_the_tail() -> None:
    call = events.ToolCall("c1", "find", "{}")
    _, store = talk(
        events.Message("user", "where is it?"),
        events.Message("assistant", None, tool_calls=[call]),
        events.ToolResult("c1", "find", "a long result"),
    )
    last = last_message_of(store.fields)
    assert last is not None and (last.role, last.text) == ("user", "where is it?")
    _, store = talk(events.Opened(user="ann"))
    assert last_message_of(store.fields) is None
    assert set(store.fields) >= {HEAD, BASE, CARD}


@pytest.mark.parametrize(
    ("kinds", "state"),
    [
        (["input"], "awaiting_input"),
        (["external"], "awaiting_input"),
        (["approval"], "awaiting_approval"),
        (["approval", "input"], "awaiting_approval"),
    ],
)
def test_waiting_for_an_approval_and_for_input_are_different_states(
    kinds: list[Any], state: str
) -> None:
    writer, _ = talk(
        events.Message("user", "pay"),
        *(events.Suspension(f"s{i}", kind) for i, kind in enumerate(kinds)),
    )
    assert state_of(writer.window.state) == state
    for i in range(len(kinds)):
        writer.append(events.Resolution(f"s{i}", "approved"), tokens=0)
    assert state_of(writer.window.state) == "active"
