"""Conditions on events: what was expected before them, checked in the log's order; and summaries
that were asked for.
"""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from projections.events import codec
from projections.events import types as events
from projections.events.validation import Intake
from projections.fold.apply import Outcome, Status, apply
from projections.names import Key
from projections.policy.policy import Rules
from projections.window.window import Window
from streams.compaction.requests import piece_offsets, request_for
from tests.support.stories import Story

KEY = Key("acme", "c")


class Talk:
    """A conversation in partition 2."""

    def __init__(self) -> None:
        self.window = Window(KEY, 2, Rules())
        self.offset = 0

    def say(
        self, *texts: str, expect: str | None = None, ids: list[str] | None = None
    ) -> list[Outcome]:
        """Append a list of messages through intake and fold them."""
        intake = Intake(now="2026-01-01T00:00:00Z", expect=expect)
        for i, text in enumerate(texts):
            new_id = ids[i] if ids else f"e{self.offset + i + 1}"
            intake.add(
                KEY,
                {"type": "message", "role": "user", "content": text},
                where="event",
                new_id=new_id,
            )
        return [self.put(record.value) for record in intake.records()]

    def put(self, value: bytes) -> Outcome:
        self.offset += 1
        return apply(self.window, self.offset, codec.decode_event(value))

    def raw(self, kind: str, data: dict[str, Any], **envelope: Any) -> Outcome:
        value = {
            "specversion": "1.0",
            "id": f"raw{self.offset}",
            "type": kind,
            "source": KEY.source,
            "data": data,
            **envelope,
        }
        return self.put(msgspec.json.encode(value))


def statuses(outcomes: list[Outcome]) -> list[str]:
    return [outcome.status.value for outcome in outcomes]


def test_an_event_that_expects_the_last_position_is_applied_and_a_rival_is_not() -> None:
    talk = Talk()
    talk.say("one")
    assert statuses(talk.say("two", expect="2-1")) == ["applied"]
    (late,) = talk.say("rival", expect="2-1")
    assert late.status is Status.REJECTED and late.reason == "another event came at 2-2"


def test_a_list_holds_together_all_of_it_or_none() -> None:
    talk = Talk()
    talk.say("one")
    assert statuses(talk.say("two", "three", "four", expect="2-1")) == ["applied"] * 3
    assert statuses(talk.say("a", "b", "c", expect="2-1")) == ["rejected"] * 3
    assert talk.window.meta.count == 4


def test_a_list_that_comes_again_is_a_list_of_duplicates() -> None:
    talk = Talk()
    talk.say("one")
    talk.say("two", "three", expect="2-1", ids=["x", "y"])
    assert statuses(talk.say("two", "three", expect="2-1", ids=["x", "y"])) == ["duplicate"] * 2


def test_a_list_of_which_only_the_beginning_came_goes_on_when_it_is_repeated() -> None:
    talk = Talk()
    talk.say("one")
    talk.say("two", expect="2-1", ids=["x"])
    assert statuses(talk.say("two", "three", expect="2-1", ids=["x", "y"])) == [
        "duplicate",
        "applied",
    ]


def test_nothing_at_all_may_be_expected() -> None:
    talk = Talk()
    assert statuses(talk.say("first", expect="")) == ["applied"]
    (late,) = talk.say("first, too", expect="")
    assert late.reason == "the conversation is not empty: an event came at 2-1"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("threadfold.loop.detected.v1", {"tool": "f", "arguments_sha256": "0" * 64, "count": 3}),
        ("threadfold.session.closed.v1", {"reason": "idle"}),
        ("threadfold.turn.started.v1", {"turn_id": "t"}),
        ("threadfold.turn.ended.v1", {"turn_id": "t"}),
        ("threadfold.compaction.requested.v1", {}),
        (
            "threadfold.tool.result.chunk.v1",
            {"spill_id": "s", "index": 0, "count": 1, "content": "x"},
        ),
    ],
)
def test_what_threadfold_says_itself_is_no_conflict(kind: str, data: dict[str, Any]) -> None:
    talk = Talk()
    talk.say("one")
    assert talk.raw(kind, data).status is Status.APPLIED
    assert statuses(talk.say("two", expect="2-1")) == ["applied"]


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("threadfold.session.closed.v1", {"reason": "explicit"}),
        ("threadfold.rollback.v1", {"to": "2-1"}),
        ("acme.note.v1", {"n": 1}),
    ],
)
def test_what_others_append_is_a_conflict(kind: str, data: dict[str, Any]) -> None:
    talk = Talk()
    talk.say("one")
    assert talk.raw(kind, data).status is Status.APPLIED
    assert statuses(talk.say("two", expect="2-1")) == ["rejected"]


