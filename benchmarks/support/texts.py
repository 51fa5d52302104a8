"""Real chat text and the records it becomes: the same for the same seed.

The text is what people wrote to each other (the chitchat dataset, as in the demo), because made-up
sentences compress far better than what people say, and Kafka's and our own compression would look
better than they are. Records are made by ``make_record`` once for each text; conversation and id
are then put in their places in the bytes, because a log of a million events should not take a
minute of counting tokens before anything is measured.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from functools import cache
from typing import Any

from projections.events.types import MemorySaved
from projections.events.validation import Record, make_record
from projections.memory.identity import id_of, normalize
from projections.names import Key
from threadfold.demo.sources import load_sessions

TENANT = "acme"
NOW = "2026-01-01T00:00:00Z"
_NAME = "conversation-0000000"
_ID = "00000000-0000-7000-8000-000000000000"

MEAN = 24
"""Half of a chat message's characters: what a text is over or under its length by, for it ends with
a whole message.
"""


@cache
def _chat() -> tuple[str, ...]:
    """What people wrote in the chitchat dataset, message by message, in the order of their
    times.
    """
    return tuple(
        message.text
        for session in load_sessions()
        for turn in session.messages
        for message in turn
        if message.text.strip()
    )


def text(rng: random.Random, characters: int) -> str:
    """Real chat of about ``characters`` characters: messages that followed one another, from a
    random place on.
    """
    chat = _chat()
    at = rng.randrange(len(chat))
    parts: list[str] = []
    size = 0
    while size < characters - MEAN:
        parts.append(chat[at % len(chat)])
        size += len(parts[-1]) + 1
        at += 1
    return " ".join(parts)


def memory(rng: random.Random, log: Key, user: str, number: int) -> MemorySaved:
    """An accepted memory of a user, taught by a log: real chat behind a number, so that it is no
    other's.
    """
    said = f"{number}: {text(rng, 80)}"
    data = MemorySaved(
        memory_id="",
        memory_type="fact",
        text=said,
        normalized_text=normalize(said),
        trust="user",
        role="user",
        user=user,
    )
    data.memory_id = id_of(log, data) or ""
    return data


class Template:
    """One event's bytes with places for conversation and id."""

    def __init__(self, flat: dict[str, Any], tenant: str = TENANT) -> None:
        record = make_record(Key(tenant, _NAME), flat, where="benchmark", now=NOW, new_id=_ID)
        before, after = record.value.split(_ID.encode())
        between, rest = after.split(_NAME.encode())
        self._parts = (before, between, rest)
        self.type = record.type

    def record(self, key: Key, number: int) -> Record:
        """The record of event ``number`` in a conversation named by :func:`conversation`; ids
        differ by number.
        """
        id_ = f"{number >> 48:08x}-{number >> 32 & 0xFFFF:04x}-7000-8000-{number & 0xFFFFFFFF:012x}"
        before, between, rest = self._parts
        return Record(
            key,
            id_,
            self.type,
            b"".join((before, id_.encode(), between, key.conversation.encode(), rest)),
        )


def conversation(number: int) -> Key:
    """The conversation of a number; every name has the same length."""
    return Key(TENANT, f"conversation-{number:07}")


class Messages:
    """Message events of users and assistants in turn, of about ``characters`` characters of text
    (164: an event of about 470 bytes).
    """

    def __init__(self, characters: int = 164, texts: int = 4000, seed: int = 1) -> None:
        rng = random.Random(seed)
        self.texts = [text(rng, round(characters * rng.uniform(0.5, 1.5))) for _ in range(texts)]
        roles = ("user", "assistant")
        self._made = [
            [Template({"type": "message", "role": role, "content": body}) for body in self.texts]
            for role in roles
        ]

    def template(self, turn: int, place: int) -> Template:
        """What conversation ``place`` says in a turn: users speak in even ones, assistants in odd
        ones.
        """
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
