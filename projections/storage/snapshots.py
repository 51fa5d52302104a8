"""Snapshots: the bounded part of a window without its tail's text, and the records that carry it on
the snapshots topic.

A snapshot is an index only: losing it costs time. It is of use to the very generation that wrote
it, and to code that folds and lays out windows the same way; whatever else a record holds, it
decodes to None and is not trusted.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from hashlib import sha256

import msgspec

from projections.events.types import AnyEvent
from projections.events.untrusted import Undecodable, refusing
from projections.fold.rehydration import has_text, refill, tools_of
from projections.names import Key, Position
from projections.policy.policy import Rules
from projections.reducers.variants import Variants
from projections.window.entry import Entry
from projections.window.image import decode_meta, encode_meta
from projections.window.meta import VERSION as WINDOW_VERSION
from projections.window.meta import Meta
from projections.window.recent_ids import RecentIds
from projections.window.window import Window

VERSION = 5
"""Raised whenever the records below, or what the fold makes of the same events, change: older
snapshots are left aside then.
"""

MARKER_KEY = b"!marker"
"""The key of a partition's marker; no conversation's key can be it (it has no slash)."""


class Stamp(msgspec.Struct, array_like=True, frozen=True):
    """By which code and rules a record was made; only a record of an equal stamp is trusted."""

    generation: int
    rules: bytes
    version: int = VERSION
    window_version: int = WINDOW_VERSION


class Snapshot(msgspec.Struct, array_like=True, frozen=True):
    """One conversation's record: its window as it stood when the partition's checkpoint was at
    ``offset``.

    All the conversation's events up to ``offset`` are in it. ``digest`` identifies the log's record
    there, ``text`` is how many bytes of text were left in the log, ``body`` is what
    :func:`take_snapshot` gave.
    """

    stamp: Stamp
    offset: int
    digest: str
    text: int
    body: bytes


class Marker(msgspec.Struct, array_like=True, frozen=True):
    """A round's end: every window of the partition is on the topic with all its events up to
    ``offset``, or has none of them.

    ``digest`` identifies the log's record at ``offset``. Records of the snapshots topic before its
    offset ``clean`` have been looked after by the marker's writer; later ones are good only when
    they say that they reach as far as the marker. ``begin`` is the first offset there was: when it
    has moved, somebody deleted records. ``timestamp``: ms.
    """

    stamp: Stamp
    offset: int
    digest: str
    begin: int
    clean: int
    timestamp: int


def stamp_of(generation: int, rules: Rules) -> Stamp:
    """The stamp of records that this code writes for a generation (tenants' policies are fixed by
    its number).
    """
    return Stamp(
        generation,
        sha256(msgspec.json.encode(rules.deployment, order="deterministic")).digest()[:8],
    )


def encode_snapshot(
    window: Window, stamp: Stamp, offset: int, digest: str, seal: Callable[[bytes], bytes] = bytes
) -> bytes:
    """The record of a window as it stands at the partition's checkpoint ``offset``; ``seal`` is
    what is made of its body.
    """
    text = sum(len(entry.body) for entry in window.tail)
    return msgspec.msgpack.encode(
        Snapshot(stamp, offset, digest, text, seal(take_snapshot(window)))
    )


def encode_marker(marker: Marker) -> bytes:
    """The record of a marker."""
    return msgspec.msgpack.encode(marker)


_snapshots = refusing(msgspec.msgpack.Decoder(Snapshot).decode)
_markers = refusing(msgspec.msgpack.Decoder(Marker).decode)


def decode_snapshot(value: bytes | None, stamp: Stamp) -> Snapshot | None:
    """Read a conversation's record; None when it is not one, or of another stamp."""
    try:
        found = _snapshots(value)
    except Undecodable:
        return None
    return found if found.stamp == stamp else None


def encode_packed(stamp: Stamp, offset: int, digest: str, body: bytes) -> bytes:
    """The record of a window that goes to sleep: ``body`` is what
    ``projections.storage.stubs.pack`` gave, sealed where it has to be.
    """
    return msgspec.msgpack.encode(Snapshot(stamp, offset, digest, 0, body))


def body_of(value: bytes | None) -> bytes | None:
    """The body of a conversation's record, whatever its stamp; None when it is not one."""
    try:
        return _snapshots(value).body
    except Undecodable:
        return None


def decode_marker(value: bytes | None, stamp: Stamp) -> Marker | None:
    """Read a marker; None when it is not one, or of another stamp."""
    try:
        found = _markers(value)
    except Undecodable:
        return None
    return found if found.stamp == stamp else None


def take_snapshot(window: Window) -> bytes:
    """The bounded part of a window without its tail's text: what :class:`Refilled` needs beside
    the events at the tail's positions.
    """
    bare = [
        msgspec.structs.replace(e, body=b"", reasoning=b"") if e.body else e for e in window.tail
    ]
    return msgspec.msgpack.encode((encode_meta(window.meta), bare, window.recent_ids.packed()))


class _Parts(msgspec.Struct, array_like=True):
    meta: bytes
    tail: list[Entry]
    recent_ids: bytes


_parts = refusing(msgspec.msgpack.Decoder(_Parts).decode)
_meta = refusing(decode_meta)


def bare(key: Key, partition: int, rules: Rules, snapshot: bytes) -> Window:
    """The window a snapshot was taken of, without its tail's text; raises ``ValueError`` when it
    cannot be read.
    """
    parts = _parts(snapshot)
    return _window(key, partition, rules, parts, _meta(parts.meta))


class Refilled:
    """A window that is built of a snapshot and of its events' text, which may come in parts."""

    def __init__(self, key: Key, partition: int, rules: Rules, snapshot: bytes) -> None:
        """Raises ``ValueError`` when the snapshot cannot be read."""
        self._of = key, partition, rules
        self._parts = _parts(snapshot)
        self._head = _meta(self._parts.meta)
        self._missing = {entry.offset: entry for entry in self._parts.tail if has_text(entry)}
        self._tools = tools_of(self._parts.tail)
        self._variants = Variants(
            lambda offset: str(Position(partition, offset)),
            "",
            rules.callables,
            partial(rules.note_failure, key),
        )

    @property
    def position(self) -> int:
        """The offset of its last event."""
        return self._head.position

    @property
    def missing(self) -> list[int]:
        """The offsets of the events that it needs yet, ascending."""
        return list(self._missing)

    def put(self, event_at: Callable[[int], AnyEvent | None]) -> None:
        """Take the text of those events that it needs and that are there; raises ``KeyError`` for
        one of another kind.
        """
        for offset, entry in list(self._missing.items()):
            event = event_at(offset)
            if event is not None:
                refill(entry, event, self._variants, self._tools)
                del self._missing[offset]

    def window(self) -> Window:
        """The window, byte for byte; raises ``KeyError`` where an event is missing: the log lost
        it, or the snapshot is of another incarnation of the topic.
        """
        if self._missing:
            raise KeyError(next(iter(self._missing)))
        return _window(*self._of, self._parts, self._head)


def _window(key: Key, partition: int, rules: Rules, parts: _Parts, meta: Meta) -> Window:
    return Window(
        key,
        partition,
        rules,
        meta,
        parts.tail,
        RecentIds(parts.recent_ids, meta.events),
    )
