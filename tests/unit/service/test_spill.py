"""Spilled results over an in-memory log: pieces, previews, pages, order, and what is lost or
another's.
"""

from __future__ import annotations

import random
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from projections.errors import EventTooLarge, InvalidEvent, InvalidRequest, SpillLost
from projections.events.codec import decode_event
from projections.events.types import ToolResultChunkEvent
from projections.fold.replay import replay
from projections.names import Key, Position
from projections.policy.policy import Policy, Rules
from projections.render.render import render_openai
from projections.window.entry import Kind
from streams.encryption.payload_cipher import Unsealed
from streams.log.log import Raw
from tests.support.profiles import examples
from threadfold.service.drafts import Drafter
from threadfold.service.pages import flat_event, page
from threadfold.service.spill import (
    MAX_CHUNKS,
    Drafts,
    append_drafts,
    preview_of,
)
from threadfold.service.whole_event import check_page, unfold
from threadfold.testing.memory_log import MemoryLog

KEY = Key("acme", "spills")
RULES = Rules({"spill_chars": 100, "soft_trim_chars": 30, "max_result_bytes": 5_000})
CALL = {
    "type": "message",
    "role": "assistant",
    "tool_calls": [{"id": "c", "name": "f", "arguments": "{}"}],
    "content": None,
}


def drafted(*flats: object, rules: Rules = RULES, max_bytes: int = 1 << 20) -> Drafts:
    return Drafter(KEY.tenant, rules, 1, max_bytes).drafts(
        [(KEY.conversation, flat) for flat in flats], "event", False, None
    )


def result(content: Any, **fields: Any) -> dict[str, Any]:
    return {"type": "tool.result", "tool_call_id": "c", "content": content, **fields}


async def stored(log: MemoryLog, position: Position, key: Key = KEY) -> dict[str, Any]:
    flat = flat_event((await log.read([position]))[position], key, log.seals)
    assert flat is not None
    return flat


def text_of(seed: int, length: int) -> str:
    return "".join(random.Random(seed).choices('abc \nдß🌧\u0001"', k=length))


async def test_a_long_result_is_pieces_before_its_preview_and_comes_back_whole_and_by_pages() -> (
    None
):
    log, text = MemoryLog(1), text_of(1, 1_234)
    drafts = drafted(
        CALL,
        result(text, id="r", is_error=True),
        {"type": "message", "role": "user", "content": "after"},
    )
    positions = await append_drafts(log, drafts)
    assert [p.offset for p in positions] == [13, 14, 15]
    flat = await stored(log, positions[1])
    chunks = [
        decode_event((await log.read([Position(0, i)]))[Position(0, i)].value or b"")
        for i in range(13)
    ]
    assert all(
        isinstance(event, ToolResultChunkEvent) and len(event.data.content) <= 100
        for event in chunks
    )
    assert flat["spill"]["chunks"] == [f"0-{i}" for i in range(13)]
    assert (flat["spill"]["chars"], flat["spill"]["bytes"]) == (1_234, len(text.encode()))
    assert flat["content"].startswith(text[:15] + "\n[1204 of 1234 characters left out")
    assert flat["content"].endswith("]\n" + text[-15:])
    assert flat["is_error"] is True
    assert (await unfold(log, KEY, flat, None, None))["content"] == text
    for size in (1, 37, 100, 250, 5_000):
        pages = [(await unfold(log, KEY, flat, at, size)) for at in range(0, 1_234, size)]
        assert "".join(p["content"] for p in pages) == text
        assert pages[-1]["page"] == {
            "offset": len(range(0, 1_234, size)) * size - size,
            "limit": size,
            "characters": 1_234,
        }
    assert (await unfold(log, KEY, flat, 5_000, 10))["content"] == ""


