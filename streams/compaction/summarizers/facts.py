"""Facts in a text that a summary should not lose: ids, addresses, amounts, dates, numbers with
units, names.

Found by patterns, so what they take for a fact may be none, and a name in a script without capitals
is not seen. Ids weigh most, because nothing else in a conversation lets one find them again.
"""

from __future__ import annotations

import re

import msgspec

MAX_FACT_CHARS = 60
"""Characters of the longest fact; longer matches are left to their sentence."""

WEIGHTS = {
    "id": 3.0,
    "email": 3.0,
    "amount": 2.5,
    "date": 2.0,
    "link": 1.5,
    "time": 1.25,
    "code": 1.25,
    "quantity": 1.25,
    "name": 1.25,
    "number": 0.75,
}
"""How much a fact of each kind counts; chosen by eye; sums of quarters are exact in binary."""


class Fact(msgspec.Struct, frozen=True):
    """A fact as it was written, and its kind, a key of :data:`WEIGHTS`."""

    text: str
    kind: str

    @property
    def weight(self) -> float:
        """How much it counts."""
        return WEIGHTS[self.kind]


_MONTH = r"(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec)[a-z]{0,6}\.?"
_DAY = r"\d{1,2}(?:st|nd|rd|th)?"
_UNIT = (
    r"(?:%|°[CF]?|[kKMGT]i?B\b|[km]?g\b|[kcm]?m\b|lbs?\b|km/h\b|ms\b|hours?\b|hrs?\b|minutes?\b|mins?\b|seconds?\b"
    r"|days?\b|nights?\b|weeks?\b|months?\b|years?\b|bags?\b|people\b|passengers?\b|adults?\b|seats?\b|items?\b"
    r"|tokens?\b|pcs\b|times\b)"
)
_CURRENCY = r"(?:USD|EUR|GBP|JPY|CHF|CNY|INR|dollars?|euros?|pounds?|€|元|円)"
_FACT = re.compile(
    r"(?P<id>\b[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}\b|(?<!\w)#[A-Za-z]{0,4}\d[\w-]{1,30}\b)"
    r"|(?P<email>\b[\w.+-]{1,40}@[\w-]{1,30}(?:\.[\w-]{2,20}){1,3}\b)"
    r"|(?P<link>\bhttps?://[^\s;<>\"')\]]{4,60})"
    r"|(?P<date>\b\d{4}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?Z?)?\b|\b\d{1,2}[./]\d{1,2}[./](?:\d{4}|\d\d)\b"
    rf"|\b{_MONTH} {_DAY}(?:,? \d{{4}})?\b|\b{_DAY}(?: of)? {_MONTH}(?: \d{{4}})?\b"
    r"|\d{4}年(?:\d{1,2}月(?:\d{1,2}日)?)?|\d{1,2}月\d{1,2}日)"
    r"|(?P<time>\b\d{1,2}:\d\d(?::\d\d)?(?: ?[AaPp]\.?[Mm]\b)?|\b\d{1,2} ?[AaPp][Mm]\b)"
    r"|(?P<amount>(?<!\w)-?[$€£¥₹] ?\d[\d,]{0,14}(?:\.\d{1,4})?[kKMm]?\b"
    rf"|\b\d[\d,.]{{0,14}} ?{_CURRENCY}(?!\w))"
    rf"|(?P<quantity>(?<![\w.,-])-?\d(?:[\d,]{{0,11}}\d)?(?:\.\d{{1,6}})? ?{_UNIT})"
    r"|(?P<name>(?<![\w.])[A-Z][a-zà-öø-ÿ'’]{1,20}(?: [A-Z][a-zà-öø-ÿ'’]{1,20}){1,3}(?![\w]))"
    r"|(?P<word>\b[A-Za-z0-9][A-Za-z0-9_-]{2,39}\b)"
    r"|(?P<number>\b\d{2,12}(?:\.\d{1,6})?\b)"
)
_BARE = frozenset({"number", "amount", "quantity", "date", "time"})
NEAR = 60
"""Characters before a fact in which its words are looked for."""
WORDS = 2
"""Words kept before a fact; a number also keeps one behind it."""
_CLAUSE = re.compile(r"[.;!?…。！？] ?")
_WORD = re.compile(r"(?<![\w#@$-])[^\W\d]{1,20}(?:['’-][^\W\d]{1,20})?(?!\w)")
_NEXT = re.compile(rf" ({_WORD.pattern})")
_SMALL_WORDS = (
    "a an the this that these those it its is are was were be been am i i'm i've we you he she they"
    " me us him them my your our his her their of to for in on at by with from as and or but not no"
    " do does did have has had will would can could should may might must please there here about"
    " around only just also than then so if when which who what where how all any some more most"
    " very too up out if into over after before until since per each"
)
_LITTLE = frozenset(_SMALL_WORDS.split())
_SHOUTED = (
    "THE AND NOT YES YOU ARE FOR BUT ALL ANY CAN WAS HAS HAD OUR OUT NOW NEW HOW WHY WHO LOL OMG"
    " WTF BTW IMO FYI ASAP API URL JSON HTML HTTP HTTPS NULL TRUE FALSE NONE THIS THAT WITH HAVE"
    " WHAT WHEN PLEASE ERROR WARNING INFO DEBUG NOTE TODO SELECT FROM WHERE INSERT UPDATE DELETE"
    " GET PUT POST USD EUR GBP EST PST CET UTC GMT HAHA STOP"
)
_WORDS_IN_CAPITALS = frozenset(_SHOUTED.split())


