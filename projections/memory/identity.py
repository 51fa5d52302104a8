"""Which record a text is: its scope and its normalised text, hashed.

The same words of the same user are one record, wherever and however often they are said. Nothing
here looks at a clock or a store, so every process names a record alike.
"""

from __future__ import annotations

import re
import unicodedata
from hashlib import sha256
from typing import NamedTuple

import msgspec

from projections.events.memories import Learnt, MemoryFused, MemorySaved, SkillSaved
from projections.names import Key

_ASCII = re.compile("[a-z0-9]+")


class Scope(NamedTuple):
    """Whose a record is. Records of different scopes never meet.

    ``conversation`` is None but for what an anonymous conversation taught, which nobody else may
    see.
    """

    tenant: str
    user: str | None = None
    channel: str | None = None
    conversation: str | None = None


def scope_of(key: Key, user: str | None, channel: str | None) -> Scope:
    """The scope of what a log teaches of a user in a channel."""
    anonymous = user is None and not key.of_user
    return Scope(key.tenant, user, channel, key.conversation if anonymous else None)


def normalize(text: str) -> str:
    """A text without what makes no difference: case, punctuation, blanks, forms of letters."""
    if text.isascii():
        return " ".join(_ASCII.findall(text.lower()))
    folded = unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).casefold())
    letters = "".join(c if c.isalnum() or unicodedata.combining(c) else " " for c in folded)
    return " ".join(letters.split())


def memory_id(scope: Scope, kind: str, name: str) -> str:
    """The id of a record: 64 hex digits of a SHA-256.

    Args:
        kind: ``record``, ``topic``, ``composite`` or ``skill``.
        name: the normalised text, or the topic.
    """
    return sha256(msgspec.json.encode([kind, *scope, name])).hexdigest()


def id_of(key: Key, data: Learnt) -> str | None:
    """The id that an event of a log has to give its record; None for one that only names another's.

    The event's own ``normalized_text`` counts: tables of letters differ between versions of Python.
    """
    scope = scope_of(key, data.user, data.channel)
    if isinstance(data, MemoryFused):
        return memory_id(scope, "composite", data.normalized_text)
    if isinstance(data, MemorySaved):
        if data.topic is not None:
            return memory_id(scope, "topic", data.topic)
        return memory_id(scope, "record", data.normalized_text)
    if isinstance(data, SkillSaved):
        return memory_id(scope, "skill", data.normalized_text)
    return None
