"""The compactor over a log in memory: what it reads, what it appends, and what it refuses to
summarise.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec
import pytest

from projections.events import types as events
from projections.events.codec import decode_event
from projections.events.types import SummaryEvent
from projections.names import Position, partition_of
from projections.policy.policy import Rules
from streams.compaction.compactor import Compactor
from streams.compaction.requests import Piece, request_for
from streams.compaction.span import SpanLost, read_span
from streams.log.log import Raw
from streams.settings.settings import Settings
from tests.support.compaction import KEY, SMALL, Terse, append, fold
from tests.support.processors import Reached, Refusing
from threadfold.testing import MemoryLog

RULES = Rules(SMALL)
SETTINGS = Settings(kafka="unused", redis="unused")


def talk(n: int) -> list[dict]:
    return [
        {
            "type": "message",
            "role": ("user", "assistant")[i % 2],
            "content": f"Order {4700 + i} goes to Oslo on day {i}.",
        }
        for i in range(n)
    ]


async def last(log: MemoryLog) -> tuple[Raw, SummaryEvent]:
    partition = partition_of(KEY, log.partitions)
    rows = [raw async for raw in log.scan(partition, 0, (await log.end_offsets())[partition] - 1)]
    event = decode_event(rows[-1].value or b"")
    assert isinstance(event, SummaryEvent)
    return rows[-1], event


async def test_a_request_becomes_a_summary_that_the_window_takes() -> None:
    log = MemoryLog(3)
    await append(log, talk(40))
    request = request_for(await fold(log, RULES), 1)
    assert request is not None
    await Compactor(SETTINGS, log).answer(request)
    _, event = await last(log)
    assert (event.data.summary_id, event.id) == (
        request.request_id,
        f"summary-{request.request_id}",
    )
    assert event.data.trust == "model" and event.data.tokens <= 80
    window = await fold(log, RULES)
    assert window.meta.summary is not None and window.meta.summary.summary_id == request.request_id


async def test_two_answers_to_one_request_are_one_event() -> None:
    log = MemoryLog(3)
    await append(log, talk(40))
    request = request_for(await fold(log, RULES), 1)
    assert request is not None
    for _ in range(2):
        await Compactor(SETTINGS, log).answer(request)
    window = await fold(log, RULES)
    assert (window.meta.duplicates, window.meta.skipped) == (1, 0)


async def test_the_text_of_a_summary_is_counted_beside_the_event_loop() -> None:
    log = MemoryLog(3)
    await append(log, talk(40))
    request = request_for(await fold(log, RULES), 1)
    assert request is not None
    with pytest.raises(Reached):
        await Compactor(SETTINGS, log, lambda _: Terse(), processor=Refusing()).answer(request)


async def test_a_backlog_over_one_input_is_summarised_in_a_chain_and_never_between_a_call_and_its_result() -> (
    None
):
    log = MemoryLog(1)
    call = {
        "type": "message",
        "role": "assistant",
        "tool_calls": [{"id": "c", "name": "look", "arguments": '{"q": "oslo"}'}],
    }
    result = {
        "type": "tool.result",
        "tool_call_id": "c",
        "content": "row 17: shipped from the harbour " * 4,
    }
    await append(log, [*talk(6), *([call, result] * 40), *talk(4)])
    compactor = Compactor(Settings(kafka="unused", redis="unused", summary_input_tokens=200), log)
    rounds = 0
    while (request := request_for(await fold(log, RULES), 1)) is not None:
        await compactor.answer(request)
        _, event = await last(log)
        before = decode_event(
            (await log.read([_position(event.data.span.to)]))[_position(event.data.span.to)].value
            or b""
        )
        assert not (isinstance(before, events.MessageEvent) and before.data.tool_calls)
        rounds += 1
        assert rounds < 60
    window = await fold(log, RULES)
    assert rounds > 3 and window.meta.skipped == 0
    assert window.tail_tokens <= window.policy.budget(0)


class Weighed(MemoryLog):
    """A log that keeps how many bytes of records were read at once."""

    most = 0

    async def read(self, positions: Iterable[Position]) -> dict[Position, Raw]:
        return self._weighed(await super().read(positions))

    async def read_within(
        self, positions: Sequence[Position], most_bytes: int
    ) -> tuple[dict[Position, Raw], int]:
        rows, count = await super().read_within(positions, most_bytes)
        return self._weighed(rows), count

    def _weighed(self, rows: dict[Position, Raw]) -> dict[Position, Raw]:
        self.most = max(self.most, sum(len(raw.value or b"") for raw in rows.values()))
        return rows


async def test_a_span_of_large_images_is_read_in_steps_and_kept_without_them() -> None:
    log = Weighed(1)
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * (1 << 20)}}
    await append(
        log,
        [
            {**flat, "content": [{"type": "text", "text": flat["content"]}, image]}
            for flat in talk(60)
        ],
    )
    large = {"model_window": 100_000, "working_budget": 40_000, "keep_recent_tokens": 2_000}
    request = request_for(await fold(log, Rules(SMALL | large)), 1)
    assert request is not None
    span = await read_span(log, request, KEY, most_tokens=SETTINGS.summary_input_tokens)
    assert span.whole and len(span.events) == len(span.summarised) > 40
    assert log.most < 18 << 20  # in one go it is more than 40 MiB
    assert sum(len(msgspec.json.encode(event)) for _, event in span.summarised) < 1 << 16


def _position(text: str):  # type: ignore[no-untyped-def]
    from projections.names import parse_position

    return parse_position(text)


async def test_a_span_that_the_log_does_not_hold_is_refused_and_nothing_is_appended() -> None:
    log = MemoryLog(3)
    await append(log, talk(40))
    request = request_for(await fold(log, RULES), 1)
    assert request is not None
    partition = partition_of(KEY, 3)
    ends = await log.end_offsets()
    request.pieces = [Piece(10_000, 10_001, [10_000, 1])]
    with pytest.raises(SpanLost, match=r"no event of .+ at offset 10000"):
        await Compactor(SETTINGS, log).answer(request)
    assert (await log.end_offsets())[partition] == ends[partition]


async def test_the_least_trust_of_a_span_and_of_the_summary_before_it_is_the_summarys() -> None:
    log = MemoryLog(3)
    said: list[str] = []
    wishes = [
        {
            "type": "message",
            "role": "user",
            "content": f"I want order {i} in Oslo, please do it today.",
        }
        for i in range(30)
    ]
    answers = [{**wish, "role": "assistant"} for wish in wishes]
    tools = [{"type": "tool.result", "tool_call_id": "x", "content": "late " * 30}]
    for start, flats in (
        (0, wishes),
        (100, wishes),
        (200, answers),
        (300, tools + wishes),
        (400, wishes),
        (500, wishes),
    ):
        await append(log, flats, start)
        while (request := request_for(await fold(log, RULES), 1)) is not None:
            assert len(said) < 60, "each answer is taken"
            await Compactor(SETTINGS, log).answer(request)
            said.append((await last(log))[1].data.trust)
    assert said[0] == "user" and "model" in said and said[-1] == "tool"
    assert said == sorted(said, key=["user", "model", "tool"].index)


async def test_a_summariser_nobody_knows_leaves_no_window_due_for_ever() -> None:
    log = MemoryLog(3)
    await append(log, talk(40))
    request = request_for(await fold(log, RULES), 1)
    assert request is not None
    request.summarizer = "nonexistent"
    await Compactor(SETTINGS, log).answer(request)
    _, event = await last(log)
    assert event.data.summarizer == "extractive"
    assert (await fold(log, RULES)).meta.summary is not None
