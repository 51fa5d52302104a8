"""What changes in the texts of records, and in their index of words."""

from __future__ import annotations

import sqlite3
from collections import defaultdict
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from streams.memory.word_index import Text, add_texts, decode_scope, remove_texts

_encode = msgspec.json.Encoder().encode


class RecordText(NamedTuple):
    """What the index has of a fact: its text, the log that it was said in, words of its date, who
    said it, and its tags.
    """

    text: str
    session: str
    dates: str
    speaker: str
    tags: str


class TextsOf(NamedTuple):
    """The texts that a record has now, each once. ``known``: whether it may have had others."""

    record: int
    scope: str
    """As it is stored."""
    known: bool
    texts: list[RecordText]


def change_texts(db: sqlite3.Connection, changes: Sequence[TextsOf]) -> None:
    """Bring texts and index up to date, within a transaction."""
    known = _known(db, [one.record for one in changes if one.known])
    gone: list[int] = []
    new: list[Text] = []
    (following,) = db.execute("SELECT coalesce(max(number), 0) + 1 FROM texts").fetchone()
    for record, scope, _, texts in changes:
        before = known.get(record, {})
        if before:
            now = {one.text: one for one in texts}
            gone += [number for text, (number, was) in before.items() if now.get(text) != was]
        for one in texts:
            number, was = before.get(one.text, (None, None))
            if one == was:
                continue
            if number is None:
                number, following = following, following + 1
            text, session, dates, speaker, tags = one
            row = number, record, decode_scope(scope), session, text, dates, speaker, tags
            new.append(Text(*row))
    remove_texts(db, gone)
    add_texts(db, new)


def _known(
    db: sqlite3.Connection, records: Sequence[int]
) -> dict[int, dict[str, tuple[int, RecordText]]]:
    """The numbers of records' texts, and what the index has of them."""
    found: defaultdict[int, dict[str, tuple[int, RecordText]]] = defaultdict(dict)
    if records:
        for record, number, text, *more in db.execute(
            "SELECT owner, number, text, session, dates, speaker, tags FROM texts"
            " WHERE owner IN (SELECT value FROM json_each(?))",
            (_encode(records).decode(),),
        ):
            found[record][text] = number, RecordText(text, *more)
    return found
