"""Assistant text in progress as subscribers are told of it: two ways of hearing, in any order."""

from __future__ import annotations

import json
from typing import Any

from threadfold.streaming.partial_text import MOST_AHEAD, Delta, PartialText
from threadfold.streaming.sse_event import SseEvent


def shown(sents: list[SseEvent]) -> list[Any]:
    assert all(sent.event == "partial" and sent.id is None for sent in sents)
    found = [json.loads(sent.data) for sent in sents]
    return [data.get("ended", (data["offset"], data.get("delta"))) for data in found]


def test_deltas_are_passed_on_and_who_joins_gets_all_so_far() -> None:
    saying = PartialText()
    assert shown(saying.so_far()) == []
    assert shown(saying.delta(Delta("t", 5, 0, "ab"))) == [(0, "ab")]
    assert shown(saying.delta(Delta("t", 5, 2, "c"))) == [(2, "c")]
    assert shown(saying.so_far()) == [(0, "abc")]


def test_what_is_known_already_is_not_said_again_and_a_gap_is_found() -> None:
    saying = PartialText()
    saying.delta(Delta("t", 5, 0, "abc"))
    assert shown(saying.delta(Delta("t", 5, 1, "bc"))) == []
    assert shown(saying.delta(Delta("t", 5, 2, "cd"))) == [(3, "d")]
    assert shown(saying.delta(Delta("t", 5, 9, "x"))) == []
    assert saying.torn
    assert shown(saying.held("t", 5, "abcdefghix")) == [(4, "efghix")]
    assert not saying.torn


def test_a_message_ends_what_began_before_it_and_late_deltas_are_passed_over() -> None:
    saying = PartialText()
    saying.delta(Delta("t", 5, 0, "abc"))
    assert shown(saying.message(4, "complete")) == []
    assert shown(saying.message(7, "complete")) == ["complete"]
    assert shown(saying.delta(Delta("t", 5, 3, "late"))) == []
    assert shown(saying.so_far()) == []


def test_a_next_text_waits_for_the_message_of_the_one_before() -> None:
    saying = PartialText()
    saying.delta(Delta("t", 5, 0, "abc"))
    assert shown(saying.delta(Delta("t", 9, 0, "ne"))) == []
    assert shown(saying.delta(Delta("t", 9, 2, "xt"))) == []
    assert saying.waits_for == 9
    assert shown(saying.passed(8)) == []
    assert shown(saying.message(7, "interrupted")) == ["interrupted", (0, "ne"), (2, "xt")]
    assert saying.waits_for is None


def test_a_next_text_is_shown_once_the_log_is_read_up_to_its_beginning() -> None:
    saying = PartialText()
    saying.delta(Delta("t", 5, 0, "abc"))
    saying.delta(Delta("u", 9, 0, "next"))
    assert shown(saying.passed(9)) == ["interrupted", (0, "next")]


def test_a_text_without_a_message_ends_when_it_is_dropped() -> None:
    saying = PartialText()
    saying.delta(Delta("t", 5, 0, "abc"))
    assert shown(saying.dropped("t", 4)) == []
    assert shown(saying.dropped("t", 5)) == ["interrupted"]


def test_what_is_kept_back_is_bounded() -> None:
    saying = PartialText()
    saying.delta(Delta("t", 5, 0, "abc"))
    for i in range(MOST_AHEAD + 1):
        saying.delta(Delta("u", 9, i, "x"))
    assert saying.torn
    assert saying.waits_for is None
