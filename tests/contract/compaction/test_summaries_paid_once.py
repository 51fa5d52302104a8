"""A span is paid for once: what rollbacks left behind, and what is asked again while the answer is
under way, is not made anew.
"""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from projections.events.types import delta
from projections.events.validation import make_record
from projections.names import partition_of
from projections.policy.policy import Rules
from streams.compaction.compactor import Compactor
from streams.compaction.requests import CompactionRequest, Piece, request_for
from streams.compaction.summarizers.base import SummaryInput, SummaryText
from streams.settings.settings import Settings
from tests.contract.compaction.test_compactor import RULES, SETTINGS, last, talk
from tests.support.compaction import KEY, Terse, append, fold
from tests.support.counting_log import CountingLog
from tests.support.worker import until
from threadfold.testing import MemoryLog


class Counted(Terse):
    """A summariser that counts its calls."""

    calls = 0

    async def summarize(self, request: SummaryInput) -> SummaryText:
        self.calls += 1
        return msgspec.structs.replace(await super().summarize(request), model="m", cost=0.5)


async def roll_back(log: MemoryLog, *offsets: int) -> None:
    """Go back to one offset after the other."""
    partition = partition_of(KEY, log.partitions)
    for offset in offsets:
        begin = (await log.end_offsets())[partition]
        await append(log, [{"type": "rollback", "to": f"{partition}-{offset}"}], 1_000 + begin)


async def left_behind(log: MemoryLog, compactor: Compactor) -> tuple[CompactionRequest, int]:
    """A request whose summary a rollback has left behind, and another one has not brought back; and
    where the second one went to.
    """
    await append(log, talk(40))
    request = request_for(await fold(log, RULES), 1)
    assert request is not None and not request.left_behind
    end = (await log.end_offsets())[request.partition] - 1
    assert await compactor.answer_if_due(request) is not None
    await roll_back(log, request.first, end)
    return request, end


async def test_a_summary_that_rollbacks_left_behind_is_appended_again_and_not_paid_for_twice() -> (
    None
):
    log, model = MemoryLog(3), Counted()
    compactor = Compactor(SETTINGS, log, lambda _: model)
    before, end = await left_behind(log, compactor)
    for _ in range(3):
        request = request_for(await fold(log, RULES), 1)
        assert request is not None and request.request_id != before.request_id
        assert (request.first, request.last) == (before.first, before.last)
        # At once: the window does not wait for the summary that it has passed.
        assert await compactor.answer_if_due(request) is not None
        assert await compactor.answer_if_due(request) is None
        _, event = await last(log)
        assert (event.data.model, event.data.cost) == ("m", 0.0)
        assert await in_force(log) == request.request_id
        await roll_back(log, request.first, end)
    assert model.calls == 1


async def test_what_is_no_summary_is_looked_at_once_behind_all_spans_of_a_conversation() -> None:
    log, model = CountingLog(3), Counted()
    compactor = Compactor(SETTINGS, log, lambda _: model)
    before, end = await left_behind(log, compactor)
    read = []
    for _ in range(3):
        request = request_for(await fold(log, RULES), 1)
        assert request is not None and len(request.left_behind) > 10
        log.read_rows = 0
        await compactor.answer(request)
        read.append(log.read_rows)
        await roll_back(log, request.first, end)
    spans = before.last - before.first + 1
    assert read[0] > spans + 10
    assert max(read[1:]) < read[0] - 10


async def test_a_summary_left_behind_is_not_used_once_an_event_of_its_span_was_taken_out() -> None:
    log, model = MemoryLog(3), Counted()
    compactor = Compactor(SETTINGS, log, lambda _: model)
    before, _ = await left_behind(log, compactor)
    dropped = make_record(
        KEY,
        {"type": "event.dropped", "position": f"{before.partition}-{before.first + 1}"},
        where="e",
        now="2026-01-01T00:00:00Z",
        new_id="dropped",
        operator=True,
    )
    await log.append([dropped])
    request = request_for(await fold(log, RULES), 1)
    assert request is not None and request.last == before.last
    await compactor.answer(request)
    assert model.calls == 2


