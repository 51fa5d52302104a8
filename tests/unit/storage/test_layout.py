"""How a window lies in a store: what is written with each batch, how it reads back, and the context
read from it without rendering.
"""

from __future__ import annotations

import random
from typing import Literal

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.errors import CorruptWindow
from projections.events import types as events
from projections.fold.replay import apply_with_log
from projections.formats.context_document import context_document, stored_context
from projections.policy.policy import Rules
from projections.render.fit_to_limit import DoesNotFit
from projections.render.render import render_openai
from projections.storage.chunks import MERGED, SMALL
from projections.storage.layout import BASE, HEAD
from projections.storage.records import stored_form
from projections.window.window import Window
from tests.support.fields import Fields
from tests.support.histories import KEY, PARTITION, RULES, Writer, random_log
from tests.support.profiles import examples
from tests.support.refolds import refold

seeds = st.integers(0, 2**32)


def stored_context_of(store: Fields) -> bytes | None:
    with stored_form(KEY):
        return stored_context(PARTITION, store.fields)


def say(writer: Writer, role: Literal["system", "user", "assistant"], text: str) -> None:
    writer.append(events.Message(role, text), tokens=len(text.split()) + 4)


def long_talk(length: int, words: int, seed: int = 1) -> Writer:
    rng = random.Random(seed)
    writer = Writer(rng, rules=Rules())
    say(writer, "system", "Answer briefly.")
    for i in range(length):
        say(writer, "assistant" if i % 2 else "user", "word " * rng.randint(1, words))
    return writer


@given(seeds, st.integers(5, 150), st.integers(1, 30))
@settings(max_examples=examples(150), deadline=None)
def test_a_stored_window_reads_back_and_tells_the_same_mark(
    seed: int, length: int, biggest: int
) -> None:
    rng = random.Random(seed)
    log = random_log(seed, length).log
    window, store = Window(KEY, PARTITION, RULES), Fields()
    for i, (offset, event) in enumerate(log):
        apply_with_log(window, offset, event, log[:i])
        if rng.randrange(biggest) == 0:
            store.write(window)
            loaded, mark = store.stored.open(KEY, PARTITION, RULES)
            assert loaded.image() == window.image()
            assert [(c.number, c.end - c.start) for c in mark.layout.chunks] == [
                (c.number, c.end - c.start) for c in store.mark.layout.chunks
            ]
            assert mark.asked == store.mark.asked


@given(seeds, st.integers(5, 150), st.booleans())
@settings(max_examples=examples(300), deadline=None)
def test_a_context_read_without_rendering_is_the_rendered_one_byte_for_byte(
    seed: int, length: int, simple: bool
) -> None:
    rng = random.Random(seed)
    writer = long_talk(length, 13, seed) if simple else random_log(seed, length)
    log, store = writer.log, Fields()
    window = Window(KEY, PARTITION, writer.rules)
    joined = 0
    for i, (offset, event) in enumerate(log):
        apply_with_log(window, offset, event, log[:i])
        store.write(window)
        limit = rng.choice([None, None, 300, 10**6])
        found = stored_context(PARTITION, store.fields, limit)
        if found is not None:
            assert found == context_document(window, render_openai(window, limit))
        joined += found is not None or limit == 300
    assert joined == len(log) or not simple, "ordinary talk is read without rendering"


def test_a_window_that_is_shortened_or_erased_is_not_read_without_rendering() -> None:
    writer = long_talk(40, 13)
    store = Fields()
    store.write(writer.window)
    assert stored_context(PARTITION, store.fields) is not None
    assert stored_context(PARTITION, store.fields, writer.window.tail_tokens - 1) is None
    with pytest.raises(DoesNotFit):
        render_openai(writer.window, 5)
    writer.append(
        events.Message("assistant", None, tool_calls=[events.ToolCall("c1", "look", "{}")])
    )
    store.write(writer.window)
    assert stored_context(PARTITION, store.fields) is None, (
        "a call without its result is answered by the render"
    )


