"""Clipping: a single message shortened to a number of tokens, by bytes, so that the bound is sure
and needs no tokenizer.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from projections.events.token_cost import CALL_OVERHEAD
from projections.events.tokenizer import MESSAGE_OVERHEAD
from projections.window.bodies import has_attachments, result_text

WHERE = ": the whole event is in the log …]"
NO_ATTACHMENTS = f"[… images and files left out{WHERE}"
_NOTE = re.compile(rf"\n?\[… (\d{{1,20}}) characters shortened{re.escape(WHERE)}\n?")


def is_clipped(body: bytes) -> bool:
    """Whether a message was cut by :func:`clip`."""
    return WHERE.encode() in body


def clip(body: bytes, tokens: int, room: int) -> tuple[int, bytes]:
    """Shorten a message so that it costs at most about ``room`` tokens, keeping the head and the
    tail of its text. Of parts the text is kept, with a word for each image and file.

    Returns the new token bound and body. Long call arguments become a stub. The cut is by bytes (a
    token is at least one), so the bound is sure and the fold needs no tokenizer; a very small
    ``room`` still keeps the note that text is missing (about 80 bytes). Counted are the text's own
    bytes, not those of its JSON: text full of quotes or line ends is longer there.
    """
    message = msgspec.json.decode(body)
    calls = message.get("tool_calls") or ()
    for call in calls:
        arguments = call["function"]["arguments"]
        if len(_bytes(arguments)) > min(room // 8, room // (2 * len(calls))):
            call["function"]["arguments"] = f'{{"shortened_characters":{len(arguments)}}}'
    fixed, content = _text_bytes({**message, "content": None}), message.get("content")
    if content is not None:
        left_out = f"\n{NO_ATTACHMENTS}" if has_attachments(body) else ""
        whole = result_text(message) + left_out
        fits = fixed + len(_bytes(whole)) <= room
        message["content"] = whole if fits else _ends(result_text(message), room - fixed)
    return min(tokens, _text_bytes(message)), msgspec.json.encode(message)


def _ends(text: str, room: int) -> str:
    """The head and the tail of a text, in about ``room`` bytes with a note between them: of one
    that was cut before, those of the whole text.
    """
    cut = _NOTE.search(text)
    head, tail = (text, text) if cut is None else (text[: cut.start()], text[cut.end() :])
    note = f"[… {len(text) if cut is None else cut[1]} characters shortened{WHERE}"
    half = max(0, room - len(note.encode()) - 2) // 2
    first, last = _bytes(head)[:half], _bytes(tail)[-half:] if half else b""
    return "\n".join((first.decode("utf-8", "ignore"), note, last.decode("utf-8", "ignore"))).strip(
        "\n"
    )


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


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
        MESSAGE_OVERHEAD + 1 + CALL_OVERHEAD * len(calls) + sum(len(_bytes(text)) for text in texts)
    )