async def test_a_chain_of_summaries_that_rollbacks_left_behind_is_not_paid_for_twice() -> None:
    # Spans that the input cap cut are among them; those have ids of their own.
    log, model = MemoryLog(3), Counted()
    settings = Settings(kafka="unused", redis="unused", summary_input_tokens=200)
    compactor = Compactor(settings, log, lambda _: model)
    await append(log, talk(60))
    partition = partition_of(KEY, log.partitions)
    end = (await log.end_offsets())[partition] - 1
    texts: list[str] = []
    for number in range(3):
        made = 0
        while (request := request_for(await fold(log, RULES), 1)) is not None:
            await compactor.answer(request)
            made += 1
            assert made < 40
        window = await fold(log, RULES)
        assert window.meta.summary is not None and made == model.calls > 3, number
        texts.append(window.meta.summary.text)
        await roll_back(log, 0, end)
    assert len(set(texts)) == 1


class Gated(Counted):
    """It answers while its gate is open."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.gate.set()

    async def summarize(self, request: SummaryInput) -> SummaryText:
        made = await super().summarize(request)
        await self.gate.wait()
        return made


async def asked(log: MemoryLog, rules: Rules = RULES) -> CompactionRequest:
    request = request_for(await fold(log, rules), 1)
    assert request is not None
    return request


async def in_force(log: MemoryLog) -> str | None:
    """The id of the summary that the window stands on."""
    summary = (await fold(log, RULES)).meta.summary
    return None if summary is None else summary.summary_id


async def called(model: Counted, times: int) -> None:
    await until(lambda: asyncio.sleep(0, model.calls == times), 5)


LONG_ANSWER = {"type": "message", "role": "assistant", "content": "The parcel is at sea. " * 60}


async def before_a_long_answer(log: MemoryLog) -> tuple[int, int]:
    """A talk whose last answer is longer than what stays after a summary; where the message before
    it stands, and where it does.
    """
    await append(log, [*talk(5), LONG_ANSWER])
    end = (await log.end_offsets())[partition_of(KEY, log.partitions)]
    return end - 2, end - 1


async def test_a_span_is_paid_for_once_where_an_answer_is_made_again_while_it_is_summarised() -> (
    None
):
    log, model = MemoryLog(3), Gated()
    compactor = Compactor(SETTINGS, log, lambda _: model)
    before, _ = await before_a_long_answer(log)
    request = await asked(log)
    model.gate.clear()
    under_way = asyncio.create_task(compactor.answer_if_due(request))
    await called(model, 1)
    await roll_back(log, before)
    await append(log, [LONG_ANSWER], 2_000)
    again = await asked(log)
    assert again.last > request.last, "it ends behind what was abandoned"
    assert await asyncio.wait_for(compactor.answer_if_due(again), 5) is None
    model.gate.set()
    assert await under_way is not None
    assert await in_force(log) == request.request_id
    assert model.calls == 1


async def test_a_span_whose_predecessor_was_appended_again_while_it_is_summarised_is_paid_for_once() -> (
    None
):
    log, model = MemoryLog(3), Gated()
    settings = Settings(kafka="unused", redis="unused", summary_input_tokens=200)
    compactor = Compactor(settings, log, lambda _: model)
    await append(log, talk(60))
    first = await asked(log)
    newest = (await log.end_offsets())[first.partition] - 1
    assert await compactor.answer_if_due(first) is not None
    second = await asked(log)
    model.gate.clear()
    under_way = asyncio.create_task(compactor.answer_if_due(second))
    await called(model, 2)
    await roll_back(log, first.first, newest)
    assert await compactor.answer_if_due(await asked(log)) is not None
    request = await asked(log)
    assert request.previous_offset != second.previous_offset
    again = asyncio.create_task(compactor.answer_if_due(request))
    await asyncio.sleep(0.05)
    assert not again.done() and model.calls == 2
    model.gate.set()
    assert await under_way is not None and await again is not None
    _, event = await last(log)
    assert (event.data.previous, event.data.cost) == (request.previous, 0.0)
    assert await in_force(log) == event.data.summary_id
    assert model.calls == 2


async def test_an_answer_whose_span_ended_behind_abandoned_events_is_used_again_without_them() -> (
    None
):
    log, model = MemoryLog(3), Counted()
    compactor = Compactor(SETTINGS, log, lambda _: model)
    before, at = await before_a_long_answer(log)
    shorter = await asked(log)
    await roll_back(log, before)
    await append(log, [LONG_ANSWER], 2_000)
    longer = await asked(log)
    assert longer.last > shorter.last
    assert await compactor.answer_if_due(longer) is not None
    await roll_back(log, at)
    request = await asked(log)
    assert (request.first, request.last) == (shorter.first, shorter.last)
    assert await compactor.answer_if_due(request) is not None
    assert await in_force(log) == request.request_id
    assert model.calls == 1


async def test_a_window_that_passed_an_answer_and_did_not_take_it_gets_its_text_without_a_call() -> (
    None
):
    log, model = MemoryLog(3), Counted()
    compactor = Compactor(SETTINGS, log, lambda _: model)
    await append(log, talk(40))
    request = await asked(log)
    assert await compactor.answer_if_due(request) is not None
    passed: dict[str, Any] = {"known_to": 10_000, "request_id": "another"}
    again = msgspec.structs.replace(request, **passed)
    assert await compactor.answer_if_due(again) is not None
    _, event = await last(log)
    assert (event.data.summary_id, event.data.cost, model.calls) == ("another", 0.0, 1)


async def test_longer_and_shorter_spans_that_the_input_cap_cuts_alike_are_paid_for_once() -> None:
    log, model = MemoryLog(3), Gated()
    settings = Settings(kafka="unused", redis="unused", summary_input_tokens=200)
    compactor = Compactor(settings, log, lambda _: model)
    await append(log, talk(40))
    shorter = await asked(log)
    whole = Piece(0, shorter.last + 6, delta(list(range(shorter.last + 7))))
    longer = msgspec.structs.replace(
        shorter, request_id="longer", last=shorter.last + 6, pieces=[whole]
    )
    model.gate.clear()
    answers = [asyncio.create_task(compactor.answer_if_due(one)) for one in (shorter, longer)]
    await called(model, 1)
    await asyncio.sleep(0.05)
    model.gate.set()
    assert None not in await asyncio.gather(*answers)
    assert model.calls == 1 and (await fold(log, RULES)).meta.summary is not None


async def test_what_another_summariser_left_behind_is_used_where_an_extractive_one_is_asked() -> (
    None
):
    log = MemoryLog(3)
    models = {name: Counted() for name in ("cheap", "other")}
    for name, model in models.items():
        model.name = name
    compactor = Compactor(SETTINGS, log, lambda name: models[name])
    await append(log, talk(40))
    asked = request_for(await fold(log, RULES), 1)
    assert asked is not None
    end = (await log.end_offsets())[asked.partition] - 1
    cheap = msgspec.structs.replace(asked, summarizer="cheap")
    assert await compactor.answer_if_due(cheap) is not None
    for name, calls in (("other", 1), ("cheap", 1)):
        await roll_back(log, asked.first, end)
        request = request_for(await fold(log, RULES), 1)
        assert request is not None
        request = msgspec.structs.replace(request, summarizer=name)
        assert await compactor.answer_if_due(request) is not None
        _, event = await last(log)
        assert event.data.summarizer == name
        assert models[name].calls == calls
    # An extractive text stands in for a model's: what a model wrote is no worse.
    models["extractive"] = Counted()
    await roll_back(log, asked.first, end)
    request = request_for(await fold(log, RULES), 1)
    assert request is not None and request.summarizer == "extractive"
    assert await compactor.answer_if_due(request) is not None
    _, event = await last(log)
    assert event.data.summarizer in ("cheap", "other") and models["extractive"].calls == 0


@pytest.mark.parametrize(("cost", "calls"), [(0.5, 1), (None, 2)])
async def test_what_stands_in_for_an_answer_that_was_paid_for_and_refused_is_used_again(
    cost: float | None, calls: int
) -> None:
    class Refused(Counted):
        async def summarize(self, request: SummaryInput) -> SummaryText:
            answer = await super().summarize(request)
            return msgspec.structs.replace(answer, summarizer="extractive", cost=cost)

    log, model = MemoryLog(3), Refused()
    compactor = Compactor(SETTINGS, log, lambda _: model)
    await append(log, talk(40))
    asked = request_for(await fold(log, RULES), 1)
    assert asked is not None
    end = (await log.end_offsets())[asked.partition] - 1
    assert await compactor.answer_if_due(msgspec.structs.replace(asked, summarizer="m")) is not None
    await roll_back(log, asked.first, end)
    again = request_for(await fold(log, RULES), 1)
    assert again is not None
    assert await compactor.answer_if_due(msgspec.structs.replace(again, summarizer="m")) is not None
    _, event = await last(log)
    assert event.data.summarizer == "extractive"
    assert (model.calls, event.data.cost) == (calls, None if cost is None else 0.0)