async def test_a_repeat_under_the_same_id_is_pieces_of_the_same_ids() -> None:
    log = MemoryLog(1)
    flats = [CALL | {"id": "m"}, result("x" * 500, id="r" * 256)]
    first, second = drafted(*flats), drafted(*flats)
    assert [chunk.id for chunk in first.spilled[0].chunks] == [
        chunk.id for chunk in second.spilled[0].chunks
    ]
    for drafts in (first, second):
        positions = await append_drafts(log, drafts)
        assert (await unfold(log, KEY, await stored(log, positions[1]), None, None))[
            "content"
        ] == "x" * 500
    window = replay(
        KEY,
        0,
        RULES,
        [(raw.offset, decode_event(raw.value or b"")) async for raw in log.scan(0, 0, 100)],
    )
    assert (window.meta.count, window.meta.duplicates) == (7, 7)


async def test_the_window_holds_the_preview_alone_and_counts_its_tokens() -> None:
    log = MemoryLog(1)
    await append_drafts(
        log,
        drafted(
            CALL, result("word " * 500), {"type": "message", "role": "user", "content": "go on"}
        ),
    )
    window = replay(
        KEY,
        0,
        RULES,
        [(raw.offset, decode_event(raw.value or b"")) async for raw in log.scan(0, 0, 100)],
    )
    assert [entry.kind for entry in window.tail].count(Kind.NOTE) == 25
    bodies = [orjson.loads(body) for body in render_openai(window).bodies]
    assert [body["role"] for body in bodies] == ["assistant", "tool", "user"]
    assert "2470 of 2500 characters left out" in bodies[1]["content"]
    assert window.tail_tokens < 100
    assert "spill" not in bodies[1]


async def test_lists_of_parts_keep_what_is_no_text_in_its_place() -> None:
    log = MemoryLog(1)
    image = {"type": "image_url", "image_url": {"url": "https://example.org/a.png"}}
    parts = [
        image,
        {"type": "text", "text": "a" * 90},
        {"type": "text", "text": ""},
        image,
        {"type": "text", "text": "b" * 90},
    ]
    (position,) = await append_drafts(log, drafted(result(parts)))
    flat = await stored(log, position)
    assert [part["type"] for part in flat["content"]] == ["image_url", "text", "image_url"]
    assert (await unfold(log, KEY, flat, None, None))["content"] == parts
    assert (await unfold(log, KEY, flat, 85, 10))["content"] == "aaaaabbbbb"


