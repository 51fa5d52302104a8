"""Rollbacks: what stays, what is abandoned, what comes back, and that the tail's path and the log's
path agree.
"""

from __future__ import annotations

import json
import random

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from projections.events import types as events
from projections.fold.apply import History, Outcome, Status, apply
from projections.fold.known_events import KnownEvents
from projections.fold.replay import apply_with_log, history_from, replay
from projections.policy.policy import Rules
from projections.render.awaits import awaits_of
from projections.render.render import render_openai
from projections.window.entry import RENDERED
from projections.window.window import Window
from streams.compaction.requests import CompactionRequest
from tests.support.histories import KEY, PARTITION, RULES
from tests.support.profiles import examples
from tests.support.talks import Talks, event_for, random_talks, summary_of


def talk() -> Talks:
    return random_talks(0, 0, PARTITION, [KEY])


def say(talks: Talks, *texts: str) -> None:
    for text in texts:
        talks.say(KEY, events.Message("user", text), id_=text)


def back(talks: Talks, to: str) -> Status:
    return talks.say(KEY, events.Rollback(to))


def texts(window: Window) -> list[str]:
    return [json.loads(body)["content"] for body in render_openai(window).bodies]


def test_a_rollback_within_the_tail_leaves_the_named_event_as_the_last() -> None:
    talks = talk()
    say(talks, "one", "two", "three", "four")
    assert back(talks, "3-1") is Status.APPLIED
    say(talks, "another three")
    assert texts(talks.windows[KEY]) == ["one", "two", "another three"]
    assert talks.seen["history"] == 0


def test_a_rollback_may_name_a_recent_events_id() -> None:
    talks = talk()
    say(talks, "one", "two", "three")
    assert back(talks, "one") is Status.APPLIED
    assert texts(talks.windows[KEY]) == ["one"]


@pytest.mark.parametrize("to", ["nobody", "3-99", "2-0", "3-3", "", "3-"])
def test_a_rollback_to_nothing_of_this_conversation_is_rejected_and_changes_nothing(
    to: str,
) -> None:
    talks = talk()
    say(talks, "one", "two", "three")
    before = texts(talks.windows[KEY])
    assert back(talks, to) is Status.REJECTED
    assert texts(talks.windows[KEY]) == before and talks.windows[KEY].meta.rollback is None


def test_counts_and_digest_go_on_after_a_rollback() -> None:
    talks = talk()
    say(talks, "one", "two", "three")
    digest = talks.windows[KEY].meta.digest
    back(talks, "3-0")
    meta = talks.windows[KEY].meta
    assert meta.count == 4 and meta.digest != digest
    talks.put(KEY, talks.logs[KEY][2][1])
    assert meta.duplicates == 1, "an abandoned event is still a repeat"


def test_lanes_come_back_as_they_stood() -> None:
    talks = talk()
    talks.say(KEY, events.Message("system", "be brief"))
    talks.say(KEY, events.Message("assistant", None, tool_calls=[events.ToolCall("a", "f", "{}")]))
    talks.say(KEY, events.Suspension("s", "approval", tool_call_id="a"))
    talks.say(KEY, events.Opened(policy={"min_messages": 9}))
    talks.say(KEY, events.Message("system", "be long"))
    talks.say(KEY, events.Resolution("s", "approved"))
    talks.say(KEY, events.ToolResult("a", "done"))
    assert not talks.windows[KEY].state.suspensions and talks.windows[KEY].policy.min_messages == 9
    back(talks, "3-2")
    window = talks.windows[KEY]
    assert [s.suspension_id for s in window.state.suspensions] == ["s"]
    assert [c.id for c in window.state.calls] == ["a"]
    assert window.policy.min_messages == 3 and len(window.state.pinned) == 1


def test_rolling_back_a_rollback_re_opens_what_it_abandoned() -> None:
    talks = talk()
    say(talks, "one", "two", "three")
    back(talks, "3-0")
    say(talks, "other")
    assert texts(talks.windows[KEY]) == ["one", "other"]
    assert back(talks, "3-2") is Status.APPLIED
    assert texts(talks.windows[KEY]) == ["one", "two", "three"]
    assert back(talks, "3-4") is Status.APPLIED
    assert texts(talks.windows[KEY]) == ["one", "other"]


def summarised() -> Talks:
    """Eight messages, the first six of them summarised at offset 8, one more at 9."""
    talks = talk()
    while not talks.requests[KEY]:
        talks.say(
            KEY, events.Message("user", f"text {talks.next_offset} " + "word " * 40), tokens=40
        )
    assert talks.summarise(KEY) is Status.APPLIED
    say(talks, "later")
    return talks


