"""What a reader keeps of windows: it saves reading, and never changes what is read."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping

from hypothesis import given, settings
from hypothesis import strategies as st

from projections.events import types as events
from projections.fold.replay import apply_with_log
from projections.formats.context_document import context_document
from projections.names import Key
from projections.policy.policy import Rules
from projections.render.render import render_openai
from projections.storage.layout import HEAD, Head, decode_head
from projections.window.window import Window
from tests.support.histories import KEY, PARTITION, Writer, random_log
from tests.support.profiles import examples
from tests.unit.storage.test_layout import Fields, long_talk, say
from threadfold.service.window_cache import Place, WindowCache

PLACE = (1, KEY)


def context(
    cache: WindowCache,
    head: Head,
    fields: Mapping[bytes, bytes],
    limit: int | None = None,
    place: Place = PLACE,
) -> bytes | None:
    return asyncio.run(cache.context(place, PARTITION, head, fields, limit))


def read(cache: WindowCache, store: Fields, limit: int | None = None) -> tuple[bytes | None, int]:
    """The context as a reader reads it, and how many bytes of the store it took; without what is
    kept, everything is read.
    """
    kept = cache.get(PLACE)
    if kept is not None:
        fields = {name: store.fields[name] for name in kept.names if name in store.fields}
        head = decode_head(fields[HEAD])
        for name in kept.missing(head, fields):
            fields[name] = store.fields[name]
        document = context(cache, head, fields, limit)
        if document is not None:
            return document, sum(map(len, fields.values()))
    head = decode_head(store.fields[HEAD])
    return context(cache, head, store.fields, limit), sum(map(len, store.fields.values()))


@given(st.integers(0, 2**32), st.integers(5, 120), st.booleans())
@settings(max_examples=examples(150), deadline=None)
def test_a_context_read_by_what_is_kept_is_the_rendered_one(
    seed: int, length: int, simple: bool
) -> None:
    rng = random.Random(seed)
    writer = long_talk(length, 90, seed) if simple else random_log(seed, length)
    window, store, cache = Window(KEY, PARTITION, writer.rules), Fields(), WindowCache(10**7)
    found = 0
    for i, (offset, event) in enumerate(writer.log):
        apply_with_log(window, offset, event, writer.log[:i])
        store.write(window)
        if rng.random() < 0.5:
            document, _ = read(cache, store)
            if document is not None:
                found += 1
                assert document == context_document(window, render_openai(window))
    assert found or not simple or length < 15


@given(st.integers(0, 2**32))
@settings(max_examples=examples(60), deadline=None)
def test_fields_of_different_moments_never_make_a_context_that_never_was(seed: int) -> None:
    rng = random.Random(seed)
    window, store, cache = Window(KEY, PARTITION, Rules()), Fields(), WindowCache(10**7)
    writer = long_talk(60, 120, seed)
    moments, right = [], set()
    for i, (offset, event) in enumerate(writer.log):
        apply_with_log(window, offset, event, writer.log[:i])
        if rng.random() < 0.3:
            store.write(window)
            moments.append(dict(store.fields))
            right.add(context_document(window, render_openai(window)))
    for _ in range(60):
        mixed: dict[bytes, bytes] = {}
        for fields in (rng.choice(moments), rng.choice(moments)):
            mixed |= {name: value for name, value in fields.items() if rng.random() < 0.8}
        if HEAD in mixed:
            document = context(cache, decode_head(mixed[HEAD]), mixed)
            assert document is None or document in right


def test_reading_again_after_a_message_takes_a_few_kilobytes() -> None:
    writer, store, cache = long_talk(400, 100), Fields(), WindowCache(10**7)
    store.write(writer.window)
    _, whole = read(cache, store)
    say(writer, "user", "and one more")
    store.write(writer.window)
    document, again = read(cache, store)
    assert document == context_document(writer.window, render_openai(writer.window))
    assert whole > 100_000 and again < 6_000
    _, same = read(cache, store)
    assert same < 6_000


def test_a_large_message_that_was_read_is_not_read_again() -> None:
    writer, store, cache = long_talk(10, 100), Fields(), WindowCache(10**7)
    say(writer, "user", "many words " * 10_000)
    store.write(writer.window)
    document, whole = read(cache, store)
    assert document == context_document(writer.window, render_openai(writer.window))
    again, size = read(cache, store)
    assert again == document
    assert whole > 100_000 and size < 2_000


def test_what_is_kept_stays_within_its_bound_and_the_oldest_read_goes_first() -> None:
    writer, store = long_talk(100, 100), Fields()
    store.write(writer.window)
    size = sum(map(len, store.fields.values()))
    cache = WindowCache(5 * size)
    for i in range(50):
        head = decode_head(store.fields[HEAD])
        context(cache, head, store.fields, place=(1, Key("acme", f"c{i}")))
        assert cache.size <= 5 * size
    assert (
        cache.get((1, Key("acme", "c49"))) is not None
        and cache.get((1, Key("acme", "c10"))) is None
    )
    nothing = WindowCache(0)
    assert (
        context(nothing, decode_head(store.fields[HEAD]), store.fields) is not None
        and nothing.get(PLACE) is None
    )


def test_a_context_that_only_grew_keeps_all_of_its_prefix() -> None:
    writer, store, cache = long_talk(400, 100), Fields(), WindowCache(10**7)
    store.write(writer.window)
    read(cache, store)
    for i in range(40):
        before = len(render_openai(writer.window).messages) - 2  # without the brackets
        kept = cache.prefix_kept
        say(writer, "user", f"and one more, number {i}")
        store.write(writer.window)
        read(cache, store)
        # What is left are commas between stored chunks.
        assert before - 100 < cache.prefix_kept - kept <= before
    assert cache.prefix_changed == 0


def test_a_cut_changes_the_prefix_behind_what_stays() -> None:
    rules = Rules({"reducers": [{"name": "keep_last_n_messages", "n": 10}]})
    writer, store, cache = Writer(random.Random(1), rules), Fields(), WindowCache(10**7)
    say(writer, "system", "You answer in one word.")
    before = b""
    for i in range(60):
        say(writer, "user", f"message {i:02} of many")
        store.write(writer.window)
        kept = cache.prefix_kept
        document, _ = read(cache, store)
        assert document is not None
        now = render_openai(writer.window).messages
        if before:
            pairs = enumerate(zip(before[1:-1], now[1:-1], strict=False))
            both = next((at for at, (one, other) in pairs if one != other), len(before) - 2)
            assert abs(cache.prefix_kept - kept - both) < 30
        before = now
    assert cache.prefix_changed > 500, "there were cuts"
    assert cache.prefix_kept > 4 * cache.prefix_changed


def test_of_an_erased_conversation_nothing_is_kept() -> None:
    writer, store, cache = long_talk(30, 30), Fields(), WindowCache(10**7)
    store.write(writer.window)
    read(cache, store)
    assert cache.size > 0
    writer.append(events.Erased())
    store.write(writer.window)
    assert read(cache, store)[0] is None
    assert cache.get(PLACE) is None and cache.size == 0
