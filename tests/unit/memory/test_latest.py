"""What a later statement corrects: what is much alike, and more where it says that it corrects."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from projections.memory.identity import Scope, normalize
from projections.memory.latest import LONG, corrections, statement
from projections.memory.planner import ActionState, make_plan
from projections.memory.raw_turns import Turn
from projections.memory.recall import (
    Recalled,
    best_statements,
    correcting,
    joined,
    other_statements,
    scored,
)
from projections.memory.resolution import Record
from projections.memory.words import stems_of
from projections.policy.recall_weights import RecallWeights

MINUTE, DAY = 60_000_000, 86_400_000_000
NOW = 20_000 * DAY
SCOPE = Scope("acme", "ann")


def turn(text: str, number: int, at: int, conversation: str = "c1", speaker: str = "user") -> Turn:
    return Turn(SCOPE, conversation, f"0-{number}", "user", speaker, text, at)


def corrected(earlier: Turn, later: Turn, query: str) -> bool:
    said = [statement(n, one) for n, one in enumerate((earlier, later))]
    found = corrections([one for one in said if one is not None], stems_of(query))
    return set(found) == {(1, 0)}


@pytest.mark.parametrize(
    "later",
    [
        "Nowadays a bicycle takes me to the office.",
        "A bicycle takes me to the office now.",
        "Since March it is the bicycle that gets me to the office.",
        "For two years I have gone to the office by bicycle.",
    ],
)
def test_what_says_that_it_holds_since_lately_needs_one_telling_word_in_common(later: str) -> None:
    before = turn("The tram is how I usually reach my office in winter.", 1, NOW - 9 * DAY)
    assert corrected(before, turn(later, 2, NOW), "How does she commute?")
    plain = "A bicycle takes me to the office."
    assert not corrected(before, turn(plain, 2, NOW), "How does she commute?")


def test_a_speakers_name_is_nothing_that_two_statements_have_in_common() -> None:
    query = "What does Caroline love?"
    lately = turn("Lately I sleep badly.", 2, NOW, speaker="Caroline")
    assert not corrected(turn("I love art.", 1, NOW - DAY, speaker="Caroline"), lately, query)
    learnt = statement(0, record("Caroline loves art.", NOW - DAY, "0-1"))
    assert learnt is not None and (said := statement(1, lately)) is not None
    assert corrections([learnt, said], stems_of(query)) == []
    changed = turn("Lately I love music.", 2, NOW, speaker="Caroline")
    assert corrected(turn("I love art.", 1, NOW - DAY, speaker="Caroline"), changed, query)


def test_a_change_corrects_what_answers_the_same_question_in_other_words() -> None:
    before = turn("I collect stamps.", 1, NOW - 9 * DAY)
    after = turn("By now my hobby is pottery.", 2, NOW)
    assert corrected(before, after, "What is her hobby, what does she collect?")
    assert not corrected(before, after, "What does she collect?")


def test_a_long_turn_that_returns_to_a_subject_corrects_nothing_that_answers_better() -> None:
    before = turn(
        "Painting the desert is a great way to relax, I began after a friend gave me brushes.",
        1,
        NOW - 9 * DAY,
    )
    lately = (
        "Last week I was painting a cactus and lizards in the desert, a great way to rest a bit."
    )
    after = turn(lately, 2, NOW)
    assert not corrected(before, after, "Who gave her the brushes?")
    assert corrected(before, after, "What is she painting?")


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("I don't see any patients on Fridays.", "Since March I never see people on Tuesdays."),
        ("People look at the garden in June.", "By now they look here in August alone."),
    ],
)
def test_where_something_changes_a_weekday_or_month_stands_for_another(
    before: str, after: str
) -> None:
    former = turn(before, 1, NOW - 9 * DAY)
    assert corrected(former, turn(after, 2, NOW), "Any consultations?")
    plain = after.removeprefix("Since March ").removeprefix("By now ")
    assert not corrected(former, turn(plain, 2, NOW), "Any consultations?")
    other = "Nowadays I go running on Tuesdays and in August."
    assert not corrected(former, turn(other, 2, NOW), "Any consultations?")


def test_of_a_long_text_the_beginning_is_what_it_states() -> None:
    text = "My parcel is late. " + "lorem ipsum " * LONG + "It went to Oslo."
    stated = statement(0, turn(text, 1, 1))
    assert stated is not None
    assert "parcel" in stated.stems and "oslo" not in stated.stems


def test_to_deny_something_is_nothing_that_two_statements_have_in_common() -> None:
    former = turn("I don't eat fish.", 1, NOW - 9 * DAY)
    assert not corrected(former, turn("By now I don't drive.", 2, NOW), "What does she avoid?")


@pytest.mark.parametrize(
    "lead", ["Correction:", "Sorry, I was wrong,", "No wait, I made a mistake:", "Oops, my bad."]
)
def test_a_correction_is_of_what_the_same_speaker_said_right_before(lead: str) -> None:
    before = turn("Gate twelve.", 1, NOW - MINUTE)
    after = turn(f"{lead} nineteen", 2, NOW)
    assert corrected(before, after, "Where does the plane leave?")
    assert not corrected(before, turn("Nineteen", 2, NOW), "Where does the plane leave?")
    assert not corrected(before, turn(after.text, 2, NOW, "c2"), "Where does the plane leave?")
    assert not corrected(before, turn(after.text, 2, NOW + DAY), "Where does the plane leave?")
    ida = turn(before.text, 1, NOW - MINUTE, speaker="Ida")
    eve = turn(after.text, 2, NOW, speaker="Eve")
    assert not corrected(ida, eve, "Where does the plane leave?")


def record(text: str, at: int, position: str) -> Record:
    return Record(
        id=text,
        kind="record",
        scope=SCOPE,
        type="fact",
        text=text,
        normalized_text=normalize(text),
        trust="user",
        created=at,
        confirmed_at=at,
        conversation="c1",
        positions=[position],
    )


def test_a_record_changes_what_the_words_that_taught_it_say_has_changed() -> None:
    plan = make_plan(ActionState(query="Which music do I love?", now=NOW))
    old = record("The user loves fado music.", NOW - 9 * DAY, "0-1")
    new = record("The user listens to techno music.", NOW, "0-2")
    said = turn("By now I listen to techno music.", 2, NOW)

    def first(*turns: Turn) -> str:
        hits = [Recalled(old, 0.9), Recalled(new, 0.2), *(Recalled(one, 0.2) for one in turns)]
        return scored(joined([("text", hits)]), plan, RecallWeights(), NOW)[0].id

    assert first() == old.id
    assert first(said) == new.id


def test_a_record_is_not_corrected_by_what_another_sentence_of_its_turn_is_about() -> None:
    asked = "What is my sister's name?"
    taught_by = turn("Yesterday I visited Porto. My sister's name is Clara.", 1, NOW - DAY)
    clara = record("The user's sister's name is Clara.", NOW - DAY, taught_by.position)
    moved = turn("I live in Porto now.", 2, NOW, "c2")
    plan = make_plan(ActionState(query=asked, now=NOW))
    hits = [Recalled(clara, 0.9), Recalled(taught_by, 0.8), Recalled(moved, 0.2)]
    found = scored(joined([("text", hits)]), plan, RecallWeights(), NOW)
    assert [one.found for one in found] == [clara, moved]
    renamed = turn("My sister is called Chiara now.", 2, NOW, "c2")
    hits[2] = Recalled(renamed, 0.2)
    found = scored(joined([("text", hits)]), plan, RecallWeights(), NOW)
    assert [one.found for one in found] == [renamed, clara]


def test_what_a_model_saved_takes_back_what_a_model_saved_and_nothing_that_a_user_said() -> None:
    def saved(text: str, at: int, trust: str, origin: str = "explicit") -> Record:
        return replace(record(text, at, "0-1"), trust=trust, origin=origin, positions=[])

    def first(former: Record, later: Record) -> str:
        hits = [Recalled(former, 0.9), Recalled(later, 0.8)]
        plan = make_plan(ActionState(query="Which tea does she like?", now=NOW))
        return scored(joined([("text", hits)]), plan, RecallWeights(), NOW)[0].found.text

    old, new = "These days she likes oolong tea.", "These days she likes sencha tea."
    noted = saved(new, NOW - 8 * DAY, "model")
    assert first(saved(old, NOW - 9 * DAY, "model"), noted) == new
    assert first(saved(old, NOW - 9 * DAY, "user"), noted) == old
    assert first(saved(old, NOW - 9 * DAY, "model"), saved(new, NOW - 8 * DAY, "user")) == new
    # What an assistant did is no statement of the user.
    done = saved(new, NOW - 8 * DAY, "model", "rules")
    assert first(saved(old, NOW - 9 * DAY, "model"), done) == old


def test_what_corrects_the_best_is_found_by_its_words_and_is_as_relevant() -> None:
    plan = make_plan(ActionState(query="Who is the opponent in that game?", now=NOW))
    before = Recalled(turn("I see the game against Badgers on Sunday.", 1, NOW - DAY), 0.8, 0.7)
    after = turn("As of this month we play against Otters on Sunday.", 2, NOW, "c2")
    other = turn("Sunday was rainy.", 3, NOW, "c2")
    channels = [("text", [before])]
    assert best_statements(channels) == [before]
    later = correcting([before], [Recalled(after), Recalled(other)], plan)
    assert [one.found for one in later] == [after]
    found = scored(joined([*channels, ("text", later)]), plan, RecallWeights(), NOW)
    assert [(one.found, one.relevance) for one in found] == [(after, 0.7), (before.found, 0.7)]


def test_what_says_that_it_changes_alone_is_looked_for() -> None:
    plan = make_plan(ActionState(query="Which scenery?", now=NOW))
    best = Recalled(turn("The scenery is lovely.", 1, NOW - 9 * DAY), 0.9)
    shown = Recalled(turn("My favourite holidays are by the sea.", 2, NOW - 8 * DAY), 0.1)
    changed = Recalled(turn("By now I go to the hills on holidays.", 3, NOW, "c2"))
    alike = Recalled(turn("My favourite holidays end with a barbecue.", 4, NOW, "c2"))
    stated = [best, *other_statements([best, shown], [best])]
    found = correcting(stated, [changed, alike], plan)
    assert [one.found for one in found] == [changed.found]


def test_what_only_is_alike_corrects_what_it_fits_nearly_as_well_as() -> None:
    asked = "When does the choir rehearse?"
    plan = make_plan(ActionState(query=asked, now=NOW))
    before = turn("The choir rehearses on Monday evenings.", 1, NOW - 9 * DAY)
    after = turn("The choir rehearses on Friday evenings.", 2, NOW, "c2")
    changed = turn("By now the choir rehearses on Friday evenings.", 2, NOW, "c2")

    def order(later: Turn, fit: float, cosine: float | None = None) -> list[object]:
        hits = [Recalled(before, 0.9, cosine=0.8), Recalled(later, fit, cosine=cosine)]
        found = scored(joined([("text", hits)]), plan, RecallWeights(), NOW)
        return [one.found for one in found]

    assert order(after, 0.8, 0.7) == [after, before]
    assert order(after, 0.1, 0.7) == [before, after]
    assert order(changed, 0.1, 0.7) == [changed, before]
    assert order(changed, 0.1, 0.3) == [before, changed]
    assert order(changed, 0.1) == [changed, before]
