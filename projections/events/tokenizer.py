"""Tokens of a text, counted offline and safely whatever the text.

A text longer than :data:`PIECE_CHARS` is cut before it is counted, because tiktoken panics with a
``BaseException`` on a run of about a million blanks. Two kinds of cuts leave the count exactly
additive, since both encodings' patterns always begin a new piece there and never look back: before
a blank that follows a non-space, and before a newline or a punctuation mark (apostrophes aside)
that follows a Latin letter, an ASCII digit or a common CJK letter. Where a piece holds no such
place it is cut hard, and the result is a bound.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import msgspec

from projections.errors import RequestTooLarge
from projections.events.encodings import DEFAULT_ENCODING, get_encoding

PIECE_CHARS = 65_536
"""Longest text, in characters, handed to tiktoken at once; 200,000 blanks still pass, 1,000,000
panic (0.14).
"""

FAST_CHARS = 4_096
"""Longest text, in characters, handed to toktok at once: its time is quadratic in a run of one
letter (211 ms for 65,536, where tiktoken takes 10), and at this length the two take as long.
"""

MOST_COPIED = 1 << 20
"""Characters of long texts that are cut in pieces, and copied so, before they are counted."""
FEW = 24
"""Texts that toktok counts one by one: a call for a list costs 29 us before the first text (0.3),
one for a text alone 1.
"""

HARD_CUT_MARGIN = 16
"""Tokens added for each hard cut, for merges that the cut displaced; the longest single token is
128 bytes.
"""

LONGEST_TOKEN_BYTES = 128
"""Bytes of the longest token of either vocabulary (128 blanks in o200k_base and cl100k_base),
computed from the ranks.
"""

MESSAGE_OVERHEAD = 4
"""Tokens a chat message costs beside its text: three for its frame and one for its role (OpenAI's
cookbook).
"""


class TokenCount(msgspec.Struct, frozen=True):
    """A number of tokens, and whether it is exact (else it is a bound from above)."""

    count: int
    exact: bool


# An apostrophe can begin a contraction, which belongs to the word before it, so it is not a place
# to cut.
_SAFE_CUT = re.compile(
    r"(?<=\S)(?= )"
    r"|(?<=[A-Za-z0-9\u00c0-\u00d6\u00d8-\u00f6\u3041-\u3096\u30a1-\u30fa\u4e00-\u9fff\uac00-\ud7a3])"
    r"(?=[\r\n!-&(-/:-@\[-`{-~\u3001\u3002\uff01\uff08\uff09\uff0c\uff1a\uff1b\uff1f])"
)
_SAFE_CUT_NEAR = 1_024

# Characters whose class has not changed since Unicode 7. toktok 0.3 and tiktoken 0.14 were built
# with different Unicode tables, and disagree on texts with characters assigned since then; such
# texts are left to tiktoken.
_STABLE = re.compile(
    r"[\x00-\u024f\u0400-\u04ff\u2010-\u2027\u2030-\u205e\u20ac\u2190-\u21ff\u3001-\u3096\u30a1-\u30fe"
    r"\u4e00-\u9fa5\uac00-\ud7a3\uff01-\uff5e\U0001f300-\U0001f5ff\U0001f600-\U0001f64f]*"
)


def count(text: str, encoding: str = DEFAULT_ENCODING) -> int:
    """Tokens of a text as a model is sent it: special tokens in it count as ordinary text.

    Never raises for any ``str``, lone surrogates included. Exact or a bound: :func:`measure` tells
    which.
    """
    counts, _ = count_all((text,), encoding)
    return counts[0]


def measure(text: str, encoding: str = DEFAULT_ENCODING) -> TokenCount:
    """Tokens of a text, and whether the count is exact.

    Inexact only where a text over ``PIECE_CHARS`` has a run of that length without a safe place to
    cut. The count is then the pieces' sum plus ``HARD_CUT_MARGIN`` a hard cut, at most the text's
    bytes: from above on every text tried, though BPE gives no proof of it below the bytes. Time is
    linear in the text, about 1 s for 3 million characters. Raises ``InvalidPolicy`` for an unknown
    encoding.
    """
    encode = get_encoding(encoding).encode_ordinary
    if len(text) <= PIECE_CHARS:
        return TokenCount(len(encode(text)), True)
    pieces, hard = _pieces(text)
    return _sum(text, [len(encode(piece)) for piece in pieces], hard)


def count_many(texts: Sequence[str], encoding: str = DEFAULT_ENCODING) -> list[TokenCount]:
    """Counts of many texts, in their order, each equal to what :func:`measure` gives.

    Texts of long-stable characters go to ``toktok-rs`` in one call where it is installed and passed
    its self-test (figure ``tokens``: about seven times faster on chat messages, one thread); all
    others to tiktoken, one by one.
    """
    counts, inexact = count_all(texts, encoding)
    return [TokenCount(n, i not in inexact) for i, n in enumerate(counts)]


class SlowText:
    """How many characters that tiktoken has to count one request may hold, over several calls of
    :func:`count_all`. It takes up to 1.5 us for each, where toktok takes 3 ns.
    """

    def __init__(self, most: int) -> None:
        self._most = self._left = most

    def take(self, characters: int) -> None:
        """Count these in; raises :class:`RequestTooLarge` where they are too many."""
        if characters > self._left:
            raise RequestTooLarge(
                f"more than {self._most} characters of the request take long to count (runs without"
                " spaces, scripts without spaces): send it in several requests"
            )
        self._left -= characters


def count_all(
    texts: Sequence[str], encoding: str = DEFAULT_ENCODING, slow_text: SlowText | None = None
) -> tuple[list[int], set[int]]:
    """As :func:`count_many`, without an object a text: the counts, and the places of those that are
    bounds.

    Raises:
        RequestTooLarge: more characters are slow to count than ``slow_text`` has left.
    """
    fast = fast_counter(encoding)
    if fast is not None and all(
        len(text) <= FAST_CHARS and (text.isascii() or _STABLE.fullmatch(text)) for text in texts
    ):
        return fast(list(texts)), set()
    counts = [0] * len(texts)
    inexact: set[int] = set()
    pieces: list[str] = []
    places: list[int] = []
    slow: list[int] = []
    copied = 0

    def count_pieces() -> None:
        if fast is not None and pieces:
            for i, n in zip(places, fast(pieces), strict=True):
                counts[i] += n
        pieces.clear()
        places.clear()

    for i, text in enumerate(texts):
        parts = fast_pieces(text) if fast is not None else None
        if parts is None:
            slow.append(i)
            continue
        pieces += parts
        places += [i] * len(parts)
        copied += len(text)
        if copied > MOST_COPIED:
            count_pieces()
            copied = 0
    if slow_text is not None:
        slow_text.take(sum(len(texts[i]) for i in slow))
    count_pieces()
    for i in slow:
        measured = measure(texts[i], encoding)
        counts[i] = measured.count
        if not measured.exact:
            inexact.add(i)
    return counts, inexact


def bound(n_bytes: int) -> int:
    """The most tokens a text of that many UTF-8 bytes can have, since a token is at least one
    byte.
    """
    return max(0, n_bytes)


def plausible(claimed: int, n_bytes: int) -> bool:
    """Whether a text of that many UTF-8 bytes can have the count that a producer claims for it.

    False above a token a byte, or below a token for every 128 bytes (:data:`LONGEST_TOKEN_BYTES`):
    no true count of a known encoding is refused. A false claim between the two passes; ordinary
    text has 3-5 bytes a token.
    """
    return -(-max(0, n_bytes) // LONGEST_TOKEN_BYTES) <= claimed <= max(0, n_bytes)


def pieces_of(text: str) -> list[str]:
    """The pieces a text is counted in; joined they are the text (lone surrogates replaced, where it
    is a long one).
    """
    return [text] if len(text) <= PIECE_CHARS else _pieces(text)[0]


def _valid(text: str) -> str:
    """The text with lone surrogates replaced by U+FFFD, as tiktoken itself does."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def _pieces(text: str) -> tuple[list[str], int]:
    """The text cut into pieces of at most ``PIECE_CHARS``, and how many of the cuts were hard."""
    text = _valid(text)
    pieces: list[str] = []
    hard = start = 0
    while len(text) - start > PIECE_CHARS:
        cut = _last_safe_cut(text, start, start + PIECE_CHARS)
        if cut is None:
            cut, hard = start + PIECE_CHARS, hard + 1
        pieces.append(text[start:cut])
        start = cut
    pieces.append(text[start:])
    return pieces, hard