@given(st.integers(1, 400), st.integers(1, 60), st.integers(0, 80), st.booleans())
@hypothesis_settings(max_examples=examples(150), deadline=None)
def test_any_length_spills_exactly_above_the_limit_and_is_cut_into_pieces_within_it(
    chars: int, limit: int, keep: int, listed: bool
) -> None:
    policy, text = Policy(spill_chars=limit, soft_trim_chars=keep), text_of(chars, chars)
    preview = preview_of([{"type": "text", "text": text}] if listed else text, policy, "event 1")
    assert (preview is None) == (chars <= limit)
    drafts = drafted(
        result([{"type": "text", "text": text}] if listed else text),
        rules=Rules({"spill_chars": limit}),
    )
    assert len(drafts.spilled) == (chars > limit)
    for spilled in drafts.spilled:
        pieces = [orjson.loads(chunk.value)["data"]["content"] for chunk in spilled.chunks]
        assert "".join(pieces) == text
        assert max(map(len, pieces)) <= max(limit, -(-chars // MAX_CHUNKS))


def test_a_piece_fits_one_event_however_its_text_is_escaped() -> None:
    drafts = drafted(
        result("\u0001" * 50_000), rules=Rules({"spill_chars": 40_000}), max_bytes=20_000
    )
    assert all(len(chunk.value) <= 20_000 for chunk in drafts.spilled[0].chunks)


def test_beyond_the_bytes_of_one_result_it_is_too_large_whether_it_would_spill_or_not() -> None:
    assert drafted(result("ä" * 2_500)).spilled
    with pytest.raises(EventTooLarge, match="event 2: field content: 5002 bytes"):
        drafted(CALL, result("ä" * 2_501))
    with pytest.raises(EventTooLarge, match="limit of 50 bytes"):
        drafted(result("x" * 51), rules=Rules({"max_result_bytes": 50}))
    assert not drafted(result("x" * 4_000), rules=Rules({"spill_chars": 0})).spilled


def test_a_conversation_opened_in_the_same_list_brings_its_own_limit() -> None:
    opened = {"type": "conversation.opened", "policy": {"spill_chars": 1_000}}
    assert drafted(result("x" * 500)).spilled
    assert not drafted(opened, result("x" * 500)).spilled
    assert drafted(result("x" * 500), opened).spilled


def test_what_is_wrong_is_named_and_nothing_spills() -> None:
    for wrong, part in (
        (result("x" * 500, tool_call_id=""), "event 1: field tool_call_id"),
        (result("x" * 500 + "\ud800"), "event 1: .*surrogate"),
        (
            result([{"type": "text", "text": "x" * 500}, {"type": "text", "text": 5}]),
            "event 1: field content",
        ),
        (
            result("x", spill={"chars": 1, "bytes": 1, "sha256": "", "size": 1, "chunks": []}),
            "event 1: field spill",
        ),
        (
            {"type": "tool.result.chunk", "spill_id": "s", "index": 0, "count": 1, "content": "x"},
            "may be written only by threadfold itself",
        ),
    ):
        with pytest.raises(InvalidEvent, match=part):
            drafted(wrong)
    with pytest.raises(ValueError, match="spills"):
        Drafter(KEY.tenant, RULES, 1, 1 << 20).records(
            [("c", result("x" * 500))], "event", False, None
        )


async def test_pieces_that_are_lost_changed_or_anothers_are_reported_and_never_shown() -> None:
    log, other = MemoryLog(1), Key("acme", "other")
    (position,) = await append_drafts(log, drafted(result("secret " * 100)))
    flat = await stored(log, position)
    for broken in (
        {**flat, "spill": {**flat["spill"], "chunks": ["0-9999", *flat["spill"]["chunks"][1:]]}},
        {**flat, "spill": {**flat["spill"], "chunks": ["1-0", *flat["spill"]["chunks"][1:]]}},
        {**flat, "spill": {**flat["spill"], "chunks": ["nonsense", *flat["spill"]["chunks"][1:]]}},
        {**flat, "spill": {**flat["spill"], "chunks": flat["spill"]["chunks"][::-1]}},
        {**flat, "id": "another result of the same conversation"},
    ):
        for at in (None, 0):
            with pytest.raises(SpillLost):
                await unfold(log, KEY, broken, at, None)
    with pytest.raises(SpillLost, match="checksum"):
        await unfold(log, KEY, {**flat, "spill": {**flat["spill"], "sha256": "0" * 64}}, None, None)
    with pytest.raises(SpillLost, match="not at 0-0"):
        await unfold(log, other, flat, None, None)
    with pytest.raises(InvalidRequest, match="no pages"):
        await unfold(
            log, KEY, {"type": "rollback", "to": "x", "id": "i", "position": "0-1"}, 0, None
        )
    for offset, limit in ((-1, None), (0, 0), (0, 1_000_001)):
        with pytest.raises(InvalidRequest):
            check_page(offset, limit)


async def test_history_passes_over_the_pieces_and_its_pages_stay_full() -> None:
    log, ids = MemoryLog(1), []
    for i in range(6):
        drafts = drafted({**CALL, "id": f"m{i}"}, result("x" * (900 + i), id=f"r{i}"))
        await append_drafts(log, drafts)
        ids += [f"m{i}", f"r{i}"]
    window = replay(
        KEY,
        0,
        RULES,
        [(raw.offset, decode_event(raw.value or b"")) async for raw in log.scan(0, 0, 1000)],
    )
    for limit in (1, 2, 5, 50):
        found, cursor = [], None
        for _ in range(100):
            answer = await page(log, window, cursor, limit)
            found += [event["id"] for event in answer["events"]]
            cursor = answer["next_before"]
            assert cursor is None or len(answer["events"]) == limit
            if cursor is None:
                break
        assert found == ids[::-1]


def test_a_flat_chunk_is_still_an_event_at_its_own_position() -> None:
    chunk = drafted(result("x" * 500)).spilled[0].chunks[2]
    flat = flat_event(Raw(Position(0, 2), str(KEY).encode(), chunk.value, 0), KEY, Unsealed())
    assert flat is not None
    assert (flat["type"], flat["index"], flat["count"]) == ("tool.result.chunk", 2, 5)
