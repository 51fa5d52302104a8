"""What a text's fields, the turn before it, its session and its speaker are worth for a question."""

from __future__ import annotations

from projections.memory.text_scores import Corpus, Place, text_scores

CORPUS = Corpus(100, 1_000)
Found = dict[str, list[tuple[int, str]]]


def place(number: int, session: str = "", before: int | None = None, speaker: str = "") -> Place:
    return Place(number, 10, session, before, frozenset([speaker] if speaker else []))


def scores(found: Found, *places: Place) -> dict[int, float]:
    having = {stem: len({number for number, _ in at}) for stem, at in found.items()}
    sessions = {one.session: 10 for one in places}
    made = text_scores(CORPUS, having, found, {one.number: one for one in places}, sessions)
    return {one.number: one.score for one in made}


def test_a_word_counts_most_in_the_text_less_in_the_turn_before_and_in_words_of_the_day() -> None:
    found: Found = {"tea": [(1, "text"), (3, "dates"), (4, "speaker"), (5, "tags")]}
    places = (place(1), place(2, before=1), place(3), place(4), place(5))
    made = scores(found, *places)
    assert made[1] == made[4] == made[5] > made[3] > made[2] > 0
    assert next(iter(made)) == 1, "best first"


def test_a_text_counts_more_where_its_session_has_the_word_too() -> None:
    found: Found = {"tea": [(1, "text"), (2, "text")]}
    together = scores(found, place(1, "a"), place(2, "a"), place(3, "b"))
    apart = scores(found, place(1, "a"), place(2, "b"), place(3, "b"))
    nowhere = scores(found, place(1), place(2), place(3))
    assert together[1] > apart[1] > nowhere[1]


def test_a_speaker_whom_the_question_names_adds_a_fifth_of_the_best() -> None:
    found: Found = {"tea": [(1, "text"), (2, "text")], "ida": []}
    made = scores(found, place(1), place(2, speaker="ida"))
    plain = scores(found, place(1), place(2))
    assert made[1] == plain[1] == plain[2]
    assert round(made[2] / made[1], 6) == 1.2


def test_a_rare_word_and_more_of_the_words_count_more() -> None:
    found: Found = {
        "tea": [(1, "text"), (3, "text")],
        "often": [(n, "text") for n in range(2, 40)],
    }
    made = scores(found, *(place(n) for n in range(1, 40)))
    assert made[3] > made[1] > made[2]
