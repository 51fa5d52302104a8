"""Figure `recall`: its set says what it claims to say, and a small one is found as it should be."""

from __future__ import annotations

import json
from pathlib import Path
from zipfile import ZipFile

import pytest

from benchmarks.recall import Asked, Tally, judged, tallies
from benchmarks.support import facts_test, facts_train
from benchmarks.support.dialogues import dialogue_sets
from benchmarks.support.fact_forms import NEARNESS, FactForm
from benchmarks.support.recall_set import STRATA, Question, make_set
from projections.events.types import MessageEvent
from projections.memory.identity import Scope
from projections.memory.raw_turns import Turn
from projections.memory.recall import Recalled
from projections.memory.words import stems_of

FORMS = [*facts_train.FORMS, *facts_test.FORMS]


@pytest.mark.parametrize("form", FORMS, ids=lambda form: form.asked[0])
def test_questions_share_as_much_with_the_statement_as_they_claim(form: FactForm) -> None:
    assert len(set(form.values)) == len(form.values) >= 5
    for wording in range(3):
        said = {stem for value in form.values for stem in stems_of(form.statement(wording, value))}
        shared, synonyms, unshared = (
            said.intersection(stems_of(form.question(nearness))) for nearness in range(3)
        )
        assert shared and not unshared and len(synonyms) <= 1
        for value in form.values:
            asked = " ".join(form.question(nearness) for nearness in range(3))
            assert value.lower() not in asked.lower().split()


def test_the_parts_share_no_form() -> None:
    statements = [said for form in FORMS for said in form.said]
    assert len(set(statements)) == len(statements)


def test_each_fact_is_asked_three_times_and_twins_stand_where_they_should() -> None:
    made = make_set("train", 4)
    assert made.facts == 4 * len(STRATA)
    asked = [one for one in made.questions if one.right]
    assert len(asked) == made.facts * len(NEARNESS)
    assert len(made.questions) - len(asked) == made.facts
    for one in asked:
        assert len(one.right) == 1
        assert len(one.former) == (one.stratum in ("update", "correction"))
        assert len(one.forbidden) == (one.stratum in ("tenant", "rolled_back"))
    assert [one.text for one in make_set("train", 4).questions] == [
        one.text for one in made.questions
    ]


async def test_a_small_set_is_found_and_nothing_leaks() -> None:
    sides = await tallies(make_set("train", 6), meaning=False)
    fused = sides["fused"]
    assert fused.leaked == 0
    assert fused.stale < sides["text"].stale
    assert fused.mrr > sides["text"].mrr
    for name, alone in sides.items():
        assert fused.recall >= alone.recall, name


def test_an_answer_behind_the_fifth_result_counts_for_the_mean_rank_alone() -> None:
    asked = Question("u", "q", "fact", "shared", frozenset(["0-1"]))
    tally = Tally(
        [
            Asked(asked, 1, 1.0, leaked=False, stale=False, background=True),
            Asked(asked, 8, 0.0, leaked=True, stale=False, background=False),
        ]
    )
    assert tally.recall == 0.5 and tally.mrr == (1 + 1 / 8) / 2 and tally.leaked == 1


@pytest.mark.parametrize("name", ["talks.zip", "talks.json"])
def test_dialogues_of_a_file_become_sets_of_their_own(tmp_path: Path, name: str) -> None:
    said = {"speaker": "Ann", "dia_id": "D1:1", "text": "My cat is called Tom."}
    shown = {"speaker": "Ben", "dia_id": "D1:2", "text": "Look!", "blip_caption": "a red canoe"}
    asked = [
        {"question": "Who is Tom?", "evidence": ["D1:1; D1:2"], "category": 4},
        {"question": "Who is Eve?", "evidence": [], "category": 5},
    ]
    talk = {
        "session_1": [said, shown],
        "session_1_date_time": "12:09 am on 13 September, 2023",
        "session_2_date_time": "12:09 am on 14 September, 2023",
        "qa": asked,
    }
    content = json.dumps([talk, talk])
    if name.endswith(".zip"):
        with ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("1.json", content)
    else:
        (tmp_path / name).write_text(content)
    first, second = dialogue_sets(tmp_path / name)
    assert first.turns == second.turns == 2
    assert first.asked_at.isoformat() == "2023-09-14T00:09:00+00:00"
    assert [(one.text, len(one.right)) for one in first.questions] == [("Who is Tom?", 2)]
    messages = [one.event.data for one in first.said if isinstance(one.event, MessageEvent)]
    assert [(one.name, one.content) for one in messages] == [
        ("Ann", "My cat is called Tom."),
        ("Ben", "Look!\na red canoe"),
    ]


def test_half_of_what_answers_a_question_is_half_of_its_recall() -> None:
    asked = Question("u", "q", "4", "4", frozenset(["0-1", "0-9"]))
    scope = Scope("acme", "u")
    turn = Turn(scope, "c", "0-1", "user", "Ann", "My cat is called Tom.", 0)
    assert judged(asked, [Recalled(turn)]).share == 0.5


def test_an_answer_behind_the_tenth_result_has_a_rank_where_all_results_are_judged() -> None:
    asked = Question("u", "q", "4", "4", frozenset(["0-11"]))
    scope = Scope("acme", "u")
    found = [
        Recalled(Turn(scope, "c", f"0-{n}", "user", "Ann", "Tom is a cat.", 0))
        for n in range(1, 13)
    ]
    assert (judged(asked, found).rank, judged(asked, found, 100).rank) == (0, 11)
