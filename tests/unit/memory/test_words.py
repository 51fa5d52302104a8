"""Which words a text is found by."""

from __future__ import annotations

import sqlite3
import sys
import time
import unicodedata

import pytest

from projections.memory.identity import normalize
from projections.memory.words import date_words, stem, stems_of, words_of

WORDS = (
    "caresses ponies ties caress cats feed agreed plastered bled motoring sing conflated troubled"
    " sized hopping tanned falling hissing fizzed failing filing happy sky relational conditional"
    " rational digitizer radically differently vietnamization predication operator feudalism"
    " decisiveness hopefulness callousness formality sensitivity triplicate formative formalize"
    " electrical hopeful goodness revival allowance inference airliner gyroscopic adjustable"
    " defensible irritant replacement adjustment dependent adoption communism activate homologous"
    " effective bowdlerize probate rate cease controlling rolls generalizations oscillators"
    " drinks drinking preferred allergies meeting moved moving living yes holidays apologies"
    " argument station nation vision decision discussion onion incredibly wobbly terribly"
    " technology assembly x1 be b say saying owned owning using used agreeing trees"
)


def test_stems_are_those_of_the_full_text_index_of_sqlite() -> None:
    db = sqlite3.connect(":memory:")
    db.execute("CREATE VIRTUAL TABLE words USING fts5 (word, tokenize = 'porter ascii')")
    db.execute("CREATE VIRTUAL TABLE places USING fts5vocab (words, 'instance')")
    words = WORDS.split()
    db.executemany("INSERT INTO words (rowid, word) VALUES (?, ?)", enumerate(words))
    theirs = dict(db.execute("SELECT doc, term FROM places"))
    assert {word: stem(word) for word in words} == {
        word: theirs[number] for number, word in enumerate(words)
    }


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("It's 5 o'clock: TEA!", ["it", "s", "5", "o", "clock", "tea"]),
        ("Café crème, Ærø", ["cafe", "creme", "ærø"]),
        ("北京大学 2024", ["北京", "京大", "大学", "2024"]),
        ("茶", ["茶"]),
        ("<<>> …", []),
    ],
)
def test_words_are_letters_and_digits_without_case_and_accents(text: str, words: list[str]) -> None:
    assert words_of(text) == words


def test_words_that_say_nothing_are_left_out() -> None:
    assert stems_of("What does she like to drink in the mornings?") == ["like", "drink", "morn"]


@pytest.mark.parametrize("blank", [" ", "\n", ", ", "\u2003", " 茶"])
def test_a_long_text_has_the_words_of_its_parts(blank: str) -> None:
    said = [f"Café{i} meetings" for i in range(3_000)]
    whole = blank.join(said)
    assert len(whole) > 3 * 16_384
    assert stems_of(whole) == [stem_ for one in blank.join(said).split() for stem_ in stems_of(one)]


def test_a_day_is_found_by_its_year_month_and_day() -> None:
    assert date_words("2024-06-03T10:00:00Z") == "2024 june 3"


@pytest.mark.parametrize(
    "marks", ["\u0315\u0327", "\u0f73", "\uff9e\u0315", "\u0315" * 99 + "\u0327" * 99]
)
def test_the_words_of_a_letter_with_thousands_of_marks_are_found_in_time(marks: str) -> None:
    text = ("a" + marks * 100_000)[:100_000]
    begun = time.thread_time()
    assert words_of(text)[0].startswith("a")
    assert normalize(text).startswith("a")
    assert time.thread_time() - begun < 1


def test_thirty_marks_of_a_letter_count_and_more_do_not() -> None:
    most = "a" + "\u0301\u0327" * 15
    assert normalize(most + "\u0301" * 9) == normalize(most) != normalize(most[:-1])


def test_all_marks_of_unicode_are_bounded() -> None:
    unbounded = [
        hex(code)
        for code in range(sys.maxunicode + 1)
        if unicodedata.combining(unicodedata.normalize("NFKD", chr(code))[0])
        and len(normalize("a" + chr(code) * 400)) > 200
    ]
    assert unbounded == []


def test_a_text_of_signs_that_stand_for_many_letters_has_no_more_words_than_letters() -> None:
    assert words_of("\ufdfa")[0].startswith("صل") and len("".join(words_of("\ufdfa"))) > 14
    assert len(words_of("\ufdfa" * 8_000)) < 16_000
    assert len(normalize("\ufdfa" * 8_000)) < 20_000
