"""What a worker shows of the partitions that it folds."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any, cast

import pytest

from projections.errors import RedisUnavailable
from streams.metrics.metrics import Metrics
from streams.projector.projector_counts import ProjectorCounts
from tests.support.metrics import read

Samples = dict[str, dict[tuple[str, ...], float]]


class Waiting:
    """Three conversations of each partition wait for a summary, while Redis answers."""

    answers = True

    async def due_count(self, generation: int, partition: int) -> int:
        if not self.answers:
            raise RedisUnavailable("it is away")
        return 3


def partition(number: int, lag: int, seconds: float, healing: bool = False) -> SimpleNamespace:
    stamp = int((time.time() - seconds) * 1000)
    checkpoint = SimpleNamespace(offset=100, timestamp=stamp, healing=healing)
    return SimpleNamespace(number=number, generation=1, lag=lag, checkpoint=checkpoint)


async def shown(metrics: Metrics) -> Samples:
    await metrics.prepare()
    return {name.removeprefix("threadfold_"): found for name, found in read(metrics.page()).items()}


async def test_a_partition_shows_its_lag_its_age_whether_it_heals_and_what_is_due() -> None:
    metrics, store = Metrics(), Waiting()
    runtime = SimpleNamespace(
        partitions={0: partition(0, 12, 40.0), 1: partition(1, 0, 900.0, healing=True)},
        lag=lambda one: one.lag,
        fenced=2,
    )
    counts = ProjectorCounts(metrics, cast(Any, runtime), cast(Any, store))
    counts.of(0).applied += 5
    counts.of(0).waiting += 1
    counts.batch(6, 0.02, 0.01)
    counts.batch(0, 0.02, 0.01)
    with counts.heals(7):
        found = await shown(metrics)
    assert found["partition_lag"] == {("0",): 12, ("1",): 0}
    assert found["partition_seconds_behind"]["0",] == pytest.approx(40, abs=5)
    assert found["partition_seconds_behind"]["1",] == 0, "old, and the last there is"
    assert found["partition_healing"] == {("0",): 0, ("1",): 1, ("7",): 1}
    assert found["healings_total"] == {(): 1} and found["fenced_total"] == {(): 2}
    assert found["events_total"]["applied", "0"] == 5 and found["events_total"]["waiting", "0"] == 1
    assert found["batch_events_count"] == {(): 1}, "an empty batch is none"
    assert found["conversations_due"] == {("0",): 3, ("1",): 3}
    store.answers = False
    found = await shown(metrics)
    assert "conversations_due" not in found, "nobody knows"
    assert ("7",) not in found["partition_healing"]


async def test_a_partition_that_was_idle_is_behind_by_no_more_than_since_it_was_whole() -> None:
    metrics = Metrics()
    idle = partition(0, 0, 3_600.0)
    runtime = SimpleNamespace(partitions={0: idle}, lag=lambda one: one.lag, fenced=0)
    ProjectorCounts(metrics, cast(Any, runtime), cast(Any, Waiting()))

    async def behind() -> float:
        return (await shown(metrics))["partition_seconds_behind"]["0",]

    assert await behind() == 0
    idle.lag = 1
    assert await behind() == pytest.approx(0, abs=5), "the record has just come"
    idle.checkpoint.offset = 99
    assert await behind() == pytest.approx(3_600, abs=5), "the checkpoint went back"


async def test_a_partition_that_was_never_seen_whole_is_behind_by_its_last_records_age() -> None:
    metrics = Metrics()
    runtime = SimpleNamespace(
        partitions={0: partition(0, 9, 3_600.0)}, lag=lambda one: one.lag, fenced=0
    )
    ProjectorCounts(metrics, cast(Any, runtime), cast(Any, Waiting()))
    found = await shown(metrics)
    assert found["partition_seconds_behind"]["0",] == pytest.approx(3_600, abs=5)
