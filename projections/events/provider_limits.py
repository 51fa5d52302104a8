"""What every provider takes for ids and names: a conversation must not be poisoned for ever by one
that they refuse.

The log and the window's pairing keep what was said; only the messages that a model is sent are
mapped. OpenAI wants call ids unique within a message and of 40 characters at most, function names
of 1-64 letters, digits, ``_`` and ``-``, and authors without blanks and ``< | \\ / >``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from hashlib import sha256

_FUNCTION = re.compile(r"[^A-Za-z0-9_-]")
_AUTHOR = re.compile(r"[\s<|\\/>]")
_LONGEST = 64
LONGEST_ID = 40
"""Characters of a call's id that OpenAI takes."""


def function_name(name: str) -> str:
    """A tool's name as it may be sent."""
    return (
        _FUNCTION.sub("_", name)[:_LONGEST]
        if len(name) > _LONGEST or _FUNCTION.search(name)
        else name
    )


def author_name(name: str) -> str:
    """An author's name as it may be sent."""
    return (
        _AUTHOR.sub("_", name)[:_LONGEST] if len(name) > _LONGEST or _AUTHOR.search(name) else name
    )


def _short(call_id: str) -> str:
    """The beginning of a long id and 8 digits of its SHA-256; room is left for a number."""
    return f"{call_id[:26]}-{sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:8]}"


def call_ids(ids: Sequence[str]) -> list[str]:
    """The ids of one message's calls as they may be sent: unique, a repeated one is numbered
    (``ID-2``), and a long one is shortened.
    """
    ids = [_short(call_id) if len(call_id) > LONGEST_ID else call_id for call_id in ids]
    if len(set(ids)) == len(ids):
        return ids
    sent, taken = list[str](), set(ids)
    last: dict[str, int] = {}
    for call_id in ids:
        name, n = call_id, last.get(call_id, 0) + 1
        while n > 1 and (name := f"{call_id}-{n}") in taken:
            n += 1
        last[call_id] = n
        taken.add(name)
        sent.append(name)
    return sent
