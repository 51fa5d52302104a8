"""The formats of a context document, and the document in each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import msgspec

from projections.errors import InvalidRequest
from projections.formats.anthropic import anthropic_document
from projections.formats.context_document import context_document
from projections.formats.events import rendered_events, window_events
from projections.names import Key
from projections.policy.policy import Rules
from projections.render.fit_to_limit import DoesNotFit
from projections.render.parts import Render
from projections.render.render import render_openai
from projections.storage.records import Stored, stored_form
from projections.window.window import Window
from streams.compaction.requests import policy_version
from streams.recovery.callable_failures import check_rendered
from streams.runtime.keyed_limit import LARGE, KeyedLimit, Made

Format = Literal["openai", "anthropic", "events", "rendered"]
FORMATS: tuple[str, ...] = get_args(Format)
PATIENCE = 5.0
"""Seconds that a read waits for its turn, and while a window is folded from the log."""
WAITING = 64 << 20
"""Bytes of one tenant's large windows that may wait: they are in memory."""

ENTRY = 512
"""Bytes that a message counts more: the work on it takes some 8 us, that on 512 bytes 1 us, and no
more than some 5 ms are done in the event loop.
"""
FIELDS = 4
"""Fields that a message has; each one more counts as much as a message."""


def check_format(name: str, known: tuple[str, ...] = FORMATS) -> str:
    """Return ``name`` if it is one of the formats ``known``; raises :class:`InvalidRequest`."""
    if name not in known:
        raise InvalidRequest(f"format {name[:40]!r} is not one of {', '.join(known)}")
    return name


def rendered(window: Window, max_tokens: int | None = None) -> Render:
    """Render a window for whoever asked for it.

    Raises:
        DoesNotFit: the messages that must stay are larger than the ceiling or ``max_tokens``.
        CallableUnavailable: its policy calls, in each render, a callable that is missing here.
    """
    check_rendered(window)
    return render_openai(window, max_tokens)


def document(window: Window, fmt: str, max_tokens: int | None = None) -> bytes:
    """Render a window, and return its context document; raises like :func:`rendered` and
    :func:`document_of`.
    """
    return document_of(window, rendered(window, max_tokens), fmt)


def document_of(window: Window, render: Render, fmt: str) -> bytes:
    """The context document of a window and its render in one of :data:`FORMATS`, as JSON.

    ``render_digest`` is the SHA-256 of the bytes of ``messages``. ``events`` gives all events of a
    window: ``tokens`` and ``trace`` are the render's. ``rendered`` gives the render's messages
    as flat events.

    Raises:
        InvalidRequest: there is no such format.
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


async def document_beside(
    window: Window, fmt: str, max_tokens: int | None, turns: KeyedLimit
) -> tuple[Render, bytes]:
    """:func:`rendered` and its :func:`document_of`, made :func:`beside` others' requests."""

    def make() -> tuple[Render, bytes]:
        render = rendered(window, max_tokens)
        return render, document_of(window, render, fmt)

    return await beside(size_of(window), turns, window.key.tenant, make)


async def window_beside(
    stored: Stored, key: Key, partition: int, rules: Rules, turns: KeyedLimit
) -> Window:
    """The window of stored fields, loaded :func:`beside` others' requests; raises like
    :meth:`Stored.load`.
    """
    size = size_to_load(stored, key)
    return await beside(size, turns, key.tenant, lambda: stored.load(key, partition, rules))


def size_to_load(stored: Stored, key: Key) -> int:
    """What loading a window takes, as :func:`size_of` says of work on it; raises
    :class:`CorruptWindow`.
    """
    with stored_form(key):
        return stored.size + ENTRY * stored.entries


def size_of(window: Window) -> int:
    """What work on a window takes, as bytes: those of the messages in its tail and its system lane,
    and ``ENTRY`` for each, and for each part of theirs; of ``exact`` cuts as often as there are
    reducers.
    """
    bodies = [entry.body for entry in window.tail] + [one.body for one in window.state.pinned]
    parts = max(0, sum(map(fields_in, bodies)) - FIELDS * len(bodies))
    size, policy = sum(map(len, bodies)) + ENTRY * (len(bodies) + parts), window.policy
    return size * (1 + len(policy.reducers)) if policy.cuts == "exact" else size


def fields_in(value: bytes) -> int:
    """The fields of the objects in a JSON text, about."""
    return value.count(b'":')


def turns_of_large() -> KeyedLimit:
    """Of each tenant one work on many bytes at a time, for :func:`beside`."""
    return KeyedLimit(1, PATIENCE, WAITING)


async def beside(size: int, turns: KeyedLimit, tenant: str, make: Callable[[], Made]) -> Made:
    """What ``make`` returns, which works on ``size`` bytes; if they are many, within one of its
    tenant's ``turns``, as :meth:`Turn.work` does it. Raises :class:`Overloaded` where too much
    waits.
    """
    if size <= LARGE:
        return make()
    async with turns.of(tenant, size) as turn:
        return await turn.work(size, make)


class Messages(NamedTuple):
    """The part of a context document that a model receives, with its token count and digest.
    ``system`` is Anthropic's.
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
    """The messages of a context document; they are not parsed."""
    found = msgspec.json.decode(document, type=_Document)
    return Messages(found.messages.copy(), found.system, found.tokens, found.render_digest)


class Again(NamedTuple):
    """What a call's window is now: its messages, or why it is ``refused`` to render it."""

    messages: Messages | None
    refused: str
    policy: str
    summary_id: str | None


def messages_again(window: Window, fmt: str, max_tokens: int | None) -> Again:
    """The messages that a recorded call would have of this window."""
    summary = window.meta.summary
    rest = policy_version(window.policy), None if summary is None else summary.summary_id
    try:
        return Again(messages_of(document(window, fmt, max_tokens)), "", *rest)
    except DoesNotFit as error:
        return Again(None, str(error), *rest)
