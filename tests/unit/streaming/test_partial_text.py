"""Assistant text in progress as subscribers get it: two inputs, in any order."""

from __future__ import annotations

import json
from typing import Any

from threadfold.streaming.partial_text import MOST_AHEAD, Delta, PartialText
from threadfold.streaming.sse_event import SseEvent


def shown(events: list[SseEvent]) -> list[Any]:
    assert all(event.event == "partial" and event.id is None for event in events)
    found = [json.loads(event.data) for event in events]
    return [data.get("ended", (data["offset"], data.get("delta"))) for data in found]


def test_deltas_are_passed_on_and_who_joins_gets_all_so_far() -> None:
    text = PartialText()
    assert shown(text.snapshot()) == []
    assert shown(text.delta(Delta("t", 5, 0, "ab"))) == [(0, "ab")]
    assert shown(text.delta(Delta("t", 5, 2, "c"))) == [(2, "c")]
    assert shown(text.snapshot()) == [(0, "abc")]


def test_what_is_known_already_is_not_said_again_and_a_gap_is_found() -> None:
    text = PartialText()
    text.delta(Delta("t", 5, 0, "abc"))
    assert shown(text.delta(Delta("t", 5, 1, "bc"))) == []
    assert shown(text.delta(Delta("t", 5, 2, "cd"))) == [(3, "d")]
    assert shown(text.delta(Delta("t", 5, 9, "x"))) == []
    assert text.incomplete
    assert shown(text.stored("t", 5, "abcdefghix")) == [(4, "efghix")]
    assert not text.incomplete


def test_a_message_ends_what_began_before_it_and_late_deltas_are_passed_over() -> None:
    text = PartialText()
    text.delta(Delta("t", 5, 0, "abc"))
    assert shown(text.message(4, "complete")) == []
    assert shown(text.message(7, "complete")) == ["complete"]
    assert shown(text.delta(Delta("t", 5, 3, "late"))) == []
    assert shown(text.snapshot()) == []


def test_a_next_text_waits_for_the_message_of_the_one_before() -> None:
    text = PartialText()
    text.delta(Delta("t", 5, 0, "abc"))
    assert shown(text.delta(Delta("t", 9, 0, "ne"))) == []
    assert shown(text.delta(Delta("t", 9, 2, "xt"))) == []
    assert text.waits_for == 9
    assert shown(text.passed(8)) == []
    assert shown(text.message(7, "interrupted")) == ["interrupted", (0, "ne"), (2, "xt")]
    assert text.waits_for is None


def test_a_next_text_is_shown_once_the_log_is_read_up_to_its_beginning() -> None:
    text = PartialText()
    text.delta(Delta("t", 5, 0, "abc"))
    text.delta(Delta("u", 9, 0, "next"))
    assert shown(text.passed(9)) == ["interrupted", (0, "next")]


def test_a_text_without_a_message_ends_when_it_is_dropped() -> None:
    text = PartialText()
    text.delta(Delta("t", 5, 0, "abc"))
    assert shown(text.dropped("t", 4)) == []
    assert shown(text.dropped("t", 5)) == ["interrupted"]


def test_what_is_kept_back_is_bounded() -> None:
    text = PartialText()
    text.delta(Delta("t", 5, 0, "abc"))
    for i in range(MOST_AHEAD + 1):
        text.delta(Delta("u", 9, i, "x"))
    assert text.incomplete
    assert text.waits_for is None