def last_outcome(talks: Talks, to: str) -> Outcome:
    """What a rollback gives, tried on a window folded from the log."""
    window = replay(KEY, PARTITION, RULES, talks.logs[KEY])
    return apply_with_log(
        window, talks.next_offset, event_for(KEY, events.Rollback(to), "try"), talks.logs[KEY]
    )


def test_a_rollback_into_a_summarised_span_reads_it_again_and_voids_the_summary() -> None:
    talks = summarised()
    summary = talks.windows[KEY].meta.summary
    assert summary is not None
    outcome = last_outcome(talks, "3-2")
    assert outcome.voided == (summary.summary_id,) and outcome.accepted == ()
    back(talks, "3-2")
    assert talks.seen["history"] == 1
    window = talks.windows[KEY]
    assert window.meta.summary is None
    assert [text.split(" word")[0] for text in texts(window)] == ["text 0", "text 1", "text 2"]


def test_a_rollback_behind_the_summary_keeps_it() -> None:
    talks = summarised()
    for to in ("3-6", "3-8"):
        outcome = last_outcome(talks, to)
        assert outcome.status is Status.APPLIED and not outcome.voided and not outcome.accepted, to
    back(talks, "3-6")
    assert talks.seen["history"] == 0 and len(texts(talks.windows[KEY])) == 2


def due_after_a_note() -> tuple[Talks, CompactionRequest]:
    """Messages that are to be summarised, with a turn's begin behind each, and the request."""
    talks = talk()
    while not talks.requests[KEY]:
        talks.say(
            KEY, events.Message("user", f"text {talks.next_offset}" + " word" * 40), tokens=40
        )
        talks.say(KEY, events.TurnStarted(f"t{talks.next_offset}"))
    return talks, talks.requests[KEY][-1]


def test_what_is_to_be_answered_stands_verbatim_after_a_rollback_to_it() -> None:
    # It is the last message of a summary that came later.
    talks, request = due_after_a_note()
    assert talks.summarise(KEY) is Status.APPLIED and request.last % 2 == 0
    for to in (request.last, request.last + 1):
        outcome = last_outcome(talks, f"3-{to}")
        assert outcome.voided == (request.request_id,)
        window = replay(KEY, PARTITION, RULES, talks.logs[KEY])
        before = replay(KEY, PARTITION, RULES, talks.logs[KEY][: to + 1])
        apply_with_log(window, 99, event_for(KEY, events.Rollback(f"3-{to}"), "b"), talks.logs[KEY])
        assert render_openai(window).bodies == render_openai(before).bodies
        assert awaits_of(window) == "model"
    assert last_outcome(talks, f"3-{request.last + 2}").voided == ()


@pytest.mark.parametrize("beyond", [0, 1], ids=["to-the-message", "to-what-came-behind-it"])
def test_a_summary_that_kept_what_is_to_be_answered_holds_after_a_rollback_to_it(
    beyond: int,
) -> None:
    talks, request = due_after_a_note()
    said, end = request.last, request.last + beyond
    made = summary_of(request, talks.logs[KEY])
    offsets = [at for at in events.absolute(made.span.positions) if at != said]
    span = msgspec.structs.replace(
        made.span,
        to=f"3-{end}",
        count=len(offsets) + beyond,
        positions=events.delta([*offsets, *range(said + 1, end + 1)]),
        kept=events.delta([said]),
    )
    talks.say(KEY, msgspec.structs.replace(made, span=span))
    before = render_openai(talks.windows[KEY]).bodies
    assert talks.windows[KEY].meta.summary is not None
    for to in range(end, said + 2):
        outcome = last_outcome(talks, f"3-{to}")
        assert (outcome.status, outcome.voided, outcome.accepted) == (Status.APPLIED, (), ())
        window = replay(KEY, PARTITION, RULES, talks.logs[KEY])
        apply_with_log(window, 99, event_for(KEY, events.Rollback(f"3-{to}"), "b"), talks.logs[KEY])
        assert window.meta.summary == talks.windows[KEY].meta.summary
        assert render_openai(window).bodies == before[:2]
        assert awaits_of(window) == "model"


def test_a_summary_that_comes_back_by_a_rollback_of_a_rollback_is_announced_again() -> None:
    talks = summarised()
    summary = talks.windows[KEY].meta.summary
    assert summary is not None
    back(talks, "3-2")
    outcome = last_outcome(talks, "3-9")
    assert [s.summary_id for s in outcome.accepted] == [summary.summary_id] and outcome.voided == ()
    back(talks, "3-9")
    assert texts(talks.windows[KEY])[-1] == "later" and talks.windows[KEY].meta.summary == summary


