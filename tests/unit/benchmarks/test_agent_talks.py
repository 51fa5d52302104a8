"""The real agent's conversations of the figures with summaries: what they hold, and what the
figures' model answers for them.
"""

from __future__ import annotations

import json
from itertools import groupby
from pathlib import Path

import pytest

pytest.importorskip(
    "psutil", reason="the benchmarks' packages are not installed: make bench does it"
)

from benchmarks.sides.model_endpoint import summary_of
from benchmarks.support.agent_talks import AgentRecords, prompt, talk, write_talks
from projections.events.codec import decode_event
from projections.window.bodies import to_flat
from streams.compaction.summarizers.base import SummaryInput
from streams.compaction.summarizers.checks import finish
from streams.compaction.summarizers.prompt import make_prompt
from streams.compaction.summarizers.span_messages import messages_of


def test_a_talk_has_its_length_and_is_the_same_each_time_and_no_other_ones() -> None:
    assert len(talk(3, 400)) == 400
    assert talk(3, 400)[0] == prompt()
    assert talk(3, 400) == talk(3, 900)[:400]
    assert talk(3, 400) != talk(4, 400)


def test_the_file_to_play_and_the_records_say_the_same(tmp_path: Path) -> None:
    write_talks(tmp_path / "talks.jsonl", 2, 60)
    played = [json.loads(line) for line in (tmp_path / "talks.jsonl").read_text().splitlines()]
    made = AgentRecords("acme")
    for number, row in enumerate(played):
        events = [decode_event(record.value) for record in made.of(number, 60)]
        assert made.key(number).conversation == row["conversation"]
        assert len({event.id for event in events}) == 60
        for event, message in zip(events, row["messages"], strict=True):
            assert getattr(event.data, "content", None) == to_flat(message, "it").get("content")


def test_conversations_take_turns_in_a_log_each_in_its_order() -> None:
    made = AgentRecords("acme")
    records = list(made.all(range(3), 25))
    assert len(records) == 75
    for number in range(3):
        own = [record for record in records if record.key == made.key(number)]
        assert own == list(made.of(number, 25))
    assert len(list(groupby(record.key for record in records))) == 3 * 7


def test_what_the_model_of_the_figures_answers_is_taken_as_a_summary() -> None:
    events = [decode_event(record.value) for record in AgentRecords("acme").of(5, 120)]
    messages = tuple(m for i, event in enumerate(events) for m in messages_of(event, f"0-{i}"))
    asked = SummaryInput(None, messages, 1_500, "o200k_base")
    sent = make_prompt(asked, 100_000)
    text, tokens = finish(asked, summary_of(sent.messages[1]["content"]), sent.mark, cut=False)
    assert 200 < tokens <= 1_500
    assert text
