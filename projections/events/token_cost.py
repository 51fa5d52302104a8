"""What an event costs in tokens when it is rendered: one walk over its content, with an exact
counter or a sure bound.

Text is counted, images and files go by kind and never by the length of their base64. The walk is
shared by the append path (which counts once, exactly) and by the fold (which only bounds what a
producer left uncounted).
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from projections.events import types as events
from projections.events.provider_limits import author_name, function_name
from projections.events.tokenizer import (
    LONGEST_TOKEN_BYTES,
    MESSAGE_OVERHEAD,
    SlowText,
    bound,
    count_all,
    plausible,
)

IMAGE_TOKENS = {"low": 85, "auto": 765, "high": 1105}
"""Tokens of an image by its ``detail``, after OpenAI's published tile arithmetic for a 1024-pixel
image (85 + 170 a tile).
"""
FILE_TOKENS = 1_500
"""Tokens taken for an attached file: about one page of text and its picture; providers count the
real one.
"""
CALL_OVERHEAD = 8
"""Tokens a tool call costs beside its name and arguments (the call's id and structure)."""

MOST_SLOW = 1_000_000
"""Characters of one request that may be slow to count: a second or two of a core."""

CountText = Callable[[str], int]


def _content(content: events.Content, count: CountText) -> int:
    if content is None:
        return 0
    if isinstance(content, str):
        return count(content)
    total = 0
    for part in content:
        if isinstance(part, events.TextPart):
            total += count(part.text)
        elif isinstance(part, events.ImagePart):
            total += IMAGE_TOKENS.get(part.image_url.detail or "auto", IMAGE_TOKENS["auto"])
        elif isinstance(part, events.FilePart):
            total += FILE_TOKENS
        elif part.text:
            total += count(part.text)
    return total


def _calls(calls: list[events.ToolCall] | None, count: CountText) -> int:
    return sum(
        CALL_OVERHEAD + count(function_name(call.name)) + count(call.arguments)
        for call in calls or ()
    )


def cost(data: object, count: CountText) -> int:
    """Tokens that ``data`` (a struct of ``projections.events``) adds to a render; 0 for what is
    never rendered.
    """
    if isinstance(data, events.Message):
        total = MESSAGE_OVERHEAD + (count(author_name(data.name)) + 1 if data.name else 0)
        # Nearly every message is one text: the append path comes by here for each.
        total += (
            count(data.content) if isinstance(data.content, str) else _content(data.content, count)
        )
        return total + _calls(data.tool_calls, count) if data.tool_calls else total
    if isinstance(data, events.ToolResult):
        return (
            MESSAGE_OVERHEAD
            + (count(function_name(data.name)) if data.name else 0)
            + _content(data.content, count)
        )
    if isinstance(data, events.Opened):
        return count(msgspec.json.encode(data.tools).decode()) if data.tools else 0
    if isinstance(data, events.Summary):
        return MESSAGE_OVERHEAD + count(data.text)
    return 0


def measured(data: object, encoding: str) -> events.Tokens:
    """Count ``data`` exactly (or, for pathological text, as the bound
    ``projections.events.tokenizer.measure`` gives).
    """
    bill = Bill(encoding)
    bill.add(data)
    ((count, exact),) = bill.counted()
    return events.Tokens(count, encoding, exact)


class Bill:
    """The costs of many events: their texts are collected first and counted all at once, which
    costs a seventh of one by one.

    Not for use by several threads at a time.
    """

    def __init__(self, encoding: str, slow_text: SlowText | None = None) -> None:
        self._encoding = encoding
        self._slow_text = slow_text or SlowText(MOST_SLOW)
        self._texts: list[str] = []
        self._fixed: list[int] = []
        self._ends: list[int] = []

    def add(self, data: object) -> None:
        """Take in one event's data, a struct of ``projections.events``."""
        self._fixed.append(cost(data, self._collect))
        self._ends.append(len(self._texts))

    def counted(self) -> list[tuple[int, bool]]:
        """For each event taken in, in order, its tokens and whether they are exact; raises
        ``InvalidPolicy`` for an unknown encoding.
        """
        counts, inexact = count_all(self._texts, self._encoding, self._slow_text)
        found, start = [], 0
        for fixed, end in zip(self._fixed, self._ends, strict=True):
            count = counts[start] if end - start == 1 else sum(counts[start:end])
            found.append((fixed + count, not inexact or inexact.isdisjoint(range(start, end))))
            start = end
        return found

    def _collect(self, text: str) -> int:
        self._texts.append(text)
        return 0


def trusted_tokens(data: object, claim: events.Tokens | None, encoding: str) -> int:
    """The tokens the fold takes for ``data``: the producer's claim where it is plausible, else the
    sure bound.

    A claim is not trusted when it is missing, in another encoding, or impossible for the text's
    byte length.
    """
    texts: list[str] = []
    fixed = cost(data, _taken_into(texts))
    n_bytes = sum(map(_bytes, texts))
    if claim is None or claim.encoding != encoding or not plausible(claim.count - fixed, n_bytes):
        return fixed + bound(n_bytes)
    return claim.count


def trusted_text_tokens(text: str, claim: events.Tokens | None, encoding: str) -> int:
    """What :func:`trusted_tokens` gives for a message of this text and nothing else."""
    n_bytes = len(text) if text.isascii() else _bytes(text)
    if claim is not None and claim.encoding == encoding:
        count = claim.count
        if (
            n_bytes <= (count - MESSAGE_OVERHEAD) * LONGEST_TOKEN_BYTES
            and count - MESSAGE_OVERHEAD <= n_bytes
        ):
            return count
    return MESSAGE_OVERHEAD + bound(n_bytes)


def _taken_into(texts: list[str]) -> CountText:
    """A counter that costs nothing and remembers what it was asked to count."""

    def take(text: str) -> int:
        texts.append(text)
        return 0

    return take


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