def summarised_twice() -> tuple[Talks, list[str]]:
    """Two summaries, one on the other, and a message after them; with the summaries' ids, oldest
    first.
    """
    talks = summarised()
    ids = []
    for _ in range(2):
        summary = talks.windows[KEY].meta.summary
        assert summary is not None
        ids.append(summary.summary_id)
        if len(ids) == 1:
            while not talks.requests[KEY] or talks.windows[KEY].meta.due is None:
                talks.say(
                    KEY,
                    events.Message("user", f"text {talks.next_offset} " + "word " * 40),
                    tokens=40,
                )
            assert talks.summarise(KEY) is Status.APPLIED
    say(talks, "last")
    return talks, ids


def test_a_summary_that_comes_back_leaves_those_it_stands_on_in_force() -> None:
    talks, (older, newer) = summarised_twice()
    last = talks.next_offset - 1
    summary = talks.windows[KEY].meta.summary
    assert summary is not None and summary.previous == older
    inside = f"{PARTITION}-{summary.to - 1}"
    assert last_outcome(talks, inside).voided == (newer,)
    back(talks, inside)
    outcome = last_outcome(talks, f"{PARTITION}-{last}")
    assert ([s.summary_id for s in outcome.accepted], outcome.voided) == ([newer], ())


def test_all_summaries_that_come_back_are_announced_again_oldest_first() -> None:
    talks, (older, newer) = summarised_twice()
    last = talks.next_offset - 1
    assert last_outcome(talks, "3-2").voided == (newer, older)
    back(talks, "3-2")
    outcome = last_outcome(talks, f"{PARTITION}-{last}")
    assert ([s.summary_id for s in outcome.accepted], outcome.voided) == ([older, newer], ())


def test_falling_back_along_a_chain_keeps_the_summary_that_still_holds() -> None:
    talks = talk()
    accepted: list[str] = []
    while len(accepted) < 4:
        talks.say(
            KEY, events.Message("user", f"text {talks.next_offset} " + "word " * 40), tokens=40
        )
        if talks.windows[KEY].meta.due is not None:
            talks.summarise(KEY)
            summary = talks.windows[KEY].meta.summary
            assert summary is not None
            accepted.append(summary.summary_id)
            if len(accepted) == 2:
                kept_until = talks.next_offset - 1
    outcome = last_outcome(talks, f"3-{kept_until}")
    assert list(outcome.voided) == accepted[:1:-1], "newest first, down to the second"
    back(talks, f"3-{kept_until}")
    now = talks.windows[KEY].meta.summary
    assert now is not None and now.summary_id == accepted[1]


def test_a_summary_asked_for_before_a_rollback_is_refused_after_one_into_its_span() -> None:
    talks = talk()
    while not talks.requests[KEY]:
        talks.say(KEY, events.Message("user", "word " * 40), tokens=40)
    request = talks.requests[KEY][-1]
    back(talks, f"3-{request.last - 1}")
    assert talks.summarise(KEY, request) is Status.REJECTED


def late(messages: int) -> Talks:
    """A backlog of messages, then two summaries of its first ten."""
    talks = talk()
    for i in range(messages):
        talks.say(KEY, events.Message("user", f"text {i} " + "word " * 40), tokens=40)
    talks.summarise(KEY, talks.requests[KEY][0])
    second = summary_of(talks.requests[KEY][-1], talks.logs[KEY])
    span = events.Span(from_="3-6", to="3-9", count=4, positions=[6, 1, 1, 1], digest="")
    assert talks.say(KEY, msgspec.structs.replace(second, span=span), tokens=12) is Status.APPLIED
    return talks


@pytest.mark.parametrize(("messages", "held"), [(40, False), (800, True)])
def test_late_summaries_of_a_backlog_survive_a_rollback_into_it(messages: int, held: bool) -> None:
    """The target is left out or held, two summaries were accepted after it: both cover only what
    came before it, so both still hold.
    """
    talks = late(messages)
    window = talks.windows[KEY]
    summary = window.meta.summary
    assert summary is not None and summary.previous is not None
    target, first = 12, window.tail[0]
    if held:
        assert first.start <= target < first.offset, "it is inside the held range"
    else:
        assert any(entry.offset == target and entry.out for entry in window.tail), "it is left out"
    outcome = last_outcome(talks, f"3-{target}")
    assert outcome.voided == ()
    before = talks.seen["history"], talks.seen["texts"]
    back(talks, f"3-{target}")
    assert (talks.seen["history"] - before[0], talks.seen["texts"] - before[1]) == (
        (1, 0) if held else (0, 1)
    )
    now = window.meta.summary
    assert now is not None and now.summary_id == summary.summary_id
    assert [text.split(" word")[0] for text in texts(window)[1:]] == [
        "text 10",
        "text 11",
        "text 12",
    ], "they are shown again"
    assert not any(entry.variants for entry in window.tail)


