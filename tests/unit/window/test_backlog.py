"""A backlog that nobody summarised: what is left out of the tail, what is held as a range of the
log, and how summaries take both.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import msgspec
import pytest

from projections.events import types as events
from projections.fold import append as fold_append
from projections.fold.apply import Status, apply
from projections.fold.summary_acceptance import why_not
from projections.policy.policy import Rules
from projections.reducers import enforce_limits
from projections.reducers.reduction import Reduction
from projections.render.render import render_openai
from projections.window import window as tail_window
from projections.window.entry import Entry, Kind, Omitted
from projections.window.groups import Group, Grouper
from projections.window.unsettled import Unsettled
from projections.window.window import MAX_ENTRIES, MAX_HIDDEN, Window
from streams.compaction.requests import piece_offsets, request_for
from tests.support.histories import KEY, PARTITION, RULES, Writer, make_event
from tests.support.talks import Talks, random_talks, summary_of

LONG = "word " * 60
MANY = 800
"""Messages of which so many are left out that they are held as one range."""


def user(talks: Talks) -> None:
    talks.say(KEY, events.Message("user", LONG), tokens=40)


def backlog(n: int = 30) -> Talks:
    """So many messages, and nobody answered a request."""
    talks = random_talks(0, 0, PARTITION, [KEY])
    for _ in range(n):
        user(talks)
    return talks


def test_past_twice_the_budget_the_oldest_messages_are_left_out_and_stay_known() -> None:
    window = backlog().windows[KEY]
    hidden = [entry for entry in window.tail if entry.out]
    assert [entry.offset for entry in hidden] == list(range(len(hidden))), "the oldest"
    assert all(
        (e.variant, e.body, e.tokens, e.full) == ("out:leave_out_oldest", b"", 0, 40)
        for e in hidden
    )
    assert window.left_out == len(hidden) > 0 and window.held_tokens == 40 * len(hidden)
    assert window.tail_tokens <= 600 and window.tail_tokens + window.held_tokens == 30 * 40
    assert window.tail_messages == len(window.tail) == 30


def test_a_cut_goes_down_to_the_low_water_mark_and_the_next_one_is_far() -> None:
    talks, cuts, before = backlog(0), [], 0
    for _ in range(60):
        user(talks)
        window = talks.windows[KEY]
        if window.left_out != before:
            cuts.append(talks.next_offset)
            assert window.tail_tokens <= 300, "half of what may be held"
            before = window.left_out
        assert window.tail_tokens <= 600
    apart = [later - earlier for earlier, later in pairwise(cuts)]
    assert len(apart) > 3 and min(apart) >= 300 // 40, apart


def test_what_says_nothing_any_more_becomes_a_range_of_the_log() -> None:
    window = backlog(MANY).windows[KEY]
    head = window.tail[0]
    assert head.kind == Kind.HELD and head.start == 0 and head.count > MAX_HIDDEN
    assert head.offsets() == list(range(head.count))
    assert sum(entry.out for entry in window.tail) <= MAX_HIDDEN
    assert window.tail_tokens <= 600 and window.tail_tokens + window.held_tokens == MANY * 40
    assert window.tail_messages == MANY


def backlog_with_open_calls() -> Talks:
    talks = backlog(0)
    for i in range(MANY):
        calls = [events.ToolCall(f"c{i}", "find", "{}")] if i % 20 == 0 else None
        talks.say(KEY, events.Message("assistant", f"number {i}", tool_calls=calls), tokens=20)
    return talks


@pytest.mark.parametrize("to", [60, 110, 300, 700, 790])
def test_a_rollback_within_a_wide_span_that_is_due_leaves_one_within_the_tail(to: int) -> None:
    talks = backlog_with_open_calls()
    while not (due := talks.windows[KEY].meta.due) or due.last < to:
        assert talks.summarise(KEY) is Status.APPLIED
    assert due.at < to < due.last
    talks.say(KEY, events.Rollback(f"3-{to}"))
    window = talks.windows[KEY]
    for i in range(70):
        if window.meta.due is None:
            talks.say(KEY, events.Message("assistant", f"after {i}"), tokens=20)
    assert window.meta.due is not None and window.meta.due.last < talks.next_offset
    assert talks.summarise(KEY) is Status.APPLIED
    assert statistics(window) == statistics(window.copy())


def test_a_backlog_with_calls_that_stay_open_is_summarised_at_once() -> None:
    talks, summaries = backlog_with_open_calls(), 0
    while talks.windows[KEY].meta.due is not None:
        assert talks.summarise(KEY) is Status.APPLIED
        summaries += 1
    assert summaries <= 6, "it is one for each passing of the mark"
    window = talks.windows[KEY]
    assert [call.offset for call in window.state.calls] == list(range(0, MANY, 20))
    assert window.left_out == 0 and window.omitted is None


@pytest.mark.parametrize("words", [310, 900])
def test_a_call_that_waits_and_takes_the_room_does_not_make_each_message_a_summary(
    words: int,
) -> None:
    talks = backlog(0)
    call = events.ToolCall("w", "write", msgspec.json.encode({"text": "word " * words}).decode())
    talks.say(KEY, events.Message("assistant", "I write", tool_calls=[call]), tokens=words + 20)
    talks.say(KEY, events.Suspension("s", "approval", tool_call_id="w"))
    summaries = 0
    for n in range(100):
        talks.say(KEY, events.Message("user" if n % 2 else "assistant", f"number {n}"), tokens=9)
        if talks.windows[KEY].meta.due is not None:
            talks.summarise(KEY)
            summaries += 1
    assert summaries < 30
    assert "I write" in render_openai(talks.windows[KEY]).messages.decode()


@pytest.mark.parametrize("messages", [30, MANY])
def test_the_trace_tells_of_all_that_was_left_out_held_or_not(messages: int) -> None:
    window = backlog(messages).windows[KEY]
    render = render_openai(window)
    (step,) = render.trace
    shown = len(render.bodies) - 1
    assert step.reducer == "leave_out_oldest"
    assert (step.messages_before - step.messages_after, step.tokens_before - step.tokens_after) == (
        messages - shown,
        40 * (messages - shown),
    )
    assert f"[{messages - shown} earlier messages left out: 3-0 to " in render.bodies[0].decode()


def test_many_small_messages_within_the_budget_are_held_as_ranges_too() -> None:
    window = Window(
        KEY,
        PARTITION,
        Rules(
            {
                **RULES.deployment,
                "working_budget": 100_000,
                "model_window": 128_000,
                "min_messages": 10**6,
            }
        ),
    )
    for i in range(MAX_ENTRIES + 10):
        apply(window, i, make_event(events.Message("user", "x"), f"e{i}", 5))
    head = window.tail[0]
    assert (
        head.kind == Kind.HELD and head.count == MAX_ENTRIES // 4 and head.tokens == 5 * head.count
    )
    assert len(window.tail) == 1 + MAX_ENTRIES + 10 - head.count


def test_a_range_knows_which_of_its_events_were_abandoned() -> None:
    talks = backlog(10)
    talks.say(KEY, events.Rollback("3-4"))
    for _ in range(MANY):
        user(talks)
    head = talks.windows[KEY].tail[0]
    assert head.kind == Kind.HELD and head.gone is not None
    assert events.absolute(head.gone) == [5, 6, 7, 8, 9, 10], "and the rollback itself"
    (piece,) = talks.requests[KEY][-1].pieces
    assert piece.live and events.absolute(piece.gone) == [5, 6, 7, 8, 9, 10]
    assert {5, 10} <= set(piece_offsets(piece) or []), "they belong to the span"


def test_the_first_request_still_stands_when_its_span_was_left_out() -> None:
    talks = backlog()
    assert talks.windows[KEY].tail[5].out and talks.windows[KEY].tail[6].out
    assert talks.summarise(KEY, talks.requests[KEY][0]) is Status.APPLIED
    window = talks.windows[KEY]
    assert window.tail[0].offset == 6
    assert window.tail_tokens + window.held_tokens == 24 * 40
    assert window.meta.due is not None and window.meta.due.first == 6


def test_the_first_request_still_stands_when_its_span_went_into_a_held_range() -> None:
    talks = backlog(MANY)
    assert talks.summarise(KEY, talks.requests[KEY][0]) is Status.APPLIED
    window = talks.windows[KEY]
    head = window.tail[0]
    assert head.kind == Kind.HELD and head.start == 6
    assert head.offsets() == list(range(6, 6 + head.count))
    assert window.tail_tokens + window.held_tokens == (MANY - 6) * 40
    assert window.meta.due is not None and window.meta.due.first == 6


@pytest.mark.parametrize("messages", [80, MANY])
def test_a_backlog_is_summarised_in_a_chain_down_to_the_budget(messages: int) -> None:
    talks = backlog(messages)
    for _ in range(30):
        if talks.windows[KEY].meta.due is None:
            break
        assert talks.summarise(KEY, request_for(talks.windows[KEY], 1)) is Status.APPLIED
    window = talks.windows[KEY]
    assert window.meta.due is None and window.held_tokens == 0 and 0 < window.tail_tokens <= 300
    assert not any(entry.out for entry in window.tail), (
        "what was left out for the wait alone is shown again"
    )


def test_a_span_inside_a_held_range_must_end_at_one_of_its_events() -> None:
    window, log = Window(KEY, PARTITION, RULES), []
    for i in range(MANY):
        log.append((10 * i, make_event(events.Message("user", LONG), f"e{i}", 40)))
        apply(window, *log[-1])
    assert window.tail[0].kind == Kind.HELD and window.meta.due is not None
    request = request_for(window, 1)
    assert request is not None
    good = summary_of(request, log)
    inside = msgspec.structs.replace(good.span, to="3-55", positions=[])
    assert (
        why_not(window, msgspec.structs.replace(good, span=inside))
        == "its span does not end at an event of the window"
    )
    inside = msgspec.structs.replace(good.span, to="3-50", positions=[0, 10, 10, 10, 10, 10])
    assert why_not(window, msgspec.structs.replace(good, span=inside)) is None


def test_positions_inside_a_range_of_unknown_offsets_are_trusted_and_beside_it_are_not() -> None:
    window = Window(KEY, PARTITION, RULES)
    window.replace_tail(
        [
            Entry(9, Kind.HELD, 50, first=0, count=6),
            Entry(12, Kind.USER, 5, b'{"role":"user","content":"x"}'),
            Entry(15, Kind.NOTE),
        ]
    )
    good = events.Summary(
        summary_id="s", text="t", tokens=1, span=events.Span("3-0", "3-12", 7, [0, 3, 6, 3], ""), previous=None, reason="budget",
        summarizer="x", trust="user", tokens_before=1, tokens_after=1, policy="p",
    )  # fmt: skip
    assert why_not(window, good) is None
    wrong = msgspec.structs.replace(good, span=events.Span("3-0", "3-12", 7, [0, 3, 6, 2], ""))
    assert why_not(window, wrong) == "its positions are not those of the events in its span"


def test_a_suspension_that_left_the_tail_does_not_keep_the_window_from_compaction() -> None:
    writer = Writer(random.Random(1), RULES)
    writer.append(events.Suspension("s", "approval"))
    for _ in range(60):
        writer.append(events.Message("user", "word " * 30), tokens=34)
    assert writer.window.state.suspensions, "still open"
    assert writer.window.held_tokens, "and out of the tail"
    assert writer.window.meta.due is not None


def test_nothing_is_held_where_all_of_a_tail_that_is_too_large_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talks = backlog(0)

    def ask(n: int) -> None:
        calls = [events.ToolCall(f"look{n}", "find", "{}"), events.ToolCall(f"pay{n}", "pay", "{}")]
        talks.say(KEY, events.Message("assistant", "I look.", tool_calls=calls), tokens=20)
        approval = events.Suspension(f"s{n}", "approval", tool_call_id=f"pay{n}", prompt="May I?")
        talks.say(KEY, approval)
        talks.say(KEY, events.ToolResult(f"look{n}", LONG * 14), tokens=9)

    ask(1)
    while not talks.requests[KEY]:
        user(talks)
    ask(2)
    talks.say(KEY, events.CompactionRequested())
    while talks.requests[KEY]:
        talks.summarise(KEY, talks.requests[KEY].pop(0))
    window = talks.windows[KEY]
    assert window.covered_to == 3
    for module in (tail_window, fold_append, enforce_limits):
        monkeypatch.setattr(module, "MAX_TAIL_BYTES", window.tail_bytes)
    before = [entry.offset for entry in window.tail]
    talks.say(KEY, events.Suspension("more", "input", prompt="Which account?"))
    assert [entry.offset for entry in window.tail] == [*before, talks.next_offset - 1]


STATISTICS = (
    "flat", "gains", "held_tokens", "left_out", "omitted", "results", "shown_messages",
    "shown_turns", "tail_bytes", "tail_messages", "tail_pinned", "tail_pinned_tokens",
    "tail_tokens",
)  # fmt: skip


def statistics(window: Window) -> dict[str, object]:
    return {name: getattr(window, name) for name in STATISTICS}


def over_its_limit(**policy: object) -> Talks:
    """A conversation over what may be held, which waits for approvals: no cut takes that away."""
    talks = random_talks(0, 0, PARTITION, [KEY])
    if policy:
        talks.say(KEY, events.Opened(policy=policy))
    for n in range(3):
        calls = [events.ToolCall(f"look{n}", "find", "{}"), events.ToolCall(f"pay{n}", "pay", "{}")]
        talks.say(KEY, events.Message("assistant", "I look.", tool_calls=calls), tokens=20)
        approval = events.Suspension(f"s{n}", "approval", tool_call_id=f"pay{n}", prompt="May I?")
        talks.say(KEY, approval)
        talks.say(KEY, events.ToolResult(f"look{n}", LONG * 14), tokens=850)
    return talks


POLICIES: list[dict[str, object]] = [
    {},
    {"compaction": False},
    {"compaction": False, "reducers": [{"name": "keep_last_n_messages", "n": 4}]},
    {"compaction": False, "reducers": [{"name": "compact_tool_results", "keep_last_n": 2}]},
]
FIRST_AND_MORE = [
    POLICIES[0],
    *(pytest.param(policy, marks=pytest.mark.long) for policy in POLICIES[1:]),
]


def pair(n: int, text: str) -> list[events.Message | events.ToolResult]:
    call = events.ToolCall(f"c{n}", "find", "{}")
    return [
        events.Message("assistant", f"I look {n}", tool_calls=[call]),
        events.ToolResult(f"c{n}", text),
    ]


def traffic(kind: str, n: int) -> list[events.Message | events.ToolResult]:
    """The events number ``n`` of a conversation of one kind."""
    match kind:
        case "messages":
            return [events.Message("user" if n % 2 else "assistant", f"number {n}")]
        case "answered calls":
            return pair(n, f"number {n}")
        case "pinned results" | "pinned results without a word":
            call, result = pair(n, f"number {n}")
            call.content = "" if kind.endswith("word") else call.content
            return [call, msgspec.structs.replace(result, pinned=True)]
        case "results before the calls before":
            return [events.ToolResult(f"c{n + 1}", f"number {n + 1}"), *pair(n, "")[:1]]
        case "calls that nobody answers":
            return pair(n, "")[:1]
        case _:
            return pair(n, f"number {n}")[1:]


KINDS = ("messages", "answered calls", "calls that nobody answers", "results of no call")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("policy", FIRST_AND_MORE)
def test_an_event_costs_no_more_in_a_long_tail_that_stays_over_its_limit(
    policy: dict[str, object], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks = over_its_limit(**policy)
    assert grouped_by(talks.windows[KEY], kind, monkeypatch) < 250, "the whole tail is looked at"
    assert sum(entry.out for entry in talks.windows[KEY].tail) > 600


@pytest.mark.parametrize("kind", ["pinned results", "pinned results without a word"])
@pytest.mark.parametrize("policy", FIRST_AND_MORE)
def test_a_cut_looks_at_few_groups_in_a_long_tail_of_pinned_results(
    policy: dict[str, object], kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    talks, looked, groups = over_its_limit(**policy), 0, Unsettled.groups
    window = talks.windows[KEY]

    def counted(unsettled: Unsettled, tail: Sequence[Entry], n: int) -> list[Group]:
        nonlocal looked
        looked = len(groups(unsettled, tail, n))
        return groups(unsettled, tail, n)

    monkeypatch.setattr(Unsettled, "groups", counted)
    for n in range(600):
        for event in traffic(kind, n):
            talks.say(KEY, event, tokens=9)
    assert 0 < looked < 70
    assert sum(entry.pinned and not entry.out for entry in window.tail) == 600, "they stay"


@pytest.mark.parametrize("policy", POLICIES[:2])
def test_an_event_costs_no_more_where_groups_overlap_so_that_no_span_can_end(
    policy: dict[str, object], monkeypatch: pytest.MonkeyPatch
) -> None:
    talks = random_talks(0, 0, PARTITION, [KEY])
    talks.say(KEY, events.Opened(policy=policy))
    window = talks.windows[KEY]
    assert grouped_by(window, "results before the calls before", monkeypatch) < 150
    assert window.meta.due is None and len(window.tail) > 1_400


def test_an_event_costs_no_more_where_shortenings_would_save_too_little(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talks = random_talks(0, 0, PARTITION, [KEY])
    policy = {"compaction": False, "working_budget": 14_000, "model_window": 60_000}
    talks.say(KEY, events.Opened(policy=policy))
    talks.say(KEY, events.Message("user", "Look."), tokens=4)
    assert grouped_by(talks.windows[KEY], "answered calls", monkeypatch) < 70
    assert not any(entry.out for entry in talks.windows[KEY].tail)
    assert talks.windows[KEY].tail_tokens > talks.windows[KEY].limits.mark


def test_a_message_that_only_its_pinned_result_is_left_of_is_named() -> None:
    talks = random_talks(0, 0, PARTITION, [KEY])
    call = events.ToolCall("c", "find", "{}")
    for text, tokens in ("I look for it, and say why. " * 5, 40), ("", 9):
        talks.say(KEY, events.Message("assistant", text, tool_calls=[call]), tokens=tokens)
        talks.say(KEY, events.ToolResult("c", "found", pinned=True), tokens=5)
    talks.say(KEY, events.Message("assistant", "I found it."), tokens=5)
    for _ in range(15):
        user(talks)
    window = talks.windows[KEY]
    first, _, second, *_ = window.tail
    assert (first.variant, second.variant) == ("pair:0:leave_out_oldest", "")
    out = [entry for entry in window.tail if entry.out]
    assert window.omitted == Omitted(1 + len(out), first.offset, out[-1].offset)
    line = f"[{1 + len(out)} earlier messages left out: 3-0 to "
    assert line in render_openai(window).bodies[0].decode()
    assert statistics(window) == statistics(window.copy())


def test_groups_of_pinned_results_are_not_left_out_again_and_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    talks, tries, leave_out = random_talks(0, 0, PARTITION, [KEY]), 0, Reduction.leave_out

    def counted(reduction: Reduction, group: Group, reducer: str) -> None:
        nonlocal tries
        tries += 1
        leave_out(reduction, group, reducer)

    monkeypatch.setattr(Reduction, "leave_out", counted)
    for n in range(200):
        for event in pair(n, f"number {n}"):
            if isinstance(event, events.ToolResult):
                event.pinned = True
            talks.say(KEY, event, tokens=20)
    assert talks.windows[KEY].tail_tokens > talks.windows[KEY].limits.hold
    assert tries < 2 * 200


def grouped_by(window: Window, kind: str, monkeypatch: pytest.MonkeyPatch) -> float:
    """How many entries are grouped for each event, after some 600 of them."""
    grouped, sent, add = 0, 0, Grouper.add

    def counted(grouper: Grouper, entry: Entry) -> None:
        nonlocal grouped
        grouped += 1
        add(grouper, entry)

    def say(n: int) -> None:
        nonlocal sent
        for event in traffic(kind, n):
            sent += 1
            apply(window, window.meta.position + 1, make_event(event, f"e{n}.{sent}", 9))

    for n in range(600):
        say(n)
    monkeypatch.setattr(Grouper, "add", counted)
    sent = 0
    for n in range(600, 700):
        say(n)
    return grouped / sent


@pytest.mark.parametrize("policy", FIRST_AND_MORE)
def test_statistics_are_those_of_a_window_that_is_read_after_each_cut(
    policy: dict[str, object],
) -> None:
    talks, rng, cut = over_its_limit(**policy), random.Random(3), 0
    window = talks.windows[KEY]
    for n in range(400):
        said = traffic(rng.choice(("messages", "messages", *KINDS)), n)
        if rng.random() < 0.3:
            said = pair(n, LONG)[:: rng.choice((1, 1, -1))]
        for event in said:
            if isinstance(event, events.ToolResult):
                event.pinned = rng.random() < 0.05
            talks.say(KEY, event, tokens=rng.choice((9, 20, 60)))
        cut += window.pop_cut() is not None
        assert statistics(window) == statistics(window.copy()), n
    assert cut > 100
