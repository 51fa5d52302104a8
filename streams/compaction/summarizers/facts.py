"""Facts in a text that a summary should not lose: ids, addresses, amounts, dates, numbers with
units, names.

Found by patterns, so what they take for a fact may be none, and a name in a script without capitals
is not seen. Ids weigh most, because nothing else in a conversation lets one find them again.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from functools import cache, partial
from operator import itemgetter

import msgspec
import numpy as np

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


class Fact(msgspec.Struct, frozen=True, gc=False):
    """A fact as it was written, and its kind, a key of :data:`WEIGHTS`."""

    text: str
    kind: str

    @property
    def weight(self) -> float:
        """How much it counts."""
        return WEIGHTS[self.kind]


_MONTH = r"(?:Jan|Feb|Mar|Apr|May|June?|July?|Aug|Sept?|Oct|Nov|Dec)[a-z]{0,6}\.?"
_UNIT = (
    r"(?:%|°[CF]?|[kKMGT]i?B\b|[km]?g\b|[kcm]?m\b|lbs?\b|km/h\b|ms\b|hours?\b|hrs?\b|minutes?\b|mins?\b|seconds?\b"
    r"|days?\b|nights?\b|weeks?\b|months?\b|years?\b|bags?\b|people\b|passengers?\b|adults?\b|seats?\b|items?\b"
    r"|tokens?\b|pcs\b|times\b)"
)
_CURRENCY = r"(?:USD|EUR|GBP|JPY|CHF|CNY|INR|dollars?|euros?|pounds?|€|元|円)"
_SUM = r" ?\d[\d,]{0,14}(?:\.\d{1,4})?[kKMm]?\b"
_COUNT = rf"(?:[\d,]{{0,11}}\d)?(?:\.\d{{1,6}})? ?{_UNIT}"
_EMAIL = r"[\w.+-]{0,39}+@[\w-]{1,30}(?:\.[\w-]{2,20}){1,3}\b"
_WITH_DIGIT = r"(?=[A-Za-z_-]*+[0-9])[A-Za-z0-9_-]{0,39}\b"
_NAMED = r"[a-zà-öø-ÿ'’]{1,20}"

# What may follow the first character of a fact, by that character's kind. The empty group at the
# end of a branch says which one it was, as _KINDS names them.
_AFTER_SMALL = (
    rf"[a-z]*+(?=[0-9_@.+A-Z:-])(?:{_EMAIL}()"
    rf"|(?:(?<=http)|(?<=https))://[^\s;<>\"')\]]{{4,60}}()|{_WITH_DIGIT}())"
)
_AFTER_CAPITAL = (
    r"(?:(?=[a-z]{2,8}\.? \d)[a-z]{2}(?<=Jan|Feb|Mar|Apr|May|Jun|Jul|Aug|Sep|Oct|Nov|Dec)"
    r"[a-z]{0,6}\.? \d{1,2}(?:st|nd|rd|th)?(?:,? \d{4})?\b()"
    rf"|(?<![.-].){_NAMED}(?: [A-Z]{_NAMED}){{1,3}}(?!\w)()"
    rf"|[a-z]*+(?=[0-9_@.+A-Z-])(?:{_EMAIL}()|{_WITH_DIGIT}()|(?<=[A-Z])[A-Z]{{2,7}}(?![\w-])()))"
)
_AFTER_DIGIT = (
    rf"(?:{_EMAIL}()"
    r"|(?:\d{3}-\d\d-\d\d(?:T\d\d:\d\d(?::\d\d)?Z?)?\b"
    r"|\d?[./]\d{1,2}[./](?:\d{4}|\d\d)\b"
    rf"|\d?(?:st|nd|rd|th)?(?: of)? {_MONTH}(?: \d{{4}})?\b)()"
    r"|(?:\d?:\d\d(?::\d\d)?(?: ?[AaPp]\.?[Mm]\b)?|\d? ?[AaPp][Mm]\b)()"
    rf"|[\d,.]{{0,14}} ?{_CURRENCY}(?!\w)()"
    rf"|(?<![.,-].){_COUNT}()"
    r"|(?:\d{1,11}\.\d{1,6}|\.\d\d)\b(?<!\.0)(?!\.\d)()"
    r"|[A-Za-z0-9_-]{2,39}\b()|\d\b())"
)
_AFTER_SIGN = (
    rf"(?:(?<=#)[A-Za-z]{{0,4}}\d[\w-]{{1,30}}\b()|(?<=[$€£¥₹]){_SUM}()"
    rf"|(?<=-)(?:[$€£¥₹]{_SUM}()|(?<![.,-].)\d{_COUNT}()))"
)
_FACT = re.compile(
    # One set of characters comes first, so that the search skips all others fast.
    rf"[A-Za-z0-9#$€£¥₹-](?:(?<!\w.)(?:(?<=[a-z]){_AFTER_SMALL}|(?<=[A-Z]){_AFTER_CAPITAL}"
    rf"|(?<=[0-9]){_AFTER_DIGIT}|{_AFTER_SIGN})"
    r"|(?<=[0-9])(?:\d{3}年(?:\d{1,2}月(?:\d{1,2}日)?)?|\d?月\d{1,2}日)())"
)
_KINDS = (
    *("", "email", "link", "word", "date", "name", "email", "word", "word"),
    *("email", "date", "time", "amount", "quantity", "number", "word", "number"),
    *("id", "amount", "amount", "quantity", "date"),
)
_RICH = re.compile(r"[0-9@:]")
"""A line without any of these has names and words in capitals alone, which are found faster."""
_PLAIN_FACT = re.compile(
    rf"[A-Z](?<!\w.)(?:(?<![.-].){_NAMED}(?: [A-Z]{_NAMED}){{1,3}}(?!\w)()"
    r"|[A-Z]{2,7}(?![\w-])())"
)
_PLAIN_KINDS = ("", "name", "word")
_BARE = frozenset({"number", "amount", "quantity", "date", "time"})
NEAR = 60
"""Characters before a fact in which its words are looked for."""
WORDS = 2
"""Words kept before a fact, one before an id with letters; a number, and an id like ``#4711``, also
keep one behind it.
"""
_DIGIT = re.compile(r"[0-9]")
_HAS_WORD = re.compile(r"[a-z]{4}")
"""An id such as ``gift_card_3481935`` says by itself what it is."""
_CLAUSE = re.compile(r"[.;!?…。！？] ?")
_ASIDE = re.compile(r"^[^(]*\)|\([^()]*\)")
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
_NO_DIGITS = str.maketrans("", "", "0123456789")


_MOST_WORDS = MAX_FACT_CHARS + WORDS + 2
"""Words of a fact, with those around it: a fact has fewer words than characters."""


def find_facts(text: str) -> list[Fact]:
    """The facts of a text in their order, each once. Meant for a sentence; linear in a text of any
    length.
    """
    text = text.replace("\n", " ")
    return [Fact(value, kind) for _, value, kind in find_all([text])]


def find_all(lines: Sequence[str]) -> list[tuple[int, str, str]]:
    """The facts of many lines, in their order, each once a line: the line's number, the fact's text
    and its kind. No line holds a line break.
    """
    rich = [row for row, line in enumerate(lines) if _RICH.search(line)]
    plain = sorted({*range(len(lines))}.difference(rich))
    found = _found(_FACT, _KINDS, lines, rich) + _found(_PLAIN_FACT, _PLAIN_KINDS, lines, plain)
    found.sort(key=itemgetter(0))
    return found


def _found(
    pattern: re.Pattern[str], kinds: Sequence[str], lines: Sequence[str], rows: list[int]
) -> list[tuple[int, str, str]]:
    """The facts of some of the lines, by one search over all of their text."""
    searched = [lines[row] for row in rows]
    matches = [
        (match.start(), match[0], match.lastindex or 0)
        for match in pattern.finditer("\n".join(searched))
    ]
    ends = np.cumsum(np.fromiter(map(len, searched), np.int64, len(rows)) + 1)
    holders = np.searchsorted(ends, [start for start, _, _ in matches], side="right").tolist()
    words: dict[str, str] = {}
    facts: dict[tuple[int, str], str] = {}
    shouts = cache(lambda holder: _shouts(searched[holder]))
    for holder, (_, value, group) in zip(holders, matches, strict=True):
        kind = kinds[group]
        if kind == "word":
            kind = words.get(value) or _kind_of_word(value, partial(shouts, holder))
            if kind == "id" or kind == "number":
                words[value] = kind
        if kind and len(value) <= MAX_FACT_CHARS:
            facts.setdefault((rows[holder], value), kind)
    return [(row, value, kind) for (row, value), kind in facts.items()]


def in_words(text: str, fact: Fact, tool: str = "") -> str:
    """A fact with the few words of its sentence that say what it is about; alone where it says so
    itself. Digits without any have those of the ``tool`` that gave them; empty without that. An id
    without a letter (``#4711``) has a later word of its clause then, or all words right before it
    ("where is").
    """
    most = _words_of(fact)
    if not most:
        return fact.text
    start = max(0, text.find(fact.text))
    end = start + len(fact.text)
    # What stands in brackets is about something else.
    clause = _ASIDE.sub("", _CLAUSE.split(text[max(0, start - NEAR) : start])[-1])
    # In a list of numbers the words stand before the first.
    before = next(filter(None, map(_about, reversed(clause.split(",")))), [])
    before = before[-1:] if clause.endswith(": ") else before[-most:]
    after = _NEXT.match(text, end, end + NEAR) if _takes_behind(fact) else None
    behind = _about(after[1]) if after else []
    digits, letterless = fact.kind == "number" or fact.text.isdigit(), _is_letterless_id(fact)
    if not before and not behind and letterless:
        behind = _about(_CLAUSE.split(text[end : end + NEAR])[0])[:1]
    if not before and not behind and digits:
        before = _about(tool.replace("_", " "))[-most:]
    if not before and not behind and letterless:
        before = _WORD.findall(clause.lower())[-most:]
    words = [*before, fact.text, *behind]
    return " ".join(words) if len(words) > 1 or not digits else ""


def read_fact(text: str) -> Fact | None:
    """The fact that a text is, alone or with such words as :func:`in_words` adds; None where it
    says anything else. That is what a facts line may carry on.
    """
    if len(text.split()) > _MOST_WORDS:
        return None
    for fact in find_facts(text):
        if fact.text == text:
            return fact
        before, _, after = text.partition(fact.text)
        around = [*before.split(), *after.split()]
        most = _words_of(fact) + _takes_behind(fact)
        if len(around) < most + 1 and all(_WORD.fullmatch(word) for word in around):
            return fact
    return None


def label_of(text: str) -> str:
    """The words before a fact as :func:`in_words` gives it, where others may share them ("seat" of
    "seat 112A"); empty where there are none, or where they belong to the fact itself.
    """
    label, _, value = text.rpartition(" ")
    shared = label == label.lower() and all(map(_WORD.fullmatch, label.split()))
    return label if shared and (value.isupper() or _DIGIT.search(value)) else ""


def _words_of(fact: Fact) -> int:
    """How many words before a fact say what it is about; none where it says so itself."""
    if fact.kind == "id":
        return WORDS if _is_letterless_id(fact) else 0 if _HAS_WORD.search(fact.text) else 1
    return WORDS if fact.kind in _BARE else 0


def _is_letterless_id(fact: Fact) -> bool:
    return fact.kind == "id" and fact.text.upper() == fact.text.lower()


def _takes_behind(fact: Fact) -> bool:
    """Whether the word behind it may say what it is about, too."""
    return fact.kind == "number" or _is_letterless_id(fact)


def _about(text: str) -> list[str]:
    """The words of a text that say what it is about; in small letters, so that none makes a name
    with the next.
    """
    return [word for word in _WORD.findall(text.lower()) if word not in _LITTLE]


def _shouts(line: str) -> bool:
    """Whether most letters of a line are capitals."""
    return sum(map(str.isupper, line)) * 2 > sum(map(str.isalpha, line)) and " " in line


def _kind_of_word(word: str, shouts: Callable[[], bool]) -> str:
    """``id`` for words with digits in them, ``code`` for capitals, ``number`` for digits; empty for
    ordinary words, as capitals are where the line ``shouts``.
    """
    if word.isdigit():
        return "id" if len(word) >= 6 else "number"
    digits = len(word) - len(word.translate(_NO_DIGITS))
    if digits:
        small = word.lower()
        if small == word.upper():
            return "number"
        upper = word != small
        ordinal = word[0].isdigit() and word[-2:] in ("st", "nd", "rd", "th")
        return "id" if not ordinal and (digits >= 3 or (upper and len(word) >= 4)) else ""
    if word in _WORDS_IN_CAPITALS or not word.isupper():
        return ""
    if len(word) == 6:
        return "id"
    return "" if shouts() else "code"
