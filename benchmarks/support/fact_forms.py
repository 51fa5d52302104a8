"""How a planted fact is said and asked: the form that both parts of figure `recall`'s set have.

A part is a module of forms (``facts_train``, ``facts_test``). Rules and weights are tuned on the
first alone; the second was written before the first measurement.
"""

from __future__ import annotations

from typing import NamedTuple

NEARNESS = ("shared", "synonyms", "unshared")
"""What a form's three questions have in common with what was said: its words, other words for the
same, no word at all.
"""


class FactForm(NamedTuple):
    """A fact in three wordings, asked in three ways, with values it may have.

    ``said`` has ``{v}`` where the value stands. ``asked`` is by :data:`NEARNESS`; it may have
    ``{who}``, ``{whom}``, ``{whose}``, ``{do}`` and ``{is}`` for the person it is about.
    """

    kind: str
    said: tuple[str, str, str]
    asked: tuple[str, str, str]
    values: tuple[str, ...]

    def statement(self, wording: int, value: str) -> str:
        """What somebody says of themselves."""
        text = self.said[wording % len(self.said)].format(v=value)
        return text[0].upper() + text[1:]

    def question(self, nearness: int, name: str | None = None) -> str:
        """What is asked: by the user about themselves, or about somebody by name."""
        if name is None:
            words = {"who": "I", "whom": "me", "whose": "my", "do": "do", "is": "am"}
        else:
            words = {"who": name, "whom": name, "whose": f"{name}'s", "do": "does", "is": "is"}
        return self.asked[nearness].format(**words)


def forms(table: str) -> tuple[FactForm, ...]:
    """The forms of a table: blocks of a kind, three statements, three questions and the values,
    each on a line of its own.
    """
    found = []
    for block in table.strip().split("\n\n"):
        kind, *lines, values = block.split("\n")
        if len(lines) != 6:
            raise ValueError(f"not three statements and three questions: {block}")
        one, two, three, *asked = lines
        shared, synonyms, unshared = asked
        found.append(
            FactForm(
                kind,
                (one, two, three),
                (shared, synonyms, unshared),
                tuple(value.strip() for value in values.split(",")),
            )
        )
    return tuple(found)
