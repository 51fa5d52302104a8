"""A context with what the long-term memory has on its newest message."""

from __future__ import annotations

from functools import partial
from typing import Any, NamedTuple

import msgspec

from projections.errors import ThreadfoldError
from projections.formats.background_message import with_background
from projections.memory.background import Background, background
from projections.memory.identity import Scope
from projections.memory.planner import asked_text
from projections.memory.recall import Recalled
from projections.memory.resolution import Record
from projections.names import Key, Position, make_key
from projections.render.fit_to_limit import DoesNotFit
from projections.window.entry import Entry, Kind
from projections.window.window import Window
from streams.memory.store import Filter
from streams.runtime.keyed_limit import LARGE
from threadfold.service.conversations import ConversationService
from threadfold.service.documents import beside, size_of
from threadfold.service.memories import Memories
from threadfold.service.question import Question

FOUND = 30
AROUND = 8
"""Tokens of a message beside its text, at most."""
RECENT = 2
"""Messages before the newest one that a short question is read with."""
_text_of = msgspec.json.Decoder(type=dict[str, Any]).decode


class Reader(NamedTuple):
    """What to read: a conversation's context in a format, and at most so many recalled tokens.
    ``conversations`` are those that the reader may know of; None: all of the user's.
    """

    tenant: str
    conversation: str
    fmt: str
    max_tokens: int | None
    after: str | None
    recall_tokens: int
    conversations: frozenset[str] | None = None


class _Fill(msgspec.Struct):
    """What of a context document says how full it is."""

    tokens: int
    ceiling: int


async def recalled_context(
    backend: ConversationService, memories: Memories, reader: Reader
) -> bytes:
    """The context document, with ``background_context`` before the newest user's message and the
    ids of what it has as ``recalled``. Where the memory cannot be asked, ``away`` says why, and the
    context is as it is without.

    ``tokens`` count the background; ``render_digest`` is that of the messages without it, which
    follow from the log.

    Raises: as ``ConversationReader.context`` says.
    """
    key = make_key(reader.tenant, reader.conversation)
    first = await _first(backend, reader, key)
    document, max_tokens = first.document, reader.max_tokens
    recalled, away = None, dict[str, str]()
    if first.question is not None:
        try:
            recalled, away = await _background(memories, reader, first.shown, first.question)
        except ThreadfoldError as error:
            away = {"memories": str(error)}
    if recalled is not None:
        limit = min(one for one in (first.fill.ceiling, reader.max_tokens) if one is not None)
        need = recalled.tokens + AROUND
        if document is None or first.fill.tokens + need > limit:
            # Also where it fitted: the window may grow before it is read again.
            document, max_tokens = None, max(1, limit - need)
    async with backend.turns_to_read.together(key.tenant):
        if document is None:
            try:
                document = await _document(backend, reader, max_tokens)
            except DoesNotFit:
                if max_tokens == reader.max_tokens:
                    raise
                recalled = None
                document = first.document or await _document(backend, reader, reader.max_tokens)
        if recalled is not None:
            memories.use_counts.note(recalled.kept, recalled)
        return await beside(
            len(document),
            backend.turns_to_render,
            key.tenant,
            partial(_joined, document, recalled, away, reader.fmt),
        )


class _First(NamedTuple):
    """What a first reading finds: how full the context is, the question to the memory, and the
    positions that the window shows. A large ``document`` is not kept while the memory is asked.
    """

    document: bytes | None
    fill: _Fill
    question: Question | None
    shown: set[str]


async def _first(backend: ConversationService, reader: Reader, key: Key) -> _First:
    async with backend.turns_to_read.together(key.tenant):
        document = await _document(backend, reader, reader.max_tokens)
        window = await backend.window(key.tenant, key.conversation)
        size = len(document) + size_of(window)

        def look() -> _First:
            shown = {str(Position(window.partition, entry.offset)) for entry in window.tail}
            question = _question(reader, window)
            return _First(document if size <= LARGE else None, _fill_of(document), question, shown)

        return await beside(size, backend.turns_to_render, key.tenant, look)


async def _document(backend: ConversationService, reader: Reader, max_tokens: int | None) -> bytes:
    return await backend.context(
        reader.tenant,
        reader.conversation,
        fmt=reader.fmt,
        max_tokens=max_tokens,
        after=reader.after,
    )


def _fill_of(document: bytes) -> _Fill:
    return msgspec.json.decode(document, type=_Fill)


def _question(reader: Reader, window: Window) -> Question | None:
    """The newest user's message as a question to the memory; None if it has no words."""
    spoken = (Kind.USER, Kind.ASSISTANT)
    # What is left out of a window has no text there.
    said = [entry for entry in window.tail if entry.kind in spoken and entry.body]
    newest = next((i for i in reversed(range(len(said))) if said[i].kind == Kind.USER), None)
    query = "" if newest is None else _said(said[newest])
    if newest is None or not query:
        return None
    state = window.state
    anonymous = window.key.conversation if state.user is None else None
    only = Filter(
        reader.tenant,
        scope=Scope(reader.tenant, state.user, state.channel, anonymous),
        user=state.user,
        conversations=reader.conversations,
    )
    recent = " ".join(_said(entry) for entry in said[max(0, newest - RECENT) : newest])
    return Question(only, query, recent=recent, limit=FOUND)


async def _background(
    memories: Memories, reader: Reader, shown: set[str], question: Question
) -> tuple[Background | None, dict[str, str]]:
    """What is relevant to a question, of what the window does not show."""
    answer = await memories.ask(question, soon=True)
    found = [one for one in answer.found if not _is_shown(one, reader.conversation, shown)]
    apart = memories.recall.apart
    return await apart(reader.tenant, background, found, reader.recall_tokens), answer.away


def _is_shown(one: Recalled, conversation: str, shown: set[str]) -> bool:
    """Whether the window has it word for word."""
    if one.found.conversation != conversation:
        return False
    positions = one.found.positions if isinstance(one.found, Record) else [one.found.position]
    return bool(positions) and shown.issuperset(positions)


def _said(entry: Entry) -> str:
    """What a message says that the memory may be asked with."""
    content = _text_of(entry.body).get("content")
    if isinstance(content, list):
        texts = [part.get("text") for part in content if part.get("type") == "text"]
        content = "\n".join(text for text in texts if text)
    return asked_text(content or "")


def _joined(document: bytes, recalled: Background | None, away: dict[str, str], fmt: str) -> bytes:
    # Messages stay as they are written: a large window is not parsed.
    whole: dict[str, Any] = msgspec.json.decode(document, type=dict[str, msgspec.Raw])
    whole["background_context"] = None if recalled is None else recalled.text
    whole["recalled"] = [] if recalled is None else [one.id for one in recalled.kept]
    whole["away"] = away
    if recalled is None or fmt not in ("openai", "anthropic"):
        return msgspec.json.encode(whole)
    messages = msgspec.json.decode(whole["messages"], type=list[msgspec.Raw])
    whole["messages"], place = with_background(messages, recalled.text, fmt)
    tokens, ceiling = (msgspec.json.decode(whole[name]) for name in ("tokens", "ceiling"))
    whole["tokens"] = tokens + recalled.tokens + AROUND
    whole["utilization"] = round(whole["tokens"] / ceiling, 6)
    if place is not None and "positions" in whole:
        whole["positions"] = msgspec.json.decode(whole["positions"])
        whole["positions"].insert(place, None)
    return msgspec.json.encode(whole)