def test_what_is_written_with_each_event_does_not_grow_with_the_window() -> None:
    writer, store, sizes = long_talk(0, 1), Fields(), []
    for i in range(400):
        say(writer, "user", f"{i} " + "word " * 40)
        before = store.written
        store.write(writer.window)
        sizes.append(store.written - before)
    assert max(sizes[:50]) <= 2 * SMALL + 1_500
    assert sorted(sizes)[len(sizes) // 2] <= SMALL + 1_500
    assert max(sizes) <= MERGED * SMALL + 2 * SMALL + 1_500
    assert sum(sizes) < 6_000 * len(sizes)


def test_a_long_tail_lies_in_few_fields_that_fit_an_allocators_classes() -> None:
    writer, store = long_talk(0, 1), Fields()
    for i in range(700):
        say(writer, "user", f"{i} " + "word " * 30)
        store.write(writer.window)
    sizes = sorted(len(store.fields[name]) for name in store.chunks)
    assert len(sizes) <= sum(sizes) / (MERGED * SMALL) + MERGED + 2
    assert all(size <= 4_096 or SMALL * (MERGED - 1) <= size <= 32_768 for size in sizes), sizes


def test_entries_that_left_at_the_head_cost_no_rewriting_of_those_that_stay() -> None:
    writer, store = long_talk(300, 66), Fields()
    store.write(writer.window)
    writer.window.cover(7, set())
    refold(writer.window)
    change = store.write(writer.window)
    assert {name for name, _ in change.put} == {HEAD, BASE} and not change.reset
    assert store.stored.load(KEY, PARTITION, writer.rules).image() == writer.window.image()
    writer.window.cover(250, set())
    refold(writer.window)
    change = store.write(writer.window)
    assert change.gone and {name for name, _ in change.put} == {HEAD, BASE}
    assert store.stored.load(KEY, PARTITION, writer.rules).image() == writer.window.image()


@pytest.mark.parametrize("which", range(4))
def test_a_field_that_was_cut_or_is_missing_is_a_corrupt_window(which: int) -> None:
    store = Fields()
    store.write(long_talk(100, 100).window)
    first, *_, last = store.chunks
    name = (HEAD, BASE, first, last)[which]
    value = store.fields[name]
    store.fields[name] = value[: len(value) // 2]
    with pytest.raises(CorruptWindow):
        store.stored.load(KEY, PARTITION, RULES)
    if name in (HEAD, BASE):
        del store.fields[name]
        with pytest.raises(CorruptWindow):
            store.stored.load(KEY, PARTITION, RULES)
        with pytest.raises(CorruptWindow):
            stored_context_of(store)


@given(st.integers(0, 2**32))
@settings(max_examples=examples(25), deadline=None)
def test_chunks_joined_after_their_first_entries_left_read_back(seed: int) -> None:
    rng = random.Random(seed)
    writer, store = long_talk(0, 1), Fields()
    for i in range(120):
        for _ in range(rng.randint(1, 8)):
            say(writer, "user", f"{i} " + "word " * rng.randint(20, 70))
        if rng.random() < 0.1 and len(writer.window.tail) > 40:
            writer.window.cover(rng.randint(1, 40), set())
            refold(writer.window)
        if rng.random() < 0.8:
            store.write(writer.window)
            assert store.stored.load(KEY, PARTITION, writer.rules).image() == writer.window.image()


def test_large_suspensions_are_not_written_with_every_event_and_are_in_the_context_all_the_same() -> (
    None
):
    writer, store = long_talk(5, 20), Fields()
    for i in range(10):
        writer.append(events.Suspension(f"s{i}", "approval", prompt="p" * 5_000))
    store.write(writer.window)
    before = store.written
    say(writer, "user", "hello")
    store.write(writer.window)
    assert store.written - before < 60_000
    assert stored_context(PARTITION, store.fields) is None
    assert b"p" * 5_000 in context_document(writer.window, render_openai(writer.window))


def test_small_and_larger_messages_in_turn_lie_in_few_fields() -> None:
    writer, store = long_talk(0, 1), Fields()
    for i in range(400):
        say(writer, "user", "x" * (4_100 if i % 2 else 5))
        store.write(writer.window)
    assert len(store.chunks) < 60
    assert store.stored.load(KEY, PARTITION, writer.rules).image() == writer.window.image()