def _last_safe_cut(text: str, start: int, end: int) -> int | None:
    """The last safe place in ``start < place < end``; near the end first, to spare ordinary text a
    whole search.
    """
    for low in (max(start + 1, end - _SAFE_CUT_NEAR), start + 1):
        last = None
        for match in safe_cuts(text, low, end):
            last = match
        if last is not None:
            return last
    return None


def safe_cuts(text: str, low: int, end: int) -> Iterator[int]:
    """The places from ``low`` to ``end`` at which a cut leaves the count exactly additive."""
    return (match.start() for match in _SAFE_CUT.finditer(text, low, end))


def fast_pieces(text: str) -> list[str] | None:
    """The text in pieces of at most ``FAST_CHARS`` that toktok counts as tiktoken does, or None
    when tiktoken has to count it.

    All cuts are safe ones, so that the counts add up to what :func:`measure` gives, whatever the
    length.
    """
    if not (text.isascii() or _STABLE.fullmatch(text)):
        return None
    pieces: list[str] = []
    start = 0
    while len(text) - start > FAST_CHARS:
        end = start + FAST_CHARS
        # Mostly there is a single blank between two words near the end; all else is searched for.
        cut = text.rfind(" ", end - 64, end)
        if cut < 0 or text[cut - 1].isspace():
            found = _last_safe_cut(text, start, end)
            if found is None:
                return None
            cut = found
        pieces.append(text[start:cut])
        start = cut
    pieces.append(text[start:])
    return pieces


