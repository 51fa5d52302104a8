"""Whether a deeply nested record is an event does not depend on how deep its reader's stack is."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from projections.events.codec import Undecodable, decode_event
from projections.fold.apply import apply
from projections.policy.policy import Rules
from projections.window.window import Window
from tests.support.histories import KEY, PARTITION


def verdict(value: bytes) -> str:
    try:
        event = decode_event(value)
    except Undecodable:
        return "undecodable"
    return apply(Window(KEY, PARTITION, Rules()), 0, event).status.value


def deeper(levels: int, do: Callable[[], str]) -> str:
    return do() if levels == 0 else deeper(levels - 1, do)


@pytest.mark.parametrize("depth", [60, 300, *range(800, 1000, 10), 100_000])
@pytest.mark.parametrize("kind", ["conversation.opened.v1", "note.v9"])
def test_the_stack_of_the_reader_makes_no_difference(depth: int, kind: str) -> None:
    nested = "[" * depth + "]" * depth
    value = (
        f'{{"specversion":"1.0","id":"x","type":"threadfold.{kind}","source":"{KEY.source}","data":{{"tools":[{{"x":{nested}}}]}}}}'
    ).encode()
    assert verdict(value) == deeper(120, lambda: verdict(value))


def test_brackets_in_text_are_no_nesting() -> None:
    text = '[{\\"' * 5000
    head = f'{{"specversion":"1.0","id":"x","type":"threadfold.message.v1","source":"{KEY.source}"'
    value = f'{head},"data":{{"role":"user","content":"{text}"}}}}'
    assert verdict(value.encode()) == "applied"
