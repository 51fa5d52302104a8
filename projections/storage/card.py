"""Cards: what lists show of a conversation beside its head.

A card (field ``c``) is written when it changes, which is rarely. A conversation that was opened
without user, channel and metadata has none. The last message is not on it: a list finds that in the
window's newest chunk, so no event costs a write for it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from projections.storage.chunks import decode_chunk, entries_of
from projections.window.conversation_state import ConversationState
from projections.window.entry import Kind

CARD = b"c"
MAX_METADATA = 1_024
"""Bytes of metadata that a card holds, as JSON: the first members that fit."""
MAX_TITLE = 200
MAX_PREVIEW = 80
"""Characters."""
_ROLES: dict[int, str] = {Kind.USER: "user", Kind.ASSISTANT: "assistant"}


class Card(Struct, array_like=True, frozen=True):
    """Whose a conversation is and what it is about. ``cut``: not all metadata is here."""

    user: str | None = None
    channel: str | None = None
    metadata: dict[str, Any] | None = None
    cut: bool = False

    @property
    def title(self) -> str | None:
        """What the metadata call the conversation."""
        title = (self.metadata or {}).get("title")
        return title[:MAX_TITLE] if isinstance(title, str) else None


class LastMessage(Struct, array_like=True, frozen=True):
    """The last message of a conversation: its role, the begin of its text in one line, its offset.
    The role is empty where the window has no such message any more: only the log has it then.
    """

    role: str
    text: str
    offset: int


class Opened(NamedTuple):
    """What a card follows from."""

    user: str | None = None
    channel: str | None = None
    metadata: dict[str, Any] | None = None


EMPTY = Card()
_encode = msgspec.msgpack.Encoder().encode
_size = msgspec.json.Encoder().encode
_decode = msgspec.msgpack.Decoder(Card).decode
_message = msgspec.json.Decoder(dict[str, Any]).decode


def opened(state: ConversationState) -> Opened:
    """What the card of a window in this state follows from."""
    return Opened(state.user, state.channel, state.metadata)


def encode_card(found: Opened) -> bytes:
    """The stored form of a card; empty where there is nothing to be on it."""
    if found == Opened():
        return b""
    metadata, left = {}, MAX_METADATA
    for name, value in (found.metadata or {}).items():
        left -= len(_size({name: value}))
        if left < 0:
            break
        metadata[name] = value
    whole = found.metadata is None or len(metadata) == len(found.metadata)
    shown = None if found.metadata is None else metadata
    return _encode(Card(found.user, found.channel, shown, not whole))


def decode_card(value: bytes) -> Card:
    """The card of field ``c``, empty without one; raises :class:`msgspec.DecodeError`."""
    return _decode(value) if value else EMPTY


def preview(content: object) -> str:
    """The begin of a message's text, in one line; empty for one without text."""
    if isinstance(content, list):
        parts = (part.get("text") for part in content if isinstance(part, dict))
        content = " ".join(part for part in parts if isinstance(part, str))
    if not isinstance(content, str):
        return ""
    line = " ".join(content[: 4 * MAX_PREVIEW].split())
    return line if len(line) <= MAX_PREVIEW else line[: MAX_PREVIEW - 1] + "…"


def last_message(value: bytes, skip: int = 0) -> LastMessage | None:
    """The last message with text of a stored chunk, None where it has none; ``skip`` entries at its
    begin have left the tail.

    Raises:
        ValueError, msgspec.DecodeError: it is no chunk.
    """
    for entry in reversed(entries_of(decode_chunk(value))[skip:]):
        if entry.kind in _ROLES and entry.body:
            text = preview(_message(entry.body).get("content"))
            if text:
                return LastMessage(_ROLES[entry.kind], text, entry.offset)
    return None
