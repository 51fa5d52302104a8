"""What a log may hold and no provider takes: it is put right at render, in every format."""

from __future__ import annotations

import json
from typing import Any

import pytest

from projections.formats.context_document import context_document, stored_context
from projections.policy.policy import Rules
from projections.render.render import render_openai
from tests.support.generated import Story
from tests.support.renders import check_kept, checked, system_texts

RULES: dict[str, Any] = {
    "model_window": 8_000,
    "reserve_tokens": 800,
    "working_budget": 1_500,
    "summary_max_tokens": 200,
}
SMALL: dict[str, Any] = {**RULES, "pinned_max_tokens": 300}


def told(*flats: dict[str, Any], rules: dict[str, Any] = RULES) -> Story:
    story = Story(0, Rules(rules), awkward=0.0)
    story.close()
    story.say({"type": "message", "role": "user", "content": "Look, please."})
    for flat in flats:
        story.say(flat)
    return story


def call(id_: str, name: str = "look", arguments: str = "{}") -> dict[str, str]:
    return {"id": id_, "name": name, "arguments": arguments}


def calls(*made: dict[str, str]) -> dict[str, Any]:
    return {"type": "message", "role": "assistant", "content": None, "tool_calls": list(made)}


def result(id_: str, content: Any = "done") -> dict[str, Any]:
    return {"type": "tool.result", "tool_call_id": id_, "name": "look", "content": content}


@pytest.mark.parametrize("answers", [0, 1, 2, 3])
def test_two_calls_of_one_id_in_one_message(answers: int) -> None:
    """OpenAI refuses two results of one id after a message ("Duplicate value for
    'tool_call_id'").
    """
    story = told(
        calls(call("a"), call("a", "weigh")), *[result("a", f"answer {i}") for i in range(answers)]
    )
    assert checked(story.window) is not None


@pytest.mark.parametrize("content", [None, "", " ", []])
def test_an_error_that_says_nothing(content: Any) -> None:
    """Anthropic: "content cannot be empty if `is_error` is true"."""
    story = told(calls(call("a")), {**result("a", content), "is_error": True})
    assert checked(story.window) is not None


@pytest.mark.parametrize("name", ["files.read", "look up", "x" * 80, "größe"])
def test_a_function_name_that_is_none(name: str) -> None:
    story = told(calls(call("a", name)), result("a"))
    assert checked(story.window) is not None


@pytest.mark.parametrize("name", ["Ann Lee", "<ann>", "ann/bo", "ann\nbo"])
def test_an_author_that_cannot_be_a_name(name: str) -> None:
    story = told({"type": "message", "role": "user", "name": name, "content": "Here I am."})
    assert checked(story.window) is not None


@pytest.mark.parametrize(
    "arguments", ["", "no json", "[1, 2]", "null", '{"a": 1', '"text"', '{"a": NaN}', "[" * 300]
)
def test_arguments_that_are_no_object(arguments: str) -> None:
    story = told(calls(call("a", arguments=arguments)), result("a"))
    assert checked(story.window) is not None


@pytest.mark.parametrize(
    "content",
    [
        "",
        "  \n",
        None,
        [],
        [{"type": "text", "text": ""}],
        [{"type": "reasoning", "text": "hm", "signature": "s", "provider": "openai"}],
    ],
)
def test_content_that_says_nothing(content: Any) -> None:
    """From a user, an assistant beside calls, and a tool, wherever intake lets it in."""
    story = told(
        {**calls(call("a"), call("b")), "content": content},
        result("a", content),
        result("b", content),
    )
    if content is not None:
        story.say({"type": "message", "role": "assistant", "content": content})
        story.say({"type": "message", "role": "user", "content": content})
    assert checked(story.window) is not None


