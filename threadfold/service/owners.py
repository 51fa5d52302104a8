"""Whose a conversation is: the ``user`` of its last ``conversation.opened`` that stands.

That follows from the stored window: the newest such event of its tail, else the state before the
tail. As with contexts (``threadfold.service.window_cache``), only the fields that changed since the
last look are read, and most conversations cost one read of the head.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from projections.events.types import Opened
from projections.names import Key
from projections.storage.chunks import decode_chunk, entries_of
from projections.storage.layout import BASE, HEAD, Head, checksum, decode_base, decode_head
from projections.storage.records import stored_form
from projections.storage.stubs import STUB, decode_stub
from projections.window.entry import Kind
from threadfold.service.stored_windows import StoredWindows

MOST = 20_000
"""Conversations whose owners are remembered."""
_opened = msgspec.json.Decoder(Opened)


class Owner(NamedTuple):
    """A conversation that exists; ``user`` is None if it was opened without one."""

    user: str | None


class _Known(NamedTuple):
    """What each field said, by the checksum that the head has of it: the base's user; for a chunk,
    how many entries at its front did not count, and the last user that was named in it.
    """

    base: tuple[bytes, str | None]
    chunks: dict[int, tuple[bytes, int, str | None]]

    @property
    def user(self) -> str | None:
        named = [self.chunks[number][2] for number in sorted(self.chunks, reverse=True)]
        return next((user for user in named if user), self.base[1])


class Owners:
    """Finds the owners of conversations, for one event loop."""

    def __init__(self, windows: StoredWindows) -> None:
        self._windows = windows
        self._known: OrderedDict[Key, _Known] = OrderedDict()

    async def find(self, key: Key) -> Owner | None:
        """Whose the conversation is now; None if there is none, or if it was erased.

        Raises:
            Healing, CorruptWindow, RedisUnavailable: it cannot be known now.
        """
        fields = await self._windows.fields(key, [HEAD, STUB])
        with stored_form(key):
            known = self._known.get(key)
            if STUB in fields:
                body = decode_stub(fields[STUB]).checksum
                if known is not None and known.base[0] == body:
                    return Owner(known.user)
                whole = await self._whole(key)
                # It stays asleep: what is remembered is what this body said.
                return self._keep(key, whole and _Known((body, whole.user), {}))
            if HEAD not in fields:
                return None
            head = decode_head(fields[HEAD])
            if head.erased:
                return self._keep(key, None)
            missing = _missing(head, known)
            if not missing and known is not None:
                return Owner(known.user)
            more = await self._windows.fields(key, missing)
            if all(checksum(more.get(name, b"")) == _expected(head, name) for name in missing):
                return self._keep(key, _taken(head, known, more))
            # It changed between the two reads; read whole, it is of one moment.
            return self._keep(key, await self._whole(key))

    async def _whole(self, key: Key) -> _Known | None:
        _, stored = await self._windows.read(key, recent_ids=False)
        if stored is None or HEAD not in stored.fields:
            return None
        return _taken(decode_head(stored.fields[HEAD]), None, stored.fields)

    def _keep(self, key: Key, known: _Known | None) -> Owner | None:
        self._known.pop(key, None)
        if known is None:
            return None
        self._known[key] = known
        if len(self._known) > MOST:
            self._known.popitem(last=False)
        return Owner(known.user)


def _skipped(head: Head, number: int) -> int:
    return head.skip if number == min(head.chunks) else 0


def _missing(head: Head, known: _Known | None) -> list[bytes]:
    """The fields that say something else than when they were last read."""
    if known is None:
        return [BASE, *(b"%d" % number for number in head.chunks)]
    names = [
        b"%d" % number
        for number, sum_ in head.chunks.items()
        if known.chunks.get(number, (b"", 0))[:2] != (sum_, _skipped(head, number))
    ]
    return names if known.base[0] == head.base else [BASE, *names]


def _expected(head: Head, name: bytes) -> bytes:
    return head.base if name == BASE else head.chunks[int(name)]


def _taken(head: Head, known: _Known | None, fields: Mapping[bytes, bytes]) -> _Known | None:
    """What the fields say, those that were read now and those that are known; None if the
    conversation was erased.
    """
    if head.erased:
        return None
    old = {} if known is None else known.chunks
    chunks = {}
    for number, sum_ in head.chunks.items():
        skip, name = _skipped(head, number), b"%d" % number
        chunks[number] = (
            (sum_, skip, _user_in(fields[name], skip)) if name in fields else old[number]
        )
    if BASE in fields:
        return _Known((head.base, decode_base(fields[BASE]).state.user), chunks)
    return None if known is None else _Known(known.base, chunks)


def _user_in(value: bytes, skip: int) -> str | None:
    """The last user that a chunk's entries name."""
    chunk = decode_chunk(value)
    if Kind.OPENED not in chunk.kinds[skip:]:
        return None
    found = None
    for entry in entries_of(chunk)[skip:]:
        if entry.kind == Kind.OPENED:
            found = _opened.decode(entry.body).user or found
    return found
