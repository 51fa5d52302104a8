"""Rendering: always messages that OpenAI takes, never above the ceiling, whatever the history."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import FrameType
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from projections.events import token_cost
from projections.events import types as events
from projections.events.codec import decode_event
from projections.events.validation import make_record
from projections.fold.apply import Status, apply
from projections.fold.replay import Logged, apply_with_log
from projections.formats.context_document import context_document
from projections.names import Key
from projections.policy.policy import Rules
from projections.render.fit_to_limit import DoesNotFit
from projections.render.read_header import SUMMARY_MARK
from projections.render.render import Render, render_openai
from projections.window.bodies import message_body, to_flat
from projections.window.truncation import clip
from projections.window.window import Window
from streams.compaction.requests import request_for
from tests.support.conversations import conversations
from tests.support.histories import KEY, PARTITION, RULES, make_event, random_log
from tests.support.profiles import examples
from tests.support.talks import random_talks, summary_of
from threadfold.demo.openai_checker import problems
from threadfold.testing import MemoryLog

LIMITS = (None, 10_000, 700, 300, 120, 30, 0)


def checked(window: Window, max_tokens: int | None = None) -> Render | None:
    """The render, None where it does not fit; valid and within its limit otherwise."""
    limit = window.policy.ceiling if max_tokens is None else min(max_tokens, window.policy.ceiling)
    try:
        render = render_openai(window, max_tokens)
    except DoesNotFit as error:
        assert str(error).startswith("the window cannot be rendered: ")
        return None
    assert problems(render.messages) == []
    assert render.tokens <= limit
    return render


def folded(*datas: object, rules: Rules = RULES, tokens: int | None = 20) -> Window:
    window = Window(KEY, PARTITION, rules)
    for i, data in enumerate(datas):
        assert apply(window, i, make_event(data, f"e{i}", tokens)).status is Status.APPLIED
    return window


def messages(window: Window, max_tokens: int | None = None) -> list[dict[str, Any]]:
    render = checked(window, max_tokens)
    assert render is not None
    parsed: list[dict[str, Any]] = json.loads(render.messages)
    return parsed


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        ([{"role": "tool", "tool_call_id": "a", "content": ""}], "nobody waits"),
        ([{"role": "assistant", "tool_calls": [{"id": "a", "type": "function", "function": {"name": "f", "arguments": ""}}]}], "no result"),
        ([{"role": "user", "content": None}], "no content"),
        ([{"role": "assistant", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "image_url"),
        ([{"role": "bot", "content": ""}], "role"),
        ([{"role": "user", "content": [], "x": 1}], "field x"),
    ],
)  # fmt: skip
def test_the_checker_itself_finds_what_is_invalid(bad: list[Any], why: str) -> None:
    assert any(why in text for text in problems(bad)), problems(bad)


@given(st.integers(0, 2**32), st.integers(1, 70))
@hypothesis_settings(max_examples=examples(60), deadline=None)
def test_every_prefix_of_a_random_history_renders_validly_within_any_limit(
    seed: int, length: int
) -> None:
    log = random_log(seed, length).log
    window = Window(KEY, PARTITION, RULES)
    for i, (offset, event) in enumerate(log):
        apply_with_log(window, offset, event, log[:i])
        for limit in LIMITS:
            checked(window, limit)


def test_most_random_histories_fit_their_own_ceiling() -> None:
    fits = [checked(random_log(seed, 80).window) is not None for seed in range(100)]
    assert sum(fits) >= 95, sum(fits)


@given(st.integers(0, 2**32))
@hypothesis_settings(max_examples=examples(30), deadline=None)
def test_histories_with_real_spans_render_validly(seed: int) -> None:
    talks = random_talks(seed, 120, PARTITION, [KEY])
    for limit in LIMITS:
        checked(talks.windows[KEY], limit)


SMALL = Rules(
    {
        "model_window": 12_000,
        "reserve_tokens": 1_000,
        "working_budget": 2_000,
        "keep_recent_tokens": 700,
        "min_messages": 6,
        "summary_max_tokens": 200,
    }
)


def play(key: Key, chat: list[dict[str, Any]], rules: Rules) -> tuple[int, int]:
    """Fold a chat the way it comes in, answering due spans at once; every render on the way is
    checked. Returns renders and summaries.
    """
    partition = MemoryLog(4).partitions - 1
    window, renders, accepted = Window(key, partition, rules), 0, 0
    log: list[Logged] = []

    def put(flat: object) -> None:
        nonlocal accepted
        offset = len(log) * 3
        record = make_record(
            key, flat, where=f"message {offset}", now="2026-01-01T00:00:00Z", new_id=f"e{offset}"
        )
        event = decode_event(record.value)
        outcome = apply_with_log(window, offset, event, log)
        assert outcome.status is Status.APPLIED, outcome
        accepted += len(outcome.accepted)
        log.append((offset, event))

    def due() -> Iterator[dict[str, Any]]:
        while (request := request_for(window, 1)) is not None:
            yield {"type": "summary", **msgspec.to_builtins(summary_of(request, log))}

    for message in chat:
        put(to_flat(message, "message"))
        for summary in due():
            put(summary)
        for limit in (None, 3_000):
            renders += checked(window, limit) is not None
    return renders, accepted


def test_real_agent_runs_render_validly_at_every_message(airline: Path) -> None:
    summaries = 0
    for line in airline.read_bytes().splitlines()[:40]:
        run = json.loads(line)
        renders, accepted = play(Key("acme", run["conversation"]), run["messages"], SMALL)
        assert renders >= len(run["messages"]), run["conversation"]
        summaries += accepted
    assert summaries > 20


def test_generated_agent_runs_render_validly_at_every_message() -> None:
    summaries = 0
    for run in conversations(6):
        renders, accepted = play(Key("acme", run["conversation"]), run["messages"], SMALL)
        assert renders >= len(run["messages"])
        summaries += accepted
    assert summaries > 5


def test_the_order_is_system_lane_summary_tail() -> None:
    window = folded(
        events.Message("user", "hello"),
        events.Message("system", "be brief"),
        events.Message("assistant", "yes"),
    )
    assert [(m["role"], m["content"]) for m in messages(window)] == [
        ("system", "be brief"),
        ("user", "hello"),
        ("assistant", "yes"),
    ]


def test_a_summary_is_marked_and_not_in_the_users_role() -> None:
    talks = random_talks(0, 0, PARTITION, [KEY])
    talks.say(KEY, events.Message("system", "be brief"))
    while not talks.requests[KEY]:
        talks.say(KEY, events.Message("user", "word " * 12), tokens=40)
    talks.summarise(KEY)
    found = messages(talks.windows[KEY])
    assert found[0] == {"role": "system", "content": "be brief"}
    assert found[1] == {"role": "assistant", "content": SUMMARY_MARK + "what was said"}
    assert found[2]["role"] == "user"


def test_results_stand_after_their_call_in_its_order_wherever_they_came() -> None:
    calls = [events.ToolCall("a", "f", "{}"), events.ToolCall("b", "f", "{}")]
    window = folded(
        events.Message("assistant", None, tool_calls=calls),
        events.ToolResult("b", "second"),
        events.Message("assistant", "wait"),
        events.ToolResult("a", "first"),
    )
    shown = [m.get("content") for m in messages(window)]
    assert shown[:-1] == [None, "first", "second", "wait"]
    assert shown[-1] == "[The result of the call of f has come: it stands with the call]"


def test_reused_ids_pair_by_occurrence_and_a_call_without_result_gets_a_stand_in() -> None:
    def call() -> events.Message:
        return events.Message("assistant", None, tool_calls=[events.ToolCall("a", "f", "{}")])

    window = folded(
        call(),
        events.ToolResult("a", "one"),
        call(),
        events.ToolResult("a", "two"),
        events.ToolResult("a", "three"),
        call(),
    )
    contents = [m["content"] for m in messages(window) if m["role"] == "tool"]
    assert (
        contents[:2] == ["one", "two"]
        and contents[2].startswith("[no result")
        and len(contents) == 3
    )
    render = checked(window)
    assert render is not None and [step.reducer for step in render.trace] == ["pairing"]


def test_what_does_not_fit_is_left_out_oldest_first_behind_a_stub_with_positions() -> None:
    window = folded(
        *(events.Message("user", f"text {i}" + " word" * 20) for i in range(9)), tokens=30
    )
    found = messages(window, 160)
    assert found[0] == {"role": "system", "content": "[6 earlier messages left out: 3-0 to 3-5]"}
    assert [m["content"][:6] for m in found[1:]] == ["text 6", "text 7", "text 8"]


def _steps_of_render(datas: Sequence[object], max_tokens: int) -> int:
    """How many functions a render of these events calls."""
    window, calls = folded(*datas, rules=Rules({"compaction": False})), 0

    def count(_frame: FrameType, event: str, _arg: object) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        render_openai(window, max_tokens)
    finally:
        sys.setprofile(None)
    return calls


def _said(count: int) -> list[object]:
    return [events.Message("user", "hello") for _ in range(count)]


def _unread(count: int) -> list[object]:
    calls = [
        events.Message("assistant", None, tool_calls=[events.ToolCall(f"c{i}", "f", "{}")])
        for i in range(count)
    ]
    return [*calls, *(events.ToolResult(f"c{i}", "word " * 100) for i in range(count))]


@pytest.mark.parametrize("said", [_said, _unread])
def test_the_work_to_meet_a_limit_grows_with_the_messages_alone(
    said: Callable[[int], list[object]],
) -> None:
    assert _steps_of_render(said(480), 2 * 480) < 300 * 480


@pytest.mark.parametrize(
    "text",
    [
        json.dumps([{"name": "a \"quoted\" one", "path": "C:\\x\\y", "n": i} for i in range(2_500)]),
        "a\n" * 40_000,
        "\x01" * 40_000,
        "ü" * 60_000,
        "💥" * 30_000,
        '"' * 100_000,
    ],
)  # fmt: skip
@pytest.mark.parametrize("role", ["user", "tool"])
def test_a_single_message_larger_than_the_ceiling_is_clipped_and_not_refused(
    text: str, role: str
) -> None:
    rules = Rules({"model_window": 16_000, "reserve_tokens": 1_000, "summary_max_tokens": 500})
    window = Window(KEY, PARTITION, rules)
    call = events.Message("assistant", None, tool_calls=[events.ToolCall("a", "f", "{}")])
    apply(window, 0, make_event(events.Message("user", "look it up"), "e0", 10))
    apply(window, 1, make_event(call, "e1", 10))
    data = events.Message("user", text) if role == "user" else events.ToolResult("a", text)
    apply(window, 2, make_event(data, "e2"))
    assert max(entry.tokens for entry in window.tail) <= window.policy.ceiling
    for limit in (None, 4_000, 1_000):
        render = checked(window, limit)
        assert render is not None, (role, limit)
        assert text[:20] in json.loads(render.bodies[-1])["content"]


IMAGE = events.ImagePart(events.ImageUrl("https://example.org/a.png"))
SHORT = {"model_window": 16_000, "reserve_tokens": 1_000, "summary_max_tokens": 500}


@pytest.mark.parametrize("role", ["user", "tool"])
def test_of_a_message_in_parts_the_text_is_kept_at_both_ends(role: str) -> None:
    parts: list[events.Part] = [events.TextPart("first " * 9_000), events.TextPart("the last word")]
    window = Window(KEY, PARTITION, Rules(SHORT))
    call = events.Message("assistant", None, tool_calls=[events.ToolCall("a", "f", "{}")])
    apply(window, 0, make_event(events.Message("user", "look it up"), "e0", 10))
    apply(window, 1, make_event(call, "e1", 10))
    data = events.Message("user", parts) if role == "user" else events.ToolResult("a", parts)
    apply(window, 2, make_event(data, "e2", 20_000))
    for limit in (None, 1_000):
        render = checked(window, limit)
        assert render is not None
        text = json.loads(render.bodies[-1])["content"]
        assert text.startswith("first first"), limit
        # Also where what the fold has cut is cut once more.
        assert text.count("[… 54014 characters shortened: the whole event is in the log …]") == 1
        assert text.endswith("the last word"), limit


def test_of_images_that_are_too_many_the_question_beside_them_stays() -> None:
    window = Window(KEY, PARTITION, Rules(SHORT))
    data = events.Message("user", [events.TextPart("What do they show?"), *[IMAGE] * 20])
    apply(window, 0, make_event(data, "e0"))
    render = checked(window)
    assert render is not None
    assert json.loads(render.bodies[-1])["content"] == "\n".join(
        [
            "What do they show?",
            *["[an image]"] * 20,
            "[… images and files left out: the whole event is in the log …]",
        ]
    )


PARTS = st.lists(
    st.text(max_size=200).map(events.TextPart) | st.just(IMAGE), min_size=1, max_size=4
)


@given(
    st.text(max_size=400) | PARTS,
    st.lists(st.text(max_size=80), max_size=4),
    st.integers(0, 600),
)
@hypothesis_settings(max_examples=examples(300), deadline=None)
def test_a_clipped_message_costs_at_most_what_it_says(
    content: str | list[events.Part], arguments: list[str], room: int
) -> None:
    data = events.Message(
        "assistant", content, tool_calls=[events.ToolCall("a", "f", a) for a in arguments] or None
    )
    tokens, body = clip(message_body(data), 10**9, room)
    parsed = json.loads(body)
    calls = [
        events.ToolCall(c["id"], c["function"]["name"], c["function"]["arguments"])
        for c in parsed.get("tool_calls", [])
    ]
    real = token_cost.measured(
        events.Message("assistant", parsed["content"], tool_calls=calls or None), "o200k_base"
    )
    assert real.count <= tokens
    if room > 150 + 60 * len(arguments):
        assert tokens <= room


def test_images_and_files_stay_with_the_user_and_are_named_in_other_roles() -> None:
    parts: list[events.Part] = [
        events.TextPart("see"),
        events.ImagePart(events.ImageUrl("data:x")),
        events.FilePart({"file_id": "f"}),
    ]
    window = folded(
        events.Message("system", parts),
        events.Message("user", parts),
        events.Message("assistant", parts, tool_calls=[events.ToolCall("a", "f", "{}")]),
        events.ToolResult("a", parts),
        tokens=None,
        rules=Rules(),
    )
    found = messages(window)
    assert [[part["type"] for part in m["content"]] for m in found] == [
        ["text"] * 3,
        ["text", "image_url", "file"],
        ["text"] * 3,
        ["text"] * 3,
    ]
    assert [part["text"] for part in found[3]["content"]] == ["see", "[an image]", "[a file]"]


def test_a_models_reasoning_alone_beside_calls_renders_without_content() -> None:
    call = events.ToolCall("a", "f", "{}")
    window = folded(
        events.Message("assistant", [events.ReasoningPart("hm", "sig", "p")], tool_calls=[call]),
        events.ToolResult("a", None),
    )
    found = messages(window)
    assert found[0]["content"] is None and found[1]["content"] == ""


def test_what_must_stay_and_does_not_fit_is_refused_with_the_sizes() -> None:
    window = folded(
        events.Message("system", "rules " * 50), events.Message("user", "hello"), tokens=200
    )
    with pytest.raises(
        DoesNotFit, match=r"system lane and tools take 200 tokens.*and may take 150"
    ):
        render_openai(window, 150)


def test_an_empty_window_renders_as_no_messages() -> None:
    assert messages(Window(KEY, PARTITION, RULES)) == []


def test_the_context_document_holds_the_messages_and_what_the_contract_names() -> None:
    window = folded(
        events.Message("user", "hello"), events.Suspension("s1", "approval", prompt="ok?")
    )
    render = render_openai(window)
    document = json.loads(context_document(window, render))
    assert document["messages"] == json.loads(render.messages)
    assert (document["tokens"], document["position"], document["count"], document["state"]) == (
        render.tokens,
        "3-1",
        2,
        "awaiting_approval",
    )
    assert (
        document["digest"] == window.meta.digest.hex()
        and document["render_digest"] == render.digest
    )
    assert document["suspensions"][0]["suspension_id"] == "s1" and document["summary"] is None


def test_the_same_window_renders_to_the_same_bytes() -> None:
    rng = random.Random(3)
    for _ in range(10):
        seed = rng.randrange(10**6)
        one, two = checked(random_log(seed, 60).window), checked(random_log(seed, 60).window)
        assert (one is None) == (two is None)
        if one is not None and two is not None:
            assert one.digest == two.digest
