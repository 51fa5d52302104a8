"""Clipping: a single message shortened to a number of tokens, by bytes, so that the bound is sure
and needs no tokenizer.
"""

from __future__ import annotations

from typing import Any

import msgspec

from projections.events.token_cost import CALL_OVERHEAD
from projections.events.tokenizer import MESSAGE_OVERHEAD

NOTE = " characters shortened: the whole event is in the log …]"


def is_clipped(body: bytes) -> bool:
    """Whether a message's text was cut by :func:`clip`."""
    return NOTE.encode() in body


def clip(body: bytes, tokens: int, room: int) -> tuple[int, bytes]:
    """Shorten a message so that it costs at most about ``room`` tokens, keeping the head and the
    tail of its text.

    Returns the new token bound and body. Long call arguments become a stub. The cut is by bytes (a
    token is at least one), so the bound is sure and the fold needs no tokenizer; a very small
    ``room`` still keeps the note that text is missing (about 80 bytes). Counted are the text's own
    bytes, not those of its JSON: text full of quotes or line ends is longer there.
    """
    message = msgspec.json.decode(body)
    calls = message.get("tool_calls") or ()
    for call in calls:
        arguments = call["function"]["arguments"]
        if len(arguments.encode("utf-8", "surrogatepass")) > min(
            room // 8, room // (2 * len(calls))
        ):
            call["function"]["arguments"] = f'{{"shortened_characters":{len(arguments)}}}'
    fixed = _text_bytes({**message, "content": None})
    content = message.get("content")
    text = content if isinstance(content, str) else ""
    raw = text.encode("utf-8", "surrogatepass")
    note = f"[… {len(text)}{NOTE}"
    half = max(0, room - fixed - len(note.encode()) - 2) // 2
    if content is not None and (fixed + len(raw) > room or not isinstance(content, str)):
        tail = raw[len(raw) - half :].decode("utf-8", "ignore")
        message["content"] = "\n".join((raw[:half].decode("utf-8", "ignore"), note, tail)).strip(
            "\n"
        )
    return min(tokens, _text_bytes(message)), msgspec.json.encode(message)


def _text_bytes(message: dict[str, Any]) -> int:
    """A bound of the tokens of a message without parts, as ``projections.events.token_cost`` counts
    them: the bytes of its texts, and its frame.
    """
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    texts = [
        message.get("content") or "",
        message.get("name") or "",
        *(text for c in calls for text in (c["name"], c["arguments"])),
    ]
    return (
        MESSAGE_OVERHEAD
        + 1
        + CALL_OVERHEAD * len(calls)
        + sum(len(text.encode("utf-8", "surrogatepass")) for text in texts)
    )
