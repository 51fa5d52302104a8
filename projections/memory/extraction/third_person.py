"""A clause in the first person, said of its speaker: "I like my job" becomes "The user likes their
job".
"""

from __future__ import annotations

import re

from projections.memory.extraction.hints import folded, has_any
from projections.memory.similarity import word_set

THE_USER = "The user"

_CONTRACTIONS = (
    (r"\bi'?m\b", "I am", ("im", "i'm")),
    (r"\b(i|we|you|they)'ve\b", r"\1 have", ("'ve",)),
    (r"\b(i|we|you|they|he|she|it)'ll\b", r"\1 will", ("'ll",)),
    (r"\b(i|we|you|they|he|she)'d better\b", r"\1 should", ("'d better",)),
    (r"\b(i|we|you|they|he|she)'d\b", r"\1 would", ("'d",)),
    (r"\b(we|you|they)'re\b", r"\1 are", ("'re",)),
    (r"\bcan'?t\b|\bcan not\b", "cannot", ("can't", "cant", "can not")),
    (r"\bwon'?t\b", "will not", ("won't", "wont")),
    (r"\bdon'?t\b", "do not", ("don't", "dont")),
    (
        r"\b(is|are|was|were|did|does|have|has|had|would|could|should|must)n'?t\b",
        r"\1 not",
        ("n't", "nt"),
    ),
    (r"\b(s?he|it|that|there)'s\b", r"\1 is", ("'s",)),
    (r"\blet'?s\b", "let us", ("let's", "lets")),
)
"""Each with hints of it, one of which stands where it does."""
_EXPAND = tuple((re.compile(old, re.IGNORECASE), new, hints) for old, new, hints in _CONTRACTIONS)
_FIXED = word_set("will would can cannot could should must may might shall never was were had did")
_PAST = word_set(
    "bought went got made took came saw said found gave left met lost broke began "
    "became felt kept knew ran sat sold sent spent stood taught thought told wrote "
    "won flew ate drank drove grew slept paid quit chose forgot heard held hurt led "
    "lent meant read rode rose sang shut spoke stole swam threw understood woke wore"
)
_ADVERBS = word_set(
    "really just also always usually generally mostly often still actually truly "
    "absolutely definitely personally normally typically especially particularly "
    "totally strongly only never currently now finally recently already sometimes "
    "rarely hardly mainly primarily once both all then certainly probably no longer "
    "very severely highly happily"
)
_LATER = (
    (r"\b(?:i|we) am\b|\bi is\b", "they are"),
    (r"\b(?:i|we) was\b", "they were"),
    (r"\b(?:i|we)\b", "they"),
    (r"\b(?:me|us)\b", "them"),
    (r"\b(?:my|our)\b", "their"),
    (r"\b(?:mine|ours)\b", "theirs"),
    (r"\b(?:myself|ourselves)\b", "themselves"),
)
_REST = tuple((re.compile(old, re.IGNORECASE), new) for old, new in _LATER)


def expand(text: str) -> str:
    """A text without contractions, and with plain apostrophes."""
    text = text.replace("\u2019", "'")
    if "'" in text or "cant" in text or "dont" in text or "wont" in text or "im" in text:
        low = folded(text)
        for old, new, hints in _EXPAND:
            if has_any(low, hints):
                text = old.sub(new, text)
    return text


def third_person(clause: str, subject: str = THE_USER) -> str | None:
    """What a clause says of its speaker, None where it begins with neither "I" nor "my".

    Args:
        clause: without contractions (:func:`expand`).
        subject: who spoke.
    """
    first, _, rest = clause.partition(" ")
    word = first.lower()
    if word in ("my", "our"):
        return f"{subject}'s {_of_others(rest)}"
    if word not in ("i", "we") or not rest:
        return None
    words = rest.split(" ")
    at = 0
    while at < len(words) - 1 and words[at].lower() in _ADVERBS:
        at += 1
    words[at] = _conjugate(words[at])
    return f"{subject} {' '.join(words[: at + 1])}" + (
        f" {_of_others(' '.join(words[at + 1 :]))}" if words[at + 1 :] else ""
    )


def _of_others(text: str) -> str:
    for old, new in _REST:
        text = old.sub(new, text)
    return text


_IRREGULAR = {"am": "is", "are": "is", "were": "was", "have": "has", "do": "does", "be": "is"}


def _conjugate(verb: str) -> str:
    """The third person of a verb in the first."""
    low = verb.lower()
    if low in _IRREGULAR:
        return _IRREGULAR[low]
    if low in _FIXED or low in _PAST or (low.endswith("ed") and not low.endswith("eed")):
        return low
    if low.endswith(("s", "x", "z", "ch", "sh", "o")):
        return f"{low}es"
    if low.endswith("y") and low[-2:-1] not in tuple("aeiou"):
        return f"{low[:-1]}ies"
    return f"{low}s"
