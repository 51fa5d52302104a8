"""The context document in each format, and which formats there are."""

from __future__ import annotations

from typing import NamedTuple

import msgspec

from projections.errors import InvalidRequest
from projections.formats.anthropic import anthropic_document
from projections.formats.context_document import context_document
from projections.formats.events import rendered_events, window_events
from projections.render.parts import Render
from projections.render.render import render_openai
from projections.window.window import Window

FORMATS = ("openai", "anthropic", "events", "rendered")


def check_format(name: str, known: tuple[str, ...] = FORMATS) -> str:
    """Return ``name`` when it is one of the formats ``known``; raises :class:`InvalidRequest`."""
    if name not in known:
        raise InvalidRequest(f"format {name[:40]!r} is not one of {', '.join(known)}")
    return name


def document(window: Window, fmt: str, max_tokens: int | None = None) -> bytes:
    """The context document of a window in one of :data:`FORMATS`, as JSON.

    ``render_digest`` is the SHA-256 of the ``messages`` it holds, in that format and those bytes.
    ``events`` gives the window's own events: nothing is left out of them for a limit, ``tokens``
    and ``trace`` are the render's. ``rendered`` gives the render's messages as flat events.

    Raises:
        DoesNotFit: what must not be left out is larger than the ceiling, or than ``max_tokens``.
        InvalidRequest: there is no such format.
    """
    return document_of(window, render_openai(window, max_tokens), fmt)


def document_of(window: Window, render: Render, fmt: str) -> bytes:
    """The context document of a window and its render; raises :class:`InvalidRequest` where there
    is no such format.
    """
    check_format(fmt)
    if fmt == "anthropic":
        return anthropic_document(window, render)
    if fmt == "events":
        bodies = [msgspec.json.encode(event) for event in window_events(window)]
        return context_document(window, Render(bodies, render.tokens, render.trace), b"")
    if fmt == "rendered":
        bodies = [msgspec.json.encode(event) for event in rendered_events(window, render)]
        render = Render(bodies, render.tokens, render.trace, render.offsets)
    return context_document(window, render)


class Messages(NamedTuple):
    """What of a context document a model is sent: its messages as they stand in it, ``system``
    (Anthropic's), tokens and the digest.
    """

    messages: msgspec.Raw
    system: str | None
    tokens: int
    digest: str


class _Document(msgspec.Struct):
    messages: msgspec.Raw
    tokens: int
    render_digest: str
    system: str | None = None


def messages_of(document: bytes) -> Messages:
    """Take a context document apart without parsing its messages."""
    found = msgspec.json.decode(document, type=_Document)
    return Messages(found.messages.copy(), found.system, found.tokens, found.render_digest)
