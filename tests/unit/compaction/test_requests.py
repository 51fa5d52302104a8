"""A compaction request names exactly the events of its span, also when the span ends inside a range
that is held in the log only.
"""

from __future__ import annotations

import random

import pytest

from projections.events import types as events
from projections.events.types import absolute, delta
from projections.fold.apply import apply
from projections.fold.replay import apply_with_log
from projections.fold.summary_acceptance import why_not
from projections.storage.records import DueChange, write_of
from projections.window.entry import Kind
from projections.window.window import MAX_HIDDEN, Window
from streams.compaction.requests import CompactionRequest, piece_offsets, request_for
from tests.support.histories import KEY, PARTITION, RULES, Writer, make_event


def overfilled(messages: int) -> Window:
    """A window whose span was marked long ago: nobody answered, and its first events are left out
    by now. Offsets are even.
    """
    window = Window(KEY, PARTITION, RULES)
    for i in range(messages):
        apply(window, 2 * i, make_event(events.Message("user", f"said {i}"), f"e{i}", tokens=10))
    due = window.meta.due
    assert due is not None
    if messages < MAX_HIDDEN:
        assert all(entry.out for entry in window.tail if entry.offset <= due.last)
    else:
        assert window.tail[0].kind == Kind.HELD and due.last < window.tail[0].offset
    return window


def answer(request: CompactionRequest, offsets: list[int]) -> events.Summary:
    """A summary over these offsets, as the compactor makes it."""
    span = events.Span(from_=f"{PARTITION}-{request.first}", to=f"{PARTITION}-{request.last}", count=len(offsets), positions=delta(offsets),
                       digest="0" * 64)  # fmt: skip
    return events.Summary(
        summary_id=request.request_id, text="said", tokens=5, span=span, previous=None, reason="budget", summarizer="test", trust="user",
        tokens_before=100, tokens_after=5, policy=request.policy,
    )  # fmt: skip


@pytest.mark.parametrize("messages", [200, 1_000, 6_000])
def test_a_request_ends_where_its_span_does_and_its_answer_is_taken(messages: int) -> None:
    window = overfilled(messages)
    request = request_for(window, 1)
    assert request is not None
    (piece,) = request.pieces
    assert (piece.first, piece.last) == (request.first, request.last)
    expected = list(range(request.first, request.last + 1, 2))
    known = piece_offsets(piece)
    assert known == (expected if messages < 6_000 else None), "a long range only knows its bounds"
    assert why_not(window, answer(request, expected)) is None
    assert (
        why_not(window, answer(request, [*expected, request.last + 2])) is not None or known is None
    )


@pytest.mark.parametrize("messages", [200, 1_000])
def test_answering_request_after_request_empties_an_overfilled_window(messages: int) -> None:
    window = overfilled(messages)
    rounds = 0
    while (request := request_for(window, 1)) is not None:
        offsets = [o for piece in request.pieces for o in piece_offsets(piece) or []]
        assert offsets
        summary = answer(request, offsets)
        summary.previous, summary.previous_position = request.previous, None
        if request.previous_offset is not None:
            summary.previous_position = f"{PARTITION}-{request.previous_offset}"
        log = [
            (2 * i, make_event(events.Message("user", f"said {i}"), f"e{i}", tokens=10))
            for i in range(messages)
        ]
        outcome = apply_with_log(
            window, 10_000 + rounds, make_event(summary, f"s{rounds}", tokens=5), log
        )
        assert outcome.accepted, outcome.reason
        rounds += 1
    assert rounds >= 2
    assert window.held_tokens == 0
    assert window.tail_tokens <= window.policy.budget(0)


def test_a_rollback_that_leaves_the_same_span_due_makes_its_request_be_sent_again_at_once() -> None:
    writer = Writer(random.Random(1))
    while writer.window.meta.due is None:
        writer.append(events.Message("user", "word " * 10), tokens=40)
        writer.append(events.Message("assistant", "reply " * 10), tokens=30)
    writer.append(events.Message("user", "one more"), tokens=10)
    window, mark, due = writer.window, write_of(writer.window).after, writer.window.meta.due
    before = request_for(window, 1)
    writer.append(events.Rollback(f"{PARTITION}-{writer.log[-2][0]}"))
    after = request_for(window, 1)
    assert window.meta.due == due and before is not None and after is not None
    assert before.request_id != after.request_id
    assert write_of(window, mark).due is DueChange.SET


def test_what_is_gone_of_a_held_range_ends_with_the_span_too() -> None:
    # A piece beyond the span's end stops the compactor: what came after it in the request was not
    # read, and no answer was ever taken.
    window = Window(KEY, PARTITION, RULES)
    for i in range(1_000):
        apply(window, 2 * i, make_event(events.Message("user", f"said {i}"), f"e{i}", tokens=10))
        if i in (3, 900):
            apply(
                window, 2 * i + 1, make_event(events.Resolution(f"nobody{i}", "approved"), f"r{i}")
            )
    due = window.meta.due
    assert (
        due is not None
        and window.tail[0].kind == Kind.HELD
        and window.tail[0].gone
        and due.last < 1_800
    )
    request = request_for(window, 1)
    assert request is not None
    assert [
        (piece.live, absolute(piece.gone), piece.last <= request.last) for piece in request.pieces
    ] == [(True, [7], True)]
    named = sorted(offset for piece in request.pieces for offset in piece_offsets(piece) or [])
    assert named == sorted([*range(request.first, request.last + 1, 2), 7])
    assert why_not(window, answer(request, named)) is None