def test_a_rollback_before_a_cut_takes_it_back_and_one_behind_it_does_not() -> None:
    talks = talk()
    for i in range(18):
        talks.say(KEY, events.Message("user", f"text {i} " + "word " * 40), tokens=40)
    window = talks.windows[KEY]
    (cut,) = {at for entry in window.tail for at, _, _ in entry.variants}
    assert 6 < cut < 17
    out = sum(entry.out for entry in window.tail)
    back(talks, f"3-{cut + 1}")
    assert sum(entry.out for entry in window.tail) == out > 0 and talks.seen["texts"] == 0
    back(talks, f"3-{cut}")
    assert sum(entry.out for entry in window.tail) == out and talks.seen["texts"] == 0, (
        "it was made with that very event"
    )
    back(talks, f"3-{cut - 1}")
    assert not any(entry.variants for entry in window.tail) and talks.seen["texts"] == 1
    shown = [entry for entry in window.tail if entry.kind in RENDERED]
    assert [json.loads(entry.body)["content"].split(" word")[0] for entry in shown] == [
        f"text {i}" for i in range(cut)
    ]
    assert [(entry.tokens, entry.full, entry.chars) for entry in shown] == [(40, 0, 0)] * cut, (
        "as if it had never been"
    )
    due = window.meta.due
    assert due is not None and due.at < cut, "the summary that was due before is still"


def test_a_text_that_the_log_lost_stays_left_out_and_the_rollback_counts() -> None:
    talks = talk()
    for i in range(18):
        talks.say(KEY, events.Message("user", f"text {i} " + "word " * 40), tokens=40)
    window = talks.windows[KEY]
    rollback = event_for(KEY, events.Rollback("3-9"), "the-rollback")
    asked = apply(window, talks.next_offset, rollback)
    assert (
        asked.status is Status.NEEDS_HISTORY
        and asked.target is None
        and asked.texts == tuple(range(len(asked.texts)))
    )
    found = KnownEvents(
        (at, event) for at, event in talks.logs[KEY] if at in asked.texts and at != 3
    )
    assert apply(window, talks.next_offset, rollback, History(texts=found)).status is Status.APPLIED
    assert [entry.offset for entry in window.tail if entry.out] == [3]


def test_an_erased_conversation_stays_erased() -> None:
    talks = talk()
    say(talks, "one", "two")
    talks.say(KEY, events.Erased())
    assert back(talks, "3-0") is Status.REJECTED
    assert texts(talks.windows[KEY]) == []


@given(st.integers(0, 2**32), st.integers(10, 90), st.integers(0, 40))
@hypothesis_settings(max_examples=examples(150), deadline=None)
def test_the_tails_path_and_the_logs_path_give_the_same_render(
    seed: int, length: int, back_by: int
) -> None:
    """Where the tail alone can answer, the log gives the same messages (the active summary and
    held ranges apart).
    """
    talks = random_talks(seed, length, PARTITION, [KEY])
    log, window = talks.logs[KEY], talks.windows[KEY]
    if (
        any(isinstance(event, events.EventDroppedEvent) for _, event in log)
        or window.meta.summary is not None
    ):
        return
    live = [entry for entry in window.tail if entry.kind in RENDERED]
    if not live or window.held_tokens:
        return
    target = live[max(0, len(live) - 1 - back_by)].offset
    rollback = event_for(KEY, events.Rollback(f"{PARTITION}-{target}"), "the-rollback")
    local = replay(KEY, PARTITION, RULES, log)
    if apply(local, talks.next_offset, rollback).status is not Status.APPLIED:
        return
    restored = history_from(local, target, log).window
    assert restored is not None
    if restored.held_tokens or restored.meta.summary is not None:
        return
    assert render_openai(local, 10**6).digest == render_openai(restored, 10**6).digest
    assert (
        local.state.suspensions == restored.state.suspensions
        and local.state.calls == restored.state.calls
    )