def find_facts(text: str) -> list[Fact]:
    """The facts of a text in their order, each once. Meant for a sentence; linear in a text of any
    length.
    """
    found: dict[str, Fact] = {}
    shouting = sum(map(str.isupper, text)) * 2 > sum(map(str.isalpha, text)) and " " in text
    for match in _FACT.finditer(text):
        kind, value = match.lastgroup or "number", match.group()
        if kind == "word":
            kind = _kind_of_word(value, shouting)
        if kind and len(value) <= MAX_FACT_CHARS and value not in found:
            found[value] = Fact(value, kind)
    return list(found.values())


def in_words(text: str, fact: Fact) -> str:
    """A fact with the few words of its sentence that say what it is about; alone where it says so
    itself. Empty for a number without any.
    """
    if not _is_bare(fact):
        return fact.text
    start = max(0, text.find(fact.text))
    end = start + len(fact.text)
    clause = _CLAUSE.split(text[max(0, start - NEAR) : start])[-1]
    # In a list of numbers the words stand before the first.
    before = next(filter(None, map(_about, reversed(clause.split(",")))), [])
    before = before[-1:] if clause.endswith(": ") else before[-WORDS:]
    after = _NEXT.match(text, end, end + NEAR) if fact.kind == "number" else None
    words = [*before, fact.text, *(_about(after[1]) if after else ())]
    return " ".join(words) if len(words) > 1 or fact.kind != "number" else ""


def read_fact(text: str) -> Fact | None:
    """The fact that a text is, alone or with such words as :func:`in_words` adds; None where it
    says anything else. That is what a facts line may carry on.
    """
    for fact in find_facts(text):
        if fact.text == text:
            return fact
        before, _, after = text.partition(fact.text)
        around = [*before.split(), *after.split()]
        if (
            _is_bare(fact)
            and len(around) <= WORDS + 1
            and all(_WORD.fullmatch(word) for word in around)
        ):
            return fact
    return None


def _is_bare(fact: Fact) -> bool:
    """Whether a fact does not say by itself what it is about."""
    return fact.kind in _BARE or (fact.kind == "id" and fact.text.isdigit())


def _about(text: str) -> list[str]:
    """The words of a text that say what it is about; in small letters, so that none makes a name
    with the next.
    """
    return [word for word in _WORD.findall(text.lower()) if word not in _LITTLE]


def _kind_of_word(word: str, shouting: bool) -> str:
    """``id`` for words with digits in them, ``code`` for capitals, ``number`` for digits; empty for
    ordinary words.
    """
    digits = sum(map(str.isdigit, word))
    letters = sum(map(str.isalpha, word))
    if digits and not letters:
        return "id" if digits >= 6 and digits == len(word) else "number"
    if digits:
        upper = word != word.lower()
        ordinal = word[0].isdigit() and word[-2:] in ("st", "nd", "rd", "th")
        return "id" if not ordinal and (digits >= 3 or (upper and len(word) >= 4)) else ""
    if word.isupper() and word.isalpha() and len(word) <= 8 and word not in _WORDS_IN_CAPITALS:
        return "" if shouting and len(word) != 6 else ("id" if len(word) == 6 else "code")
    return ""
