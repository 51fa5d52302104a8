"""A search finds what was said last, also by words that its question does not have."""

from __future__ import annotations

from typing import Any

import pytest

from projections.events import types as events
from projections.names import Key, Position
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store import Filter
from streams.memory.turns import Said, SqliteTurns
from threadfold.service.question import Question
from threadfold.service.recall import Recall

DAY = 86_400_000_000
NOW = 20_000 * DAY
OLD, NEW = "I watch the game against Badgers on Sunday.", "This month we play Otters on Sunday."


def said(log: Key, offset: int, at: int, data: Any) -> Said:
    kind: Any = events.OpenedEvent if isinstance(data, events.Opened) else events.MessageEvent
    event = kind(specversion="1.0", id=f"e{offset}", source=log.source, data=data)
    return Said(log, Position(0, offset), at, event)


def talk(name: str, offset: int, at: int, user: str, *texts: str) -> list[Said]:
    log = Key("acme", name)
    lines = [events.Opened(user=user), *(events.Message("user", text) for text in texts)]
    return [said(log, offset + n, at + n * 60_000_000, data) for n, data in enumerate(lines)]


async def found(*talks: list[Said], query: str, user: str = "ann") -> list[str]:
    store, turns = SqliteMemories(), SqliteTurns()
    try:
        turns.apply([one for several in talks for one in several], {})
        only = Filter("acme", user=user, as_of=NOW)
        answer = await Recall(store, turns).ask(Question(only, query))
        return [one.found.text for one in answer.found]
    finally:
        store.close()
        turns.close()


async def test_a_later_value_is_found_though_it_has_no_word_of_the_question() -> None:
    before = talk("c1", 10, NOW - 9 * DAY, "ann", "It rains.", OLD)
    after = talk("c2", 20, NOW - DAY, "ann", NEW, "Otters live in rivers.")
    query = "Who is the opponent in that game?"
    assert await found(before, after, query=query) == [NEW, OLD]
    assert await found(before, query=query) == [OLD]


async def test_another_weekday_is_found_though_only_common_words_are_the_same() -> None:
    before = talk("c1", 10, NOW - 9 * DAY, "ann", "I don't see any patients on Fridays.")
    later = "Since March I never see people on Tuesdays."
    after = talk("c2", 20, NOW - DAY, "ann", later, "People see what they want.")
    assert (await found(before, after, query="Which day has no patients?"))[0] == later


async def test_what_is_shown_is_corrected_wherever_it_stands() -> None:
    asked = "Which sculpture, painting or fresco of the museum does she prefer?"
    better = [
        f"The museum has a sculpture, a painting and a fresco in hall {n}." for n in (1, 2, 3)
    ]
    before = talk("c1", 10, NOW - 9 * DAY, "ann", *better, "My favourite museum is the Prado.")
    later = "By now the Prado bores me."
    after = talk("c2", 20, NOW - DAY, "ann", later)
    answered = await found(before, after, query=asked)
    assert answered.index(later) + 1 == answered.index("My favourite museum is the Prado.")


async def test_a_correction_right_behind_it_is_found_though_they_share_no_word() -> None:
    texts = ("My flight leaves from gate twelve.", "Scratch that, it is nineteen")
    assert await found(talk("c1", 10, NOW - DAY, "ann", *texts), query="Which gate?") == [
        texts[1],
        texts[0],
    ]


@pytest.mark.parametrize("user", ["eve", "ida"])
async def test_nobody_elses_words_correct_anything(user: str) -> None:
    before = talk("c1", 10, NOW - 9 * DAY, "ann", OLD)
    after = talk("c2", 20, NOW - DAY, user, NEW)
    assert await found(before, after, query="Who is the opponent in that game?") == [OLD]
