"""A process that lacks a callable renders no window whose policy calls it in each render."""

from __future__ import annotations

import pytest

from projections.errors import CallableUnavailable
from projections.policy.policy import Rules
from projections.storage.layout import Mark, changes_of, load_window
from projections.window.window import Window
from tests.support.compacted_talk import SMALL, Talk
from tests.support.mirror import KEY
from threadfold.service.documents import document

EXACT = {
    "profile": "composed",
    "cuts": "exact",
    "reducers": [{"name": "compact_tool_results", "replacement": "callable:shout"}],
}


def shout(_tool: str, _call: str, text: str) -> str:
    return text.upper()[:4]


def fails(_tool: str, _call: str, text: str) -> str:
    raise KeyError(text)


def elsewhere(talk: Talk, rules: Rules) -> Window:
    """The talk's window as another process has it from the store."""
    changes = changes_of(talk.window, Mark())
    return load_window(KEY, 0, rules, dict(changes.put), dict(changes.id_blocks_put))[0]


@pytest.fixture
def talk() -> Talk:
    made = Talk(EXACT, callables={"shout": shout})
    made.chat(1)
    return made


def result(talk: Talk) -> None:
    talk.call("a")
    talk.say("tool.result", tool_call_id="a", content="the weather is fine " * 50)
    talk.chat(1)


def test_exact_cuts_are_refused_where_their_callable_is_missing(talk: Talk) -> None:
    assert document(elsewhere(talk, Rules(EXACT)), "openai"), "there is no result to shorten"
    result(talk)
    right = document(talk.window, "openai")
    assert b'"THE "' in right
    assert document(elsewhere(talk, talk.rules), "openai") == right
    with pytest.raises(CallableUnavailable, match="callable 'shout' of its policy is not reg"):
        document(elsewhere(talk, Rules(EXACT)), "openai")


def test_where_it_raises_an_error_the_default_template_stands_in_each_render(talk: Talk) -> None:
    result(talk)
    shown = document(elsewhere(talk, Rules(EXACT, callables={"shout": fails})), "openai")
    assert b"[look a: 1000 characters]" in shown


def test_stable_cuts_were_made_by_the_worker_and_are_shown() -> None:
    stable = {**SMALL, "reducers": EXACT["reducers"]}
    talk = Talk(stable, callables={"shout": shout})
    result(talk)
    talk.chat(3)
    assert b'"THE "' in document(elsewhere(talk, Rules(stable)), "openai")
