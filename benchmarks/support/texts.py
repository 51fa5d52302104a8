"""Varied, natural-looking texts and the records they become: the same ones for the same seed.

Records are made by ``make_record`` once for each text; conversation, id and time are then put in their places in the bytes, because a
log of a million events should not take a minute of counting tokens before anything is measured.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

from projections.intake import Record, make_record
from projections.names import Key

TENANT = "acme"
NOW = "2026-01-01T00:00:00Z"
_NAME = "conversation-0000000"
_ID = "00000000-0000-7000-8000-000000000000"

_OPENINGS = (
    "Could you check whether",
    "I am not sure if",
    "We were told that",
    "Please look up why",
    "It seems that",
    "Yesterday I saw that",
    "Our records say that",
    "As far as I can tell,",
    "The driver wrote that",
    "Before we go on:",
    "Thanks! So",
    "Hm,",
)
_SUBJECTS = (
    "the parcel",
    "that invoice",
    "my second order",
    "the crate of glass",
    "our weekly delivery",
    "the blue suitcase",
    "the refund",
    "her birthday present",
    "the missing label",
    "the return shipment",
    "a pallet of paper",
    "the customs form",
)
_VERBS = (
    "left the depot in",
    "was scanned twice in",
    "is still waiting in",
    "should arrive in",
    "was sent back to",
    "got stuck near",
    "has been weighed again in",
    "was signed for in",
    "went missing between the office and",
    "is insured as far as",
)
_PLACES = (
    "Turku",
    "Gdańsk",
    "Riga",
    "Bergen",
    "Kiel",
    "Tallinn",
    "Aarhus",
    "Malmö",
    "Rostock",
    "Oulu",
    "Stavanger",
    "Klaipėda",
)
_ENDS = (
    "on Tuesday afternoon.",
    "before the weekend, I hope.",
    "and nobody can say why?",
    "after the storm had passed.",
    "for 14.90 euros.",
    "because the address lacked a number.",
    "with order number",
    "as was agreed on the phone.",
    "at a quarter past nine.",
    "which is two days late already.",
)


def sentence(rng: random.Random) -> str:
    """One sentence of about 75 characters."""
    end = rng.choice(_ENDS)
    number = f" {rng.randrange(10_000, 99_999)}." if end.endswith("number") else ""
    return f"{rng.choice(_OPENINGS)} {rng.choice(_SUBJECTS)} {rng.choice(_VERBS)} {rng.choice(_PLACES)} {end}{number}"


def text(rng: random.Random, characters: int) -> str:
    """Sentences of about ``characters`` characters together."""
    parts: list[str] = []
    size = 0
    while size < characters - 35:
        parts.append(sentence(rng))
        size += len(parts[-1]) + 1
    return " ".join(parts)


class Template:
    """One event's bytes with places for conversation and id."""

    def __init__(self, flat: dict[str, Any]) -> None:
        record = make_record(Key(TENANT, _NAME), flat, where="benchmark", now=NOW, new_id=_ID)
        before, after = record.value.split(_ID.encode())
        between, rest = after.split(_NAME.encode())
        self._parts = (before, between, rest)
        self.type = record.type

    def record(self, key: Key, number: int) -> Record:
        """The record of event ``number`` in a conversation named by :func:`conversation`; ids differ by number."""
        id_ = f"{number >> 48:08x}-{number >> 32 & 0xFFFF:04x}-7000-8000-{number & 0xFFFFFFFF:012x}"
        before, between, rest = self._parts
        return Record(key, id_, self.type, b"".join((before, id_.encode(), between, key.conversation.encode(), rest)))


def conversation(number: int) -> Key:
    """The conversation of a number; every name has the same length."""
    return Key(TENANT, f"conversation-{number:07}")


class Messages:
    """Message events of users and assistants in turn, of about ``characters`` characters of text (164: an event of about 470 bytes)."""

    def __init__(self, characters: int = 164, texts: int = 4000, seed: int = 1) -> None:
        rng = random.Random(seed)
        self.texts = [text(rng, round(characters * rng.uniform(0.5, 1.5))) for _ in range(texts)]
        roles = ("user", "assistant")
        self._made = [[Template({"type": "message", "role": role, "content": body}) for body in self.texts] for role in roles]

    def template(self, turn: int, place: int) -> Template:
        """What conversation ``place`` says in a turn: users speak in even ones, assistants in odd ones."""
        templates = self._made[turn % 2]
        return templates[(place * 7919 + turn) % len(templates)]

    def record(self, number: int, conversations: int) -> Record:
        """Event ``number`` of a log in which the conversations take turns."""
        turn, place = divmod(number, conversations)
        return self.template(turn, place).record(conversation(place), number)

    def records(self, first: int, last: int, conversations: int) -> Iterator[Record]:
        """Events ``first`` up to, not including, ``last``."""
        for number in range(first, last):
            yield self.record(number, conversations)