def test_images_and_files_where_only_text_may_stand() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw0KGgo="}}
    file = {"type": "file", "file": {"file_id": "f-1"}}
    story = told(
        {
            "type": "message",
            "role": "system",
            "content": [image, {"type": "text", "text": "Be short."}],
        },
        calls(call("a")),
        result("a", [image, file]),
        {"type": "message", "role": "assistant", "content": [image, file]},
        {"type": "message", "role": "user", "content": [image, file]},
    )
    assert checked(story.window) is not None


def kept(story: Story) -> None:
    render = checked(story.window)
    assert render is not None
    check_kept(story.window, render, story.in_force())


TIGHT: dict[str, Any] = {
    "model_window": 8_000,
    "reserve_tokens": 800,
    "working_budget": 300,
    "summary_max_tokens": 200,
}


def test_a_users_long_message_stays_when_something_that_is_not_said_comes_after_it() -> None:
    """Longer than twice the budget, and far below the ceiling: the fold holds the oldest entries
    then, and this one is not old.
    """
    story = told({"type": "message", "role": "user", "content": "parcel " * 900}, rules=TIGHT)
    kept(story)
    for flat in (
        {"type": "message", "role": "developer", "content": "Be short."},
        {"type": "turn.started", "turn_id": "t"},
    ):
        story.say(flat)
        kept(story)


@pytest.mark.parametrize("later", [0, 1, 12])
def test_a_suspended_call_stays_whatever_comes_after_it(later: int) -> None:
    """Beyond twice the budget, too, where older entries are held in the log alone."""
    ask = {
        "type": "suspension",
        "suspension_id": "s",
        "kind": "approval",
        "tool_call_id": "a",
        "prompt": "May I?",
    }
    story = told(
        calls(call("a", arguments='{"q": "' + "parcel " * 700 + '"}'), call("b")), ask, rules=TIGHT
    )
    kept(story)
    for n in range(later):
        story.say(
            {"type": "message", "role": ("user", "assistant")[n % 2], "content": "crate " * 100}
        )
        kept(story)


def test_a_pinned_result_among_compacted_ones_keeps_its_call_when_no_message_is_kept() -> None:
    """Parallel calls of which one result is pinned and the other compacted away, then a limit of no
    messages.
    """
    reducers = [
        {"name": "compact_tool_results", "replacement": None},
        {"name": "keep_last_n_messages", "n": 0},
    ]
    for cuts in ("stable", "exact"):
        rules = {**TIGHT, "profile": "composed", "cuts": cuts, "reducers": reducers}
        story = told(
            calls(call("b"), call("c")),
            result("b", "crate " * 30),
            {**result("c"), "pinned": True},
            rules=rules,
        )
        for n in range(14):
            assert checked(story.window) is not None
            story.say(
                {"type": "message", "role": ("user", "assistant")[n % 2], "content": "crate " * 60}
            )


@pytest.mark.parametrize("n", [0, 1, 3])
def test_what_was_left_out_leaves_no_gap_in_what_is_read_from_the_store(n: int) -> None:
    reducers = [{"name": "keep_last_n_messages", "n": n}]
    story = told(rules={**TIGHT, "profile": "composed", "reducers": reducers})
    for i in range(12):
        story.say(
            {
                "type": "message",
                "role": ("user", "assistant", "system")[i % 3],
                "content": f"crate {i}",
            }
        )
        whole = context_document(story.window, render_openai(story.window))
        assert json.loads(whole)
        assert stored_context(0, story.mirror.fields) in (None, whole)


def test_system_text_that_is_too_much_is_cut_in_the_trace() -> None:
    """The limit of the pinned lane holds, and a trace says that something went."""
    texts = [f"Rule {i}: " + "be kind " * 60 for i in range(6)]
    story = told(
        *[{"type": "message", "role": "system", "content": text} for text in texts], rules=SMALL
    )
    render = render_openai(story.window)
    left = system_texts([flat for _, flat in story.in_force() if flat["type"] == "message"])
    assert left - system_texts([{"role": "system", "content": text} for text in texts[-1:]])
    assert story.window.state.pinned_tokens <= 300
    assert render.trace, "system text left the lane without a trace"
