"""The benchmarks' harness: rounds become medians and ratios, results are compared with committed
ones, and texts are what they say.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip(
    "psutil", reason="the benchmarks' packages are not installed: make bench does it"
)

from benchmarks import compare
from benchmarks.__main__ import main
from benchmarks.harness import Args, Measured, Result, figures, interleave, percentile
from benchmarks.projection_scaling import counted
from benchmarks.support.grown import GrownLog
from benchmarks.support.texts import NOW, Messages, conversation
from projections.events.codec import decode_event
from projections.events.validation import make_record
from projections.fold.replay import replay
from projections.names import Position, partition_of
from projections.policy.policy import Rules
from streams.settings.settings import Settings


def feed(*values: float) -> Any:
    given: Iterator[float] = iter(values)
    return lambda: Measured(next(given))


async def result(
    ours: tuple[float, ...] = (30.0, 10.0, 20.0),
    peer: tuple[float, ...] = (10.0, 10.0, 5.0),
    better: Any = "higher",
) -> Result:
    rounds = await interleave({"ours": feed(*ours), "peer": feed(*peer)}, len(ours))
    return rounds.result("sample", "events/s", {"events": 7}, better=better)


async def test_a_ratio_is_the_median_of_the_rounds_own_ratios() -> None:
    made = await result()
    assert (made.ours, made.peers, made.ratios) == (20.0, {"peer": 10.0}, {"peer": 3.0})
    assert made.conditions["spread"] == {"ours": [10.0, 30.0], "peer": [5.0, 10.0]}
    assert made.conditions["ratio_spread"] == {"peer": [1.0, 4.0]}


async def test_sides_take_turns_and_each_round_begins_with_another() -> None:
    order: list[str] = []

    def side(name: str) -> Any:
        async def measure() -> Measured:
            order.append(name)
            return Measured(1.0)

        return measure

    await interleave({"ours": side("ours"), "a": side("a"), "b": side("b")}, 3)
    assert order == ["ours", "a", "b", "a", "b", "ours", "b", "ours", "a"]


async def test_a_line_is_json_with_the_conditions_it_was_measured_under() -> None:
    line = json.loads((await result()).line())
    assert list(line) == ["figure", "ours", "unit", "peers", "ratios", "conditions"]
    assert line["conditions"].keys() >= {
        "cores",
        "memory_gib",
        "cpu",
        "python",
        "commit",
        "date",
        "load_before",
        "runs",
        "parameters",
        "spread",
    }


async def test_what_moved_by_more_than_the_noise_is_reported_with_its_direction() -> None:
    before = dataclasses.asdict(await result((20.0,) * 3, (10.0,) * 3))
    same, worse = await result((21.0,) * 3, (10.0,) * 3), await result((12.0,) * 3, (10.0,) * 3)
    assert compare.moved(same, before) == ["sample: nothing moved by more than the noise"]
    (line,) = compare.moved(worse, before)
    assert "ours/peer: 2 → 1.2" in line
    assert "WORSE" in line


async def test_a_change_within_the_spread_of_either_run_is_noise() -> None:
    before = dataclasses.asdict(await result((20.0,) * 3, (10.0,) * 3))
    noisy = await result((12.0, 13.0, 24.0), (10.0,) * 3)
    assert compare.moved(noisy, before) == ["sample: nothing moved by more than the noise"]


async def test_where_less_is_better_a_smaller_value_is_better() -> None:
    before = dataclasses.asdict(await result((20.0,) * 3, (10.0,) * 3, "lower"))
    (line,) = compare.moved(await result((12.0,) * 3, (10.0,) * 3, "lower"), before)
    assert line.endswith("better")


async def test_results_of_other_parameters_are_not_compared() -> None:
    before = dataclasses.asdict(await result())
    before["conditions"]["parameters"] = {"events": 8}
    assert "not compared" in compare.moved(await result(), before)[0]
    assert "no committed result" in compare.moved(await result(), None)[0]


async def test_a_saved_result_is_read_back(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(compare, "RESULTS", tmp_path)
    made = await result()
    compare.save(made)
    assert compare.moved(made, compare.load("sample")) == [
        "sample: nothing moved by more than the noise"
    ]


def test_every_figure_is_found_under_the_name_of_its_module() -> None:
    found = figures()
    assert found.keys() >= {
        "projection",
        "projection_scaling",
        "replay",
        "healing",
        "visible",
        "window_read",
        "memory",
        "history_page",
    }
    assert all(
        type(figure).__module__ == f"benchmarks.{name}" and figure.goal
        for name, figure in found.items()
    )


def test_a_quick_run_has_one_round_and_is_not_saved(capsys: pytest.CaptureFixture[str]) -> None:
    assert (Args().rounds(5), Args(quick=True).rounds(5), Args(2, quick=True).rounds(5)) == (
        5,
        1,
        2,
    )
    with pytest.raises(SystemExit):
        main(["projection", "--quick", "--save"])
    assert "--save" in capsys.readouterr().err


def test_an_unknown_figure_is_refused_by_name(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["projektion"])
    assert "figure projektion is not known" in capsys.readouterr().err


def test_percentiles_are_values_that_occurred() -> None:
    assert [percentile([4.0, 1.0, 3.0, 2.0], share) for share in (0.0, 0.5, 0.99, 1.0)] == [
        1.0,
        3.0,
        4.0,
        4.0,
    ]


def test_scaling_counts_from_when_the_last_process_holds_its_share() -> None:
    first = [[1.0, 100.0], [2.0, 80.0], [3.0, 60.0], [5.0, 0.0]]
    second = [[2.5, 90.0], [6.0, 0.0]]
    assert counted([first, second]) == (150, 3.5)


def test_a_record_put_together_from_a_template_is_the_one_intake_makes() -> None:
    messages = Messages(texts=20)
    made = messages.record(4_007, 1_000)
    flat = {"type": "message", "role": "user", "content": decode_event(made.value).data.content}
    assert made == make_record(conversation(7), flat, where="test", now=NOW, new_id=made.id)


def test_records_are_of_the_size_they_say_and_differ() -> None:
    values = [record.value for record in Messages().records(0, 2_000, 100)]
    assert 430 < sum(map(len, values)) / len(values) < 500
    assert len({decode_event(value).id for value in values}) == 2_000
    assert len({decode_event(value).data.content for value in values}) > 1_000


async def test_a_grown_log_holds_its_summaries_and_folds_to_its_windows_again() -> None:
    settings = Settings.load(env={}, partitions=4)
    grown = GrownLog(settings)
    await grown.grow(Messages(texts=200).records(0, 3_000, 3))
    records = await grown.records()
    assert grown.summaries > 0
    assert len(records) == 3_000 + grown.summaries
    for key, window in grown.windows.items():
        partition = partition_of(key, settings.partitions)
        offsets = [raw async for raw in grown.log.scan(partition, 0, len(records))]
        own = [
            (raw.position.offset, decode_event(raw.value))
            for raw in offsets
            if raw.key == str(key).encode() and raw.value
        ]
        assert replay(key, partition, Rules(), own).image() == window.image()
        assert window.meta.count == grown.counts[key] == len(own)
        assert window.position_of(own[-1][0]) == str(Position(partition, window.meta.position))