def test_a_call_that_waited_at_the_target_waits_again_though_a_later_summary_covers_it() -> None:
    talks = talk()

    def chat(count: int) -> None:
        for _ in range(count):
            talks.say(KEY, events.Message("assistant", "word " * 20), tokens=40)

    talks.say(KEY, events.Message("user", "Look it up."), tokens=10)
    for name in "ab":
        call = events.ToolCall(name, "look", "{}")
        talks.say(KEY, events.Message("assistant", f"I look {name}.", tool_calls=[call]), tokens=20)
    talks.say(KEY, events.Suspension("s", "approval", tool_call_id="b"))
    chat(25)
    target = talks.next_offset - 1
    talks.say(KEY, events.Message("user", "Never mind."), tokens=10)  # "a" is given up
    while talks.windows[KEY].meta.due is not None:
        assert talks.summarise(KEY) is Status.APPLIED
    window = talks.windows[KEY]
    assert 1 not in {entry.offset for entry in window.tail} and 10 < window.covered_to < target
    while talks.windows[KEY].covered_to <= target:
        chat(1)
        if talks.windows[KEY].meta.due is not None:
            assert talks.summarise(KEY) is Status.APPLIED
    assert back(talks, f"{PARTITION}-{target}") is Status.APPLIED
    window = talks.windows[KEY]
    assert [found.id for found in window.state.calls] == ["a", "b"]
    assert 1 in {entry.offset for entry in window.tail}
    assert window.image() == replay(KEY, PARTITION, RULES, talks.logs[KEY]).image()


@pytest.mark.parametrize("held", [False, True])
def test_a_call_that_a_later_summary_took_waits_again_at_a_target_in_the_tail(held: bool) -> None:
    def given_up(count: int) -> tuple[Talks, int]:
        """A talk whose call waits until so many messages were said, the last of them the target; it
        is summarised then. A suspension holds it up, though its result has come, or nothing.
        """
        talks = talk()
        talks.say(KEY, events.Message("user", "Look it up."), tokens=10)
        call = events.ToolCall("a", "look", "{}")
        talks.say(KEY, events.Message("assistant", "I look.", tool_calls=[call]), tokens=20)
        if held:
            talks.say(KEY, events.Suspension("s", "approval", tool_call_id="a"))
            talks.say(KEY, events.ToolResult("a", "found"), tokens=5)
        said = 0
        while 1 in {entry.offset for entry in talks.windows[KEY].tail}:
            talks.say(KEY, events.Message("assistant", "word " * 20), tokens=40)
            said += 1
            if said == count:
                target = talks.next_offset - 1
                talks.say(KEY, events.Resolution("s", "approved"))
                talks.say(KEY, events.Message("user", "Never mind."), tokens=10)
            if talks.windows[KEY].meta.due is not None:
                assert talks.summarise(KEY) is Status.APPLIED
        return talks, target

    talks, target = next(
        (talks, target)
        for talks, target in map(given_up, range(15, 60))
        if talks.windows[KEY].covered_to < target
    )
    assert back(talks, f"{PARTITION}-{target}") is Status.APPLIED
    window = talks.windows[KEY]
    assert window.state.waiting() == {(1, 0)}
    assert 1 in {entry.offset for entry in window.tail}
    assert window.image() == replay(KEY, PARTITION, RULES, talks.logs[KEY]).image()


def test_a_summary_of_a_closed_session_stays_in_force_at_its_close_though_a_call_waits() -> None:
    rules = Rules({"profile": "sliding"})
    talks = Talks(random.Random(0), PARTITION, [KEY], rules=rules)
    talks.say(KEY, events.Message("user", "Book it."), tokens=10)
    call = events.ToolCall("a", "book", "{}")
    talks.say(KEY, events.Message("assistant", "I book.", tool_calls=[call]), tokens=20)
    talks.say(KEY, events.Suspension("s", "approval", tool_call_id="a"))
    talks.say(KEY, events.SessionClosed("explicit"))
    closed = talks.next_offset - 1
    say(talks, "Hello again.")
    assert talks.summarise(KEY) is Status.APPLIED
    summary = talks.windows[KEY].meta.summary
    asked = len(talks.requests[KEY])
    assert summary is not None and summary.to == closed
    assert back(talks, f"{PARTITION}-{closed}") is Status.APPLIED
    window = talks.windows[KEY]
    assert window.meta.summary == summary and len(talks.requests[KEY]) == asked
    assert window.state.waiting() == {(1, 0)} and 1 in {entry.offset for entry in window.tail}
    assert window.image() == replay(KEY, PARTITION, rules, talks.logs[KEY]).image()
