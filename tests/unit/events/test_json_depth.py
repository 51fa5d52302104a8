"""Whether a deeply nested record is an event does not depend on how deep its reader's stack is."""

from __future__ import annotations

from collections.abc import Callable
from time import process_time

import pytest

from projections.events.codec import decode_event
from projections.events.json_depth import nested_beyond
from projections.events.untrusted import MAX_NESTING, Undecodable
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


@pytest.mark.parametrize("levels", [MAX_NESTING, MAX_NESTING + 1])
@pytest.mark.parametrize("before", [0, 5_000])
def test_depth_is_counted_through_the_whole_text(levels: int, before: int) -> None:
    value = b"[" + b"[]," * before + b"[" * (levels - 1) + b"]" * levels
    assert nested_beyond(value, MAX_NESTING) == (levels > MAX_NESTING)


@pytest.mark.parametrize("garbage", [b"[", b'{"data":'])
def test_deep_garbage_costs_less_than_a_look_at_each_byte(garbage: bytes) -> None:
    value = garbage * (2_000_000 // len(garbage))

    def seconds(do: Callable[[], object]) -> float:
        begin = process_time()
        do()
        return process_time() - begin

    looks = min(seconds(lambda: sum(1 for _ in value)) for _ in range(3))
    assert min(seconds(lambda: verdict(value)) for _ in range(3)) < looks
