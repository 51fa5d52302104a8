"""When a window is due, where a span ends, and which summaries it takes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from projections.events import types as events
from projections.fold.apply import Status
from projections.fold.replay import apply_with_log, replay
from projections.fold.summary_acceptance import why_not
from projections.policy.policy import Rules
from projections.reducers.due import choose_cut, due_span
from projections.window.entry import Entry, Kind
from projections.window.groups import group_tail
from projections.window.meta import Due
from projections.window.window import Window
from tests.support.histories import KEY, PARTITION, RULES, random_log
from tests.support.profiles import examples
from tests.support.talks import Talks, random_talks, summary_of

LONG = "word " * 60
Change = Callable[[events.Summary], events.Summary]


def talk(rules: Rules = RULES) -> Talks:
    """A talk without random events."""
    return random_talks(0, 0, PARTITION, [KEY], rules=rules)


def user(talks: Talks, tokens: int = 40) -> None:
    talks.say(KEY, events.Message("user", LONG), tokens=tokens)


def call(talks: Talks, *ids: str) -> None:
    talks.say(
        KEY,
        events.Message("assistant", LONG, tool_calls=[events.ToolCall(i, "f", "{}") for i in ids]),
        tokens=60,
    )


def result(talks: Talks, id_: str, tokens: int = 40) -> None:
    talks.say(KEY, events.ToolResult(id_, LONG), tokens=tokens)


def due_talk() -> Talks:
    """Nine messages of 40 tokens: more than the budget of 300 with a cut that leaves at most
    100.
    """
    talks = talk()
    while not talks.requests[KEY]:
        user(talks)
    return talks


def summary(talks: Talks) -> events.Summary:
    return summary_of(talks.requests[KEY][-1], talks.logs[KEY])


# -- when it is due
# ------------------------------------------------------------------------------------------


def test_a_window_over_its_budget_is_due_for_all_but_what_stays_verbatim() -> None:
    window = due_talk().windows[KEY]
    assert window.tail_tokens == 320
    assert window.meta.due == Due(0, 5, "budget", at=7)


def test_a_window_within_its_budget_is_not_due() -> None:
    talks = talk()
    for _ in range(7):
        user(talks)
    assert talks.windows[KEY].tail_tokens == 280 and talks.windows[KEY].meta.due is None


def test_few_messages_are_not_due_but_above_the_ceiling() -> None:
    rules = Rules({**RULES.deployment, "min_messages": 20})
    talks = talk(rules)
    for _ in range(3):
        user(talks, 250)
    assert talks.windows[KEY].meta.due is None
    talks.say(KEY, events.Message("user", "word " * 1_200), tokens=1_300)
    assert talks.windows[KEY].meta.due is not None


def test_a_share_of_the_models_window_is_a_trigger_of_its_own() -> None:
    rules = Rules({**RULES.deployment, "working_budget": 1_300, "compaction_ratio": 0.1})
    talks = talk(rules)
    while talks.windows[KEY].meta.due is None and talks.next_offset < 50:
        user(talks)
    assert talks.windows[KEY].tail_tokens == 200, "the first over a tenth of 1800"


def test_with_compaction_off_nothing_is_ever_due() -> None:
    talks = talk(Rules({**RULES.deployment, "compaction": False}))
    for _ in range(60):
        user(talks)
    assert talks.windows[KEY].meta.due is None


# -- where the span ends
# ------------------------------------------------------------------------------------------


def test_a_cut_does_not_part_a_call_from_its_results() -> None:
    talks = talk()
    for _ in range(4):
        user(talks)
    call(talks, "a", "b")
    result(talks, "a")
    result(talks, "b")
    user(talks)
    user(talks)
    due = talks.windows[KEY].meta.due
    assert due is not None and due.last in (3, 6)


def test_a_span_goes_around_an_open_call_and_the_newest_users_message() -> None:
    talks = talk()
    user(talks)
    user(talks)
    call(talks, "a", "b")
    result(talks, "a")
    for _ in range(5):
        talks.say(KEY, events.Message("assistant", LONG), tokens=40)
    due = talks.windows[KEY].meta.due
    assert due is not None and due.first == 0 and due.last > 3
    assert due.kept == (1, 2, 3), "the user's last words, the call and the result it has"
    assert talks.summarise(KEY) is Status.APPLIED
    window = talks.windows[KEY]
    assert [e.offset for e in window.tail][:3] == [1, 2, 3] and window.tail[3].offset > due.last
    assert [c.id for c in window.state.calls] == ["b"]
    result(talks, "b")
    assert window.tail[-1].link == (2, 1), "it is answered where it stands"


def test_a_call_that_the_user_talked_over_does_not_block_compaction() -> None:
    talks = talk()
    call(talks, "a")
    for _ in range(9):
        user(talks)
    due = talks.windows[KEY].meta.due
    assert due is not None and due.last > 0


def test_a_suspended_call_stays_while_spans_go_around_it_and_leaves_once_it_is_resolved() -> None:
    talks = talk()
    user(talks)
    call(talks, "a")
    talks.say(KEY, events.Suspension("s", "approval", tool_call_id="a"))
    rounds = 0
    while rounds < 3:
        user(talks)
        if talks.windows[KEY].meta.due is not None:
            assert talks.summarise(KEY) is Status.APPLIED
            assert talks.windows[KEY].tail[0].offset == 1, (
                "the user spoke again, and still somebody may approve"
            )
            rounds += 1
    talks.say(KEY, events.Resolution("s", "approved"))
    while talks.windows[KEY].meta.due is None:
        user(talks)
    due = talks.windows[KEY].meta.due
    assert due is not None and due.first == 1 and due.kept == ()
    assert talks.summarise(KEY) is Status.APPLIED
    assert talks.windows[KEY].tail[0].offset > due.last


@given(st.integers(0, 2**32), st.integers(10, 150))
@example(5393278, 11)
@hypothesis_settings(max_examples=examples(150), deadline=None)
def test_no_span_parts_a_group_or_takes_what_is_open(seed: int, length: int) -> None:
    assert_spans_are_whole(seed, length)


def assert_spans_are_whole(seed: int, length: int) -> Counter[str]:
    """Every span that could be asked for along a random history; returns how often there was
    what.
    """
    seen: Counter[str] = Counter()
    log = random_log(seed, length).log
    window = Window(KEY, PARTITION, RULES)
    for i, (offset, event) in enumerate(log):
        apply_with_log(window, offset, event, log[:i])
        due = due_span(window.tail, window.state, window.policy, window.covered_to)
        if due is None:
            continue
        seen["due"] += 1
        seen["kept"] += bool(due.kept)
        assert due.last > window.covered_to
        inside = {e.offset for e in window.tail if e.offset <= due.last} - set(due.kept)
        present = {e.offset for e in window.tail if e.calls}
        for entry in window.tail:
            if entry.link is not None and entry.link[0] in present:
                assert (entry.link[0] in inside) == (entry.offset in inside)
        assert not inside & {call.offset for call in window.state.calls if not call.dead}
        # A message that an operator took out is no call any more, whatever was suspended for it.
        assert not inside & {offset for offset, _ in window.state.suspended() if offset in present}
        users = [entry.offset for entry in window.tail if entry.kind == Kind.USER and not entry.out]
        assert not users or users[-1] not in inside
    return seen


def test_random_histories_have_spans_and_spans_that_go_around_something() -> None:
    seen: Counter[str] = Counter()
    for seed in range(30):
        seen += assert_spans_are_whole(seed, 100)
    assert seen["due"] > 200 and seen["kept"] > 50, seen


def test_a_result_whose_call_is_the_last_of_a_held_range_does_not_keep_the_range_from_its_summary() -> (
    None
):
    body = b'{"role":"user","content":"x"}'
    held = Entry(9, Kind.HELD, 50, first=0, count=10)
    tail = [held, Entry(10, Kind.USER, 50, body), Entry(11, Kind.RESULT, 50, body, link=(9, 0))]
    assert choose_cut(tail, group_tail(tail), Window(KEY, PARTITION, RULES).state, 50) == 0, (
        "the user's words stay, and so does the orphan"
    )
    tail.append(Entry(12, Kind.ASSISTANT, 50, body))
    assert choose_cut(tail, group_tail(tail), Window(KEY, PARTITION, RULES).state, 50) == 2


# -- which summaries are taken
# ------------------------------------------------------------------------------------------


def other(field: str, value: Any) -> Change:
    return lambda s: msgspec.structs.replace(s, **{field: value})


def span(**changes: Any) -> Change:
    return lambda s: msgspec.structs.replace(s, span=msgspec.structs.replace(s.span, **changes))


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda s: s, None),
        (span(positions=[]), None),
        (span(to="3-3", positions=[0, 1, 1, 1], count=4), None),
        (other("previous", "another"), "predecessor"),
        (other("previous_position", "3-1"), "previous_position"),
        (other("previous_position", "nonsense"), "previous_position"),
        (lambda s: span(survives_rollbacks=False)(other("rollback", "3-2")(s)), "rollback"),
        (span(from_="x"), "no valid positions"),
        (span(to="x"), "no valid positions"),
        (span(from_="2-0"), "another partition"),
        (span(to="2-5"), "another partition"),
        (span(from_="3-1"), "does not begin"),
        (span(to="3-99"), "does not end"),
        (span(positions=[0, 1, 1]), "positions"),
        (span(positions=[0, 1, 1, 1, 1, 2]), "positions"),
        (span(positions=[-5, 10**20]), "positions"),
    ],
)  # fmt: skip
def test_a_summary_is_taken_or_refused_for_a_reason(
    change: Callable[[events.Summary], events.Summary], reason: str | None
) -> None:
    talks = due_talk()
    why = why_not(talks.windows[KEY], change(summary(talks)))
    assert (why is None) if reason is None else (why is not None and reason in why), why


KEPT = "its kept events are not in its span"
PARTED = "its span separates a call from its result"
WAITS = "its span covers a call that waits for an answer"


@pytest.mark.parametrize(
    ("kept", "reason"),
    [
        ([1, 2, 3], None),
        ([1, 2, 3, 4], None),
        ([1, 2], PARTED),
        ([2, 3, 99], KEPT),
        ([1, 3], PARTED),
        ([1], WAITS),
        ([], WAITS),
        ([0, 1, 2, 3], "its span does not begin where the uncovered events begin"),
    ],
)  # fmt: skip
def test_what_a_summary_keeps_is_checked(kept: list[int], reason: str | None) -> None:
    """Message 1, then a call at 2 with one of two results at 3; the other is suspended."""
    talks = talk()
    user(talks)
    user(talks)
    call(talks, "a", "b")
    result(talks, "a")
    talks.say(KEY, events.Suspension("s", "approval", tool_call_id="b"))
    while talks.windows[KEY].meta.due is None:
        talks.say(KEY, events.Message("assistant", LONG), tokens=40)
    good = summary(talks)
    assert events.absolute(good.span.kept) == [1, 2, 3]
    changed = msgspec.structs.replace(
        good, span=msgspec.structs.replace(good.span, kept=events.delta(kept), positions=[])
    )
    assert why_not(talks.windows[KEY], changed) == reason


def test_a_summary_may_cover_a_result_that_was_left_out_before_its_call_came_and_keep_the_call() -> (
    None
):
    """Other rules leave other results out: what asked for it did not pair the two."""
    talks = talk()
    user(talks)
    result(talks, "a")
    user(talks)
    call(talks, "a", "b")
    while talks.windows[KEY].meta.due is None:
        talks.say(KEY, events.Message("assistant", LONG), tokens=40)
    good = summary(talks)
    assert events.absolute(good.span.kept) == [1, 2, 3]
    span = msgspec.structs.replace(good.span, kept=events.delta([2, 3]), positions=[])
    talks.say(KEY, msgspec.structs.replace(good, span=span))
    window = talks.windows[KEY]
    assert window.meta.summary is not None
    assert [found.id for found in window.state.calls] == ["a", "b"], "both wait for results"
    assert window.image() == replay(KEY, PARTITION, RULES, talks.logs[KEY]).image()
    result(talks, "a")
    assert [found.id for found in window.state.calls] == ["b"]


def test_an_accepted_summary_takes_its_span_out_of_the_tail_and_clears_the_mark() -> None:
    talks = due_talk()
    assert talks.summarise(KEY) is Status.APPLIED
    window = talks.windows[KEY]
    assert window.meta.summary is not None and window.meta.summary.to == 5
    assert [e.offset for e in window.tail] == [6, 7, 8]
    assert window.meta.due is None and window.tail_tokens == 80


def test_a_rival_a_repeat_and_a_stale_answer_are_refused() -> None:
    talks = due_talk()
    request = talks.requests[KEY][-1]
    assert talks.summarise(KEY, request) is Status.APPLIED
    assert talks.summarise(KEY, request, "rival ") is Status.REJECTED
    assert talks.summarise(KEY, request) is Status.REJECTED
    assert talks.windows[KEY].meta.skipped == 2


def test_summaries_chain_and_each_names_the_one_before() -> None:
    talks = talk()
    taken: list[tuple[str, int]] = []
    for _ in range(60):
        user(talks)
        window = talks.windows[KEY]
        if window.meta.due is not None:
            assert talks.summarise(KEY) is Status.APPLIED
            now = window.meta.summary
            assert now is not None
            assert (now.previous, now.previous_offset) == (taken[-1] if taken else (None, None))
            taken.append((now.summary_id, now.offset))
        assert window.tail_tokens <= 340
    assert len(taken) > 5


def test_a_late_summary_is_taken_and_the_next_span_begins_after_it() -> None:
    talks = due_talk()
    for _ in range(3):
        user(talks)
    assert talks.summarise(KEY, talks.requests[KEY][0]) is Status.APPLIED
    assert talks.windows[KEY].tail[0].offset == 6


# -- summaries under way when a rollback comes
# ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "after", "status"),
    [
        (5, 0, Status.REJECTED),
        (5, 1, Status.APPLIED),
        (6, 0, Status.APPLIED),
    ],
    ids=["the last of its span", "the last of its span, and a newer message", "behind its span"],
)
def test_a_rollback_to_a_message_leaves_it_verbatim_whatever_summary_was_under_way(
    to: int, after: int, status: Status
) -> None:
    talks = due_talk()
    request = talks.requests[KEY][0]
    assert (request.first, request.last) == (0, 5)
    talks.say(KEY, events.Rollback(f"3-{to}"))
    for _ in range(after):
        user(talks)
    assert talks.summarise(KEY, request) is status
    assert (talks.windows[KEY].tail[0].offset == 0) == (status is Status.REJECTED)
    assert any(entry.kind is Kind.USER for entry in talks.windows[KEY].tail)


def test_a_late_summary_does_not_take_the_users_newest_message_nor_the_result_rolled_back_to() -> (
    None
):
    talks = talk()
    for _ in range(4):
        user(talks)
    call(talks, "a")
    result(talks, "a")
    target = talks.windows[KEY].tail[-1].offset
    while not talks.requests[KEY]:
        talks.say(KEY, events.Message("assistant", LONG), tokens=40)
    request = talks.requests[KEY][0]
    assert (request.last, request.kept) == (target, [3]), "the user's last words stay"
    talks.say(KEY, events.Rollback(f"3-{target}"))
    late = summary_of(request, talks.logs[KEY])
    why = why_not(talks.windows[KEY], late)
    assert why is not None and "covers the newest message" in why
