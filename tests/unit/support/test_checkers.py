"""The providers' checkers can fail: each fault has a sample that is broken in just that way, and
whole samples pass.
"""

from __future__ import annotations

import copy
from typing import Any

import pytest

from tests.support import anthropic_checker, neutral_checker
from threadfold.demo import openai_checker

Change = tuple[str, Any]


def call(id_: str, name: str = "look", arguments: str = "{}") -> dict[str, Any]:
    return {"id": id_, "type": "function", "function": {"name": name, "arguments": arguments}}


OPENAI: list[dict[str, Any]] = [
    {"role": "system", "content": "Be short."},
    {
        "role": "user",
        "name": "ann",
        "content": [
            {"type": "text", "text": "Look."},
            {"type": "image_url", "image_url": {"url": "http://x"}},
        ],
    },
    {"role": "assistant", "content": None, "tool_calls": [call("a"), call("b")]},
    {"role": "tool", "tool_call_id": "b", "content": "2"},
    {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "1"}]},
    {"role": "assistant", "content": "Again.", "tool_calls": [call("a")]},
    {"role": "tool", "tool_call_id": "a", "content": ""},
    {"role": "assistant", "content": "Done."},
]
ANTHROPIC: list[dict[str, Any]] = [
    {
        "role": "user",
        "content": [
            {"type": "text", "text": "Look."},
            {"type": "image", "source": {"type": "url", "url": "http://x"}},
        ],
    },
    {
        "role": "assistant",
        "content": [
            {"type": "thinking", "thinking": "hm", "signature": "s"},
            {"type": "text", "text": "I look."},
            {"type": "tool_use", "id": "a", "name": "look", "input": {}},
            {"type": "tool_use", "id": "b", "name": "look", "input": {"n": 1}},
        ],
    },
    {
        "role": "user",
        "content": [
            {"type": "tool_result", "tool_use_id": "b", "content": [{"type": "text", "text": "2"}]},
            {"type": "tool_result", "tool_use_id": "a", "content": "1"},
            {"type": "text", "text": "Go on."},
        ],
    },
    {
        "role": "assistant",
        "content": [{"type": "tool_use", "id": "a-2", "name": "look", "input": {}}],
    },
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a-2", "content": []}]},
    {"role": "assistant", "content": "Done."},
]
NEUTRAL: list[dict[str, Any]] = [
    {"type": "message", "role": "system", "content": "Be short.", "position": "0-1"},
    {
        "type": "summary",
        "summary_id": "s",
        "text": "t",
        "tokens": 3,
        "trust": "user",
        "position": "0-9",
    },
    {"type": "held", "from": "0-5", "to": "0-6", "count": 2, "position": "0-6"},
    {"type": "message", "role": "user", "content": "Look.", "position": "0-7"},
    {
        "type": "message",
        "role": "assistant",
        "tool_calls": [{"id": "a", "name": "look", "arguments": "{}"}],
        "position": "0-10",
    },
    {"type": "suspension", "suspension_id": "p", "kind": "approval", "position": "0-11"},
    {
        "type": "tool.result",
        "tool_call_id": "a",
        "content": [{"type": "text", "text": "1"}],
        "position": "0-12",
    },
]


def broken(sample: list[dict[str, Any]], change: Change) -> list[dict[str, Any]]:
    """The sample with one change: a path of keys and what goes there (``DEL`` takes out, a list
    path ending in ``+`` puts in).
    """
    made: Any = copy.deepcopy(sample)
    path, value = change
    *way, last = [int(key) if key.lstrip("-").isdigit() else key for key in path.split("/")]
    at = made
    for key in way:
        at = at[key]
    if value is DEL:
        del at[last]
    elif isinstance(at, list) and isinstance(value, Put):
        at.insert(int(last), value.item)
    else:
        at[last] = value
    return made


class Put:
    """A value to put in at a place of a list."""

    def __init__(self, item: Any) -> None:
        self.item = item


DEL = object()


