"""The words that a text is found by: its letters without case and accents, cut down to stems.

Stems are those of M. F. Porter, "An algorithm for suffix stripping" (Program 14, 1980). They are
made here and not in a store, so that every store finds a text by the same words.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from functools import lru_cache

from projections.memory.identity import letters_of

_STOP_WORDS = """
a an and are as at be been but by can could did do does for from had has have he her him his how i
if in into is it its me my of on or our she so that the their them there these they this to us was
we were what when where which who whom whose why will with would you your s t re ve ll d m
"""
STOP = frozenset(_STOP_WORDS.split())
"""Words that say nothing of what a text is about. Longer lists were measured to give nothing."""
WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
MONTHS = (
    "january",
    "february",
    "march",
    "april",
    "may",
    "june",
    "july",
    "august",
    "september",
    "october",
    "november",
    "december",
)
_COMMON_WORDS = """
about after again all also always any anything around back because before best better day done down
even ever every feel first get give go going good got great happen here just keep kind know last let
like little long look lot made make many maybe more most much need never new no not now off oh one
only other out over own people pretty put really right said same say see should some something still
such sure take tell than then thing think though time too try two until up use used very want way
week well went while without work yeah year yes yet
"""
_ASCII = re.compile("[a-z0-9]+")
_BLANK = re.compile(r"\s")
_PIECE = 1 << 14
"""Characters of a text whose words are found at once: meanwhile no other thread goes on."""


def is_common(stem_: str) -> bool:
    """Whether people use a word of this stem all the time, whatever they talk about."""
    return stem_ in _common()


@lru_cache(maxsize=1)
def _common() -> frozenset[str]:
    return frozenset(stem(word) for word in _COMMON_WORDS.split())


def words_of(text: str) -> list[str]:
    """The words of a text in order, without accents; of letters that are written without blanks
    each pair is a word.
    """
    if text.isascii():
        return _ASCII.findall(text.lower())
    plain = unicodedata.normalize("NFD", letters_of(text))
    plain = "".join(c for c in plain if not unicodedata.combining(c))
    found: list[str] = []
    for word in plain.split():
        if word.isascii() or not any(map(_without_blanks, word)):
            found.append(word)
        else:
            found += [word[i : i + 2] for i in range(max(1, len(word) - 1))]
    return found


def stems_of(text: str) -> list[str]:
    """The stems of a text's words in order, without those that say nothing."""
    found: list[str] = []
    for piece in _pieces(text):
        found += filter(None, map(_telling.__getitem__, words_of(piece)))
    return found


def _pieces(text: str) -> Iterator[str]:
    """A text in pieces that end before a blank."""
    at = 0
    while len(text) - at > _PIECE and (blank := _BLANK.search(text, at + _PIECE)) is not None:
        yield text[at : blank.start()]
        at = blank.start()
    yield text[at:]


def tag_word(kind: str, tag: str) -> str:
    """The one word that a record is found by for a tag of a kind."""
    return f"{kind}={'_'.join(words_of(tag))}"


def is_tag_word(word: str) -> bool:
    """Whether a word is that of a tag: no stem is."""
    return "=" in word


def date_words(time: str) -> str:
    """The words for the day of an RFC 3339 time: year, month, day."""
    year, month, day = time[:10].split("-")
    return f"{year} {MONTHS[int(month) - 1]} {int(day)}"


def _without_blanks(letter: str) -> bool:
    return "\u2e80" <= letter <= "\u9fff" or "\uf900" <= letter <= "\ufaff" or letter > "\U0001ffff"


def stem(word: str) -> str:
    """A word's stem; what is no English word, or of two letters at most, stays as it is."""
    if len(word) < 3 or not (word.isascii() and word.isalpha()):
        return word
    return _step5(_longest(_longest(_longest(_step1(word), _STEP2, 0), _STEP3, 0), _STEP4, 1))


class _Telling(dict[str, str]):
    """Words' stems, empty for those that say nothing. A text's words are looked up without a call
    of Python for each.
    """

    MOST = 1 << 16

    def __missing__(self, word: str) -> str:
        found = "" if word in STOP else stem(word)
        if word.isalpha():  # there are many numbers, and a number has no stem
            if len(self) >= self.MOST:
                self.clear()
            self[word] = found
        return found


_telling = _Telling()


def _form(word: str) -> str:
    """``v`` for each vowel and ``c`` for each other letter; y is a vowel behind a consonant."""
    form = ""
    for letter in word:
        vowel = letter in "aeiou" or (letter == "y" and form.endswith("c"))
        form += "v" if vowel else "c"
    return form


def _measure(stem_: str) -> int:
    """How often a vowel is followed by a consonant."""
    return _form(stem_).count("vc")


def _doubled(word: str) -> bool:
    return len(word) > 1 and word[-1] == word[-2] and _form(word)[-1] == "c"


def _closed(word: str) -> bool:
    """Whether it ends in consonant, vowel, consonant, the last of which is not w, x or y."""
    return _form(word)[-3:] == "cvc" and word[-1] not in "wxy"


def _step1(word: str) -> str:
    if word.endswith(("sses", "ies")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith("ss"):
        word = word[:-1]
    if word.endswith("eed"):
        word = word[:-1] if _measure(word[:-3]) else word
    else:
        for end in ("ed", "ing"):
            if word.endswith(end) and "v" in _form(word[: -len(end)]):
                word = _mended(word[: -len(end)])
                break
    if word.endswith("y") and "v" in _form(word[:-1]):
        word = word[:-1] + "i"
    return word


def _mended(word: str) -> str:
    """What is left of a word without ``ed`` or ``ing``, as it is written alone."""
    if word.endswith(("at", "bl", "iz")):
        return word + "e"
    if _doubled(word) and word[-1] not in "lsz":
        return word[:-1]
    return word + "e" if _measure(word) == 1 and _closed(word) else word


def _pairs(text: str) -> dict[str, str]:
    return dict(pair.partition(":")[::2] for pair in text.split())


_STEP2 = _pairs(
    "ational:ate tional:tion enci:ence anci:ance izer:ize bli:ble alli:al entli:ent eli:e ousli:ous"
    " ization:ize ation:ate ator:ate alism:al iveness:ive fulness:ful ousness:ous aliti:al"
    " iviti:ive biliti:ble logi:log"
)
_STEP3 = _pairs("icate:ic ative: alize:al iciti:ic ical:ic ful: ness:")
_STEP4 = _pairs(
    "al: ance: ence: er: ic: able: ible: ant: ement: ment: ent: sion:s tion:t ou: ism: ate: iti:"
    " ous: ive: ize:"
)


def _longest(word: str, endings: dict[str, str], above: int) -> str:
    """The word with its longest ending of these replaced, if what stays measures more."""
    for length in range(min(7, len(word) - 1), 1, -1):
        new = endings.get(word[-length:])
        if new is not None:
            left = word[:-length]
            # An s or t before "ion" belongs to what stays.
            return left + new if _measure(left + (new if above else "")) > above else word
    return word


def _step5(word: str) -> str:
    if word.endswith("e"):
        measure = _measure(word[:-1])
        if measure > 1 or (measure == 1 and not _closed(word[:-1])):
            word = word[:-1]
    return word[:-1] if word.endswith("ll") and _measure(word) > 1 else word
