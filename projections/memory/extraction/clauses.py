"""A message as clauses that may state something: without greetings, questions, quoted text, code,
and instructions to the model.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from projections.memory.extraction.hints import Hinted
from projections.memory.extraction.third_person import expand

MAX_MESSAGE = 20_000
"""Characters of a message that are looked at: what is longer is a document, not a statement."""
MAX_WORDS = 40
"""Words of a clause; a longer one is no single statement."""

_CODE = re.compile(
    r"```.*?(?:```|\Z)|`[^`\n]*`|^[ \t]*>[^\n]*$|^ {4,}\S[^\n]*$", re.DOTALL | re.MULTILINE
)
_QUOTE = re.compile(r"[\"\u201c\u201d][^\"\u201c\u201d]{0,2000}[\"\u201c\u201d]")
_SENTENCE = re.compile(
    # Looking ahead first spares the rest at nearly every letter.
    r"(?=[\s)\];(:])(?:"
    r"(?<=[.!?\u2026])(?<![A-Z]\.)(?<!\bMr\.)(?<!\bDr\.)(?<!\bSt\.)(?<!\b[JjSs]r\.)(?<!\bvs\.)[)\]]?\s+"
    r"|[\n;()]+|:\)|(?<!\d)\s[-\u2013\u2014]\s(?!\d))"
)
_JOINT = re.compile(
    # From the first blank of several, and never part of them: the work stays in proportion.
    r"(?=,|(?<!\s)\s)(?:"
    r",?\s++(?:and|but|so|because|though|although|while|as|since)\s++"
    r"(?=(?:i|my|we|our|it|that|this|he|she|they|you|could|can|please|would|what|is|there|how|if)\b)"
    r"|,?\s++and\s++(?=(?:the|a|an) (?:[\w-]+ ){1,4}(?:is|are|was|were|has) )"
    r"|,\s++(?=(?:i|my|we|our|it|he|she|they|you|could|can|please|would|what|is|are|do|how|which"
    r"|but|so|right|isn't|don't)\b)"
    r"|,?\s++(?:but|because|oh my|omg|so that|even though|in order to|if possible|if you"
    r"|thank you|thanks)\b)",
    re.IGNORECASE,
)
_FILLER = re.compile(
    r"^(?:(?:well|also|actually|yes|yeah|yep|yup|no|nope|nah|ok|okay|sure|oh|ah|aw|hi|hey|hello|thanks"
    r"|thank you|so|and|but|plus|then|anyway|honestly|basically|sorry|unfortunately|luckily|sadly"
    r"|great|perfect|please|cool|nice|wow|haha\w*|lol|hmm+|um+|uh+|true|same|too|right|first"
    r"|(?:please )?note(?: that)?|just so you know|fyi|by the way|btw|for the record|of course"
    r"|as (?:i|we) (?:said|mentioned)|(?:i|we) should (?:also )?mention(?: that)?"
    r"|you should (?:also )?know(?: that)?|(?:good )?(?:morning|evening|afternoon)|there"
    r"|to be honest|these days|by now|from now on|lately|meanwhile|since (?:last|this) [a-z]+"
    r"|wait|correction|(?:that|this) (?:was|is) wrong|i was wrong|my mistake)"
    r"(?:[\s,.!:\u2026-]+|$))+",
    re.IGNORECASE,
)
_HEDGE = re.compile(
    r"^(?:i|we) (?:think|guess|believe|suppose)(?: that)? (?=i |my |we |our )", re.I
)
_CONDITION = re.compile(
    r"^(?:if|when|unless|imagine|suppose|supposing|assuming|say|pretend|what|why|how|who|where|which"
    r"|do|does|did|is|are|was|were|can|could|would|should|will|have you|may i|what's|let me)\b",
    re.IGNORECASE,
)
_ORDER = Hinted(
    r"\b(?:ignore|disregard|forget|override|bypass)\b.{0,40}\b(?:instruction|prompt|rule|polic|guideline"
    r"|previous|above|everything|system|filter|restriction)"
    r"|\bsystem prompt\b|\bjailbreak|\bdeveloper mode\b|\byou are now\b|\bact as\b"
    r"|\bpretend (?:to be|you)"
    r"|\b(?:your|new|these) (?:instructions|rules|guidelines)\b|\breveal\b.{0,30}\b(?:prompt"
    r"|password|key)"
    r"|<\|?(?:im_start|system|assistant)|\[(?:system|inst)\b|^\W*(?:system|assistant) ?:",
    "ignore|disregard|forget|override|bypass|system|jailbreak|developer mode|you are now|act as"
    "|pretend|instructions|rules|guidelines|reveal|im_start|assistant|[inst",
)
_SECRET = Hinted(
    r"\b(?:password|passcode|passphrase|pin(?: code| number)?|cvv|cvc|ssn|social security|security"
    r" (?:code|question|answer)|api key|access key|secret|private key|credit card|card number|iban"
    r"|one[- ]time code|otp|token)\b",
    "pass|pin|cvv|cvc|ssn|security|key|secret|credit card|card number|iban|time code|otp|token",
)


class Clause(str):
    """A clause in the order of its message. ``hedged``: the speaker is not sure."""

    __slots__ = ("hedged",)
    hedged: bool


def instructs(text: str) -> bool:
    """Whether a text tells a model what to do with its instructions. Such a text is data, and
    teaches nothing.
    """
    return _ORDER.found_in(text)


def is_secret(text: str) -> bool:
    """Whether a text speaks of a password or the like, which no memory keeps."""
    return _SECRET.found_in(text)


def clauses(text: str) -> Iterator[Clause]:
    """The clauses of a message that may state something, without contractions."""
    if len(text) > MAX_MESSAGE or instructs(text):
        return
    if "`" in text or ">" in text or "    " in text:
        text = _CODE.sub("\n", text)
    if '"' in text or "\u201c" in text:
        text = _QUOTE.sub(_unquoted, text)
    for sentence in _SENTENCE.split(text):
        if not sentence or len(sentence) > 1_000:
            continue
        sentence = expand(sentence.replace("**", "").strip())
        question = sentence.endswith("?")
        parts = _JOINT.split(sentence)
        for part in parts[:-1] if question else parts:
            found = _clause(part)
            if found is not None:
                yield found
            elif _CONDITION.match(_without(_FILLER, part.strip())):
                break  # what follows depends on it


def _unquoted(match: re.Match[str]) -> str:
    """A name in quotes stays; a sentence in quotes is somebody else's."""
    inner = match[0][1:-1]
    return inner if len(inner.split()) <= 3 else "\n"


def _clause(part: str) -> Clause | None:
    text = _without(_FILLER, part.strip()).strip(" \t.,!:\u2026*_~()")
    if not text or _CONDITION.match(text):
        return None
    plain = _without(_HEDGE, text)
    words = plain.count(" ") + 1
    if not 2 <= words <= MAX_WORDS or is_secret(plain):
        return None
    found = Clause(plain)
    found.hedged = plain != text
    return found


def _without(begin: re.Pattern[str], text: str) -> str:
    """A text without what it begins with."""
    found = begin.match(text)
    return text if found is None else text[found.end() :]