def _sum(text: str, counts: list[int], hard: int) -> TokenCount:
    total = sum(counts)
    if not hard:
        return TokenCount(total, True)
    return TokenCount(min(total + hard * HARD_CUT_MARGIN, bound(len(_valid(text).encode()))), False)


@lru_cache(maxsize=8)
def fast_counter(encoding: str) -> Callable[[list[str]], list[int]] | None:
    """toktok's batch count for the encoding, or None where it is not installed or does not agree
    with tiktoken.
    """
    reference = get_encoding(encoding).encode_ordinary
    try:
        toktok: Any = __import__("toktok")
    except ImportError:
        return None

    def counter(texts: list[str]) -> list[int]:
        if len(texts) <= FEW:
            return [toktok.truncate(text, 1, encoding)[1] for text in texts]
        # One thread: a list of chat messages takes less time than it takes to wake a second one.
        counts: list[int] = toktok.batch_count(texts, encoding, threads=1)
        return counts

    samples = _self_test_texts()
    try:
        expected = [len(reference(sample)) for sample in samples]
        agrees = (
            counter(samples) == expected and counter(samples * FEW) == expected * FEW
        )  # one by one, and in one call
    except (KeyError, TypeError, ValueError, AttributeError):
        # Another release with another interface: an optional speed-up must never be the reason that
        # counting fails.
        return None
    return counter if agrees else None


def _self_test_texts() -> list[str]:
    return [
        "",
        "hello world",
        "<|endoftext|> is only text, it's I'LL 'S here",
        "naïve café Ünïcödé ǅ ﬁ e\u0301 \u00a0\u3000x",
        "日本語のテキスト。中文，没有空格！ 한국어 ไทย العربية हिन्दी",
        "👩‍👩‍👧‍👦 🇩🇪 \ufffd \u200d\u2028",
        (
            '{"id": 12345678, "price": -12.50, "tags": ["a", "b"]}\r\n\r\n\t\tdef f(x):\n       '
            " return x // 2\n"
        ),
        " " * 300 + "x" + "\n" * 40 + "=" * 200 + "a" * 1_000 + "0" * 100,
    ]