def test_whole_samples_have_no_fault() -> None:
    assert openai_checker.problems(OPENAI) == []
    assert (
        anthropic_checker.problems("Be short.", ANTHROPIC)
        == anthropic_checker.problems(None, ANTHROPIC)
        == []
    )
    assert (
        neutral_checker.problems(NEUTRAL, {"a"})
        == neutral_checker.problems(NEUTRAL, paired=True)
        == []
    )


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("3", DEL), "have no result directly"),
        (("6", DEL), "have no result directly"),
        (("3", Put({"role": "tool", "tool_call_id": "z", "content": "?"})), "nobody waits for"),
        (("5", Put({"role": "tool", "tool_call_id": "a", "content": "1"})), "nobody waits for"),
        (("4", Put({"role": "user", "content": "wait"})), "have no result directly"),
        (("8", Put({"role": "assistant", "tool_calls": [call("c")]})), "end: calls"),
        (("2/tool_calls/1/id", "a"), "two calls of one message"),
        (("2/tool_calls", []), "not a filled list"),
        (("2/tool_calls/0/function/name", "no spaces"), "no function can be named"),
        (("2/tool_calls/0/function/name", "x" * 65), "no function can be named"),
        (("2/tool_calls/0/function/arguments", {}), "not a string"),
        (("2/tool_calls/0/type", "code"), "not a function's"),
        (("2/tool_calls/0/id", ""), "without an id"),
        (("7/content", None), "no content"),
        (("7/content", []), "filled list of parts"),
        (("0/content", [{"type": "image_url", "image_url": {"url": "x"}}]), "in a system message"),
        (("4/content", [{"type": "image_url", "image_url": {"url": "x"}}]), "in a tool message"),
        (("7/content", [{"type": "file", "file": {}}]), "in a assistant message"),
        (("7/content", [{"type": "reasoning", "text": "x"}]), "in a assistant message"),
        (("1/content/0", {"type": "text"}), "without text"),
        (("1/content/1/image_url", "http://x"), "without a url"),
        (("1/name", "Ann Lee"), "a name that is not one"),
        (("1/name", ""), "a name that is not one"),
        (("1/role", "narrator"), "known role"),
        (("1/tool_calls", [call("q")]), "not one of a user message"),
        (("3/tool_call_id", ""), "empty tool_call_id"),
    ],
)
def test_the_openai_checker_finds(change: Change, said: str) -> None:
    found = openai_checker.problems(broken(OPENAI, change))
    assert any(said in fault for fault in found), found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("0", DEL), "not in turns"),
        (("5", Put({"role": "user", "content": "x"})), "not in turns"),
        (("1/content/2/id", "a.b"), "that is none"),
        (("3/content/0/id", "a"), "was used before"),
        (("1/content/3/id", "a"), "was used before"),
        (("2/content/0", DEL), "has no result directly"),
        (("2", {"role": "user", "content": "no"}), "has no result directly"),
        (("2/content/0", {"type": "text", "text": "first"}), "do not stand first"),
        (("2/content/1/tool_use_id", "z"), "nobody waits for"),
        (("2/content/1/tool_use_id", "b"), "two results"),
        (("4/content/0/content", [{"type": "text", "text": " "}]), "without text"),
        (("5/content", ""), "without text"),
        (("5/content", []), "filled list of blocks"),
        (("1/content/0/signature", ""), "without its signature"),
        (
            ("1/content/2", Put({"type": "thinking", "thinking": "x", "signature": "s"})),
            "does not stand first",
        ),
        (("5/content", [{"type": "thinking", "thinking": "x", "signature": "s"}]), "last block"),
        (("5/content", [{"type": "redacted_thinking", "data": "x"}]), "last block"),
        (
            (
                "2/content/0",
                {
                    "type": "tool_result",
                    "tool_use_id": "b",
                    "is_error": True,
                    "content": [{"type": "image", "source": {"type": "url", "url": "http://x"}}],
                },
            ),
            "not text alone",
        ),
        (
            ("1/content/0", {"type": "image", "source": {"type": "url", "url": "x"}}),
            "in a assistant message",
        ),
        (("1/content/2/input", "{}"), "is no object"),
        (("1/content/2/name", "a b"), "without a valid name"),
        (("0/content/1/source", {"type": "url"}), "without a source"),
        (("0/role", "system"), "known role"),
        (("0/name", "ann"), "not one of a message"),
        (
            (
                "6",
                Put(
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "a", "content": "x"}],
                    }
                ),
            ),
            "nobody waits for",
        ),
        (
            ("5/content", [{"type": "tool_use", "id": "end", "name": "look", "input": {}}]),
            "end: calls",
        ),
    ],
)
def test_the_anthropic_checker_finds(change: Change, said: str) -> None:
    found = anthropic_checker.problems(None, broken(ANTHROPIC, change))
    assert any(said in fault for fault in found), found


def test_the_anthropic_checker_finds_an_empty_system_and_an_empty_list() -> None:
    assert anthropic_checker.problems("", ANTHROPIC)
    assert anthropic_checker.problems([{"type": "text", "text": "x"}], ANTHROPIC)
    assert anthropic_checker.problems(None, [])


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("3/type", "msg"), "known type"),
        (("3/position", "0-10"), "not after the one before"),
        (("3/position", "seven"), "no position"),
        (("3/role", None), "without role"),
        (("3/role", "tool"), "role 'tool'"),
        (("3/content", None), "no content"),
        (("3/content", [{"type": "sound"}]), "a part of type"),
        (("3/tool_calls", [{"id": "a", "name": "x", "arguments": "{}"}]), "not an assistant's"),
        (("4/tool_calls/0/arguments", {}), "without id, name and arguments"),
        (("5/kind", "other"), "kind 'other'"),
        (("6/tool_call_id", "z"), "which nobody called"),
        (
            (
                "7",
                Put(
                    {
                        "type": "summary",
                        "summary_id": "t",
                        "text": "t",
                        "tokens": 3,
                        "trust": "user",
                        "position": "0-20",
                    }
                ),
            ),
            "stands behind",
        ),
        (
            (
                "2",
                Put(
                    {
                        "type": "summary",
                        "summary_id": "t",
                        "text": "t",
                        "tokens": 3,
                        "trust": "user",
                        "position": "0-20",
                    }
                ),
            ),
            "stands behind",
        ),
        (
            ("7", Put({"type": "message", "role": "system", "content": "x", "position": "0-20"})),
            "stands behind",
        ),
        (("1/trust", "nobody"), "trust 'nobody'"),
    ],
)
def test_the_neutral_checker_finds(change: Change, said: str) -> None:
    found = neutral_checker.problems(broken(NEUTRAL, change), {"a"})
    assert any(said in fault for fault in found), found


def test_the_neutral_checker_finds_results_that_no_call_waits_for_when_asked_to() -> None:
    again = {**NEUTRAL[6], "position": "0-13"}
    for change, events in (
        (("7", Put(again)), NEUTRAL),
        (("4", DEL), NEUTRAL),
        (("6/tool_call_id", "z"), NEUTRAL),
    ):
        found = neutral_checker.problems(broken(events, change), paired=True)
        assert any("waits for none" in fault for fault in found), found