def test_repeats_and_rejected_events_are_no_conflict() -> None:
    talk = Talk()
    talk.say("one", ids=["x"])
    talk.say("one", ids=["x"])
    talk.raw("threadfold.resolution.v1", {"suspension_id": "nobody's", "outcome": "approved"})
    assert statuses(talk.say("two", expect="2-1")) == ["applied"]
    assert statuses(talk.say("three", expect="2-4")) == ["applied"], (
        "a position behind the last event has seen it"
    )


@pytest.mark.parametrize("expect", ["3-1", "unknown-id", "rejected"])
def test_what_is_not_in_the_window_cannot_be_expected(expect: str) -> None:
    talk = Talk()
    talk.say("one")
    talk.say("rejected", expect="2-0", ids=["rejected"])
    assert statuses(talk.say("two", expect=expect)) == ["rejected"]


def test_conditions_hold_for_types_nobody_knows_and_odd_ones_are_none() -> None:
    talk = Talk()
    talk.say("one")
    assert talk.raw("acme.note.v1", {}, expect="2-0").status is Status.REJECTED
    assert talk.raw("acme.other.v1", {}, expect=["odd"], fence="odd").status is Status.APPLIED


@pytest.mark.parametrize("condition", [{"expect": "2-1"}, {"fence": 7}])
def test_what_an_operator_takes_out_has_no_condition(condition: dict[str, Any]) -> None:
    talk = Talk()
    talk.say("one", "two", "three")
    dropped = talk.raw("threadfold.event.dropped.v1", {"position": "2-2"}, **condition)
    assert dropped.status is Status.APPLIED
    bodies = b"".join(entry.body or b"" for entry in talk.window.tail)
    assert b"two" not in bodies and b"one" in bodies and b"three" in bodies


def test_a_summary_that_is_asked_for_is_due_at_once_and_leaves_the_last_group() -> None:
    told = Story({"min_messages": 20})
    for i in range(3):
        told.user(f"question {i}", 20)
        told.assistant(f"answer {i}", 20)
    assert told.window.meta.due is None
    told.say(events.CompactionRequested())
    due = told.window.meta.due
    assert due is not None and due.reason == "explicit"
    told.summarise()
    assert told.window.meta.summary is not None
    assert told.texts()[1:] == ["question 2", "answer 2"]
    told.assert_replays()
    told.say(events.CompactionRequested())
    assert told.window.meta.due is None, "there is nothing to summarise any more"


def test_no_summary_is_due_where_the_policy_pays_for_none() -> None:
    told = Story({"compaction": False})
    told.user("a question", 20)
    told.assistant("an answer", 20)
    told.user("another", 20)
    told.say(events.CompactionRequested())
    assert told.window.meta.due is None


def test_the_text_of_a_refused_event_is_kept_out_of_summaries() -> None:
    talk = Talk()
    talk.say("one", "two", "three")
    assert statuses(talk.say("a rival's words", expect="2-1")) == ["rejected"]
    talk.say("four", "five")
    assert talk.raw("threadfold.compaction.requested.v1", {}).status is Status.APPLIED
    request = request_for(talk.window, 1)
    assert request is not None
    live = [
        offset for piece in request.pieces if piece.live for offset in piece_offsets(piece) or []
    ]
    assert live[:3] == [1, 2, 3]
    assert 4 not in live
    assert 4 in [
        offset
        for piece in request.pieces
        if not piece.live
        for offset in piece_offsets(piece) or []
    ]
