"""Copies of a long conversation's window, kept at intervals: a rollback into old history folds from
the nearest one before its target, and not from the first event.

A copy is a cache and never the truth: without it the log is read further back. A store keeps at
most :data:`MOST` of a conversation at even intervals, the latest :data:`RECENT` at shorter ones,
and :data:`BACK` that were taken after rollbacks into old history. An event that an operator takes
out, and an erasure, end all of them: so where there is a copy, nothing was taken out after it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from zlib import crc32

import cramjam
import msgspec

from projections.names import Key
from projections.policy.policy import Rules
from projections.storage.snapshots import VERSION, Refilled, bare, take_snapshot
from projections.window.window import Window

EVERY = 1_000
"""Events between two copies, while there are no more than :data:`MOST`; then twice as many, and so
on. Shorter conversations have none, unless their events are large.
"""
MOST = 128
RECENT = 8
BACK = 64
LARGE = 64
"""Copies of a conversation at most: at even intervals, the latest at intervals of :data:`EVERY`,
after rollbacks into old history, and of large events. One takes about 10 KB, most of it the 1,024
recent ids.
"""
LARGE_BYTES = 8 << 20
"""Where events are so large that so many bytes came since the last copy, another one is taken.
Which older one it takes the place of is by chance: the older, the fewer are left.
"""
FEWEST = 8
"""Shorter conversations have no copy, however large their events are."""
KEPT_BYTES = 16 << 10
"""Bytes of a copy up to which there may be so many. Of copies twice as large, as where much is
pinned, half as many are kept, and so on.
"""


NamedCopy = tuple[bytes, bytes]
"""An encoded copy under its name: a later one of the same name takes its place."""


class _Record(msgspec.Struct, array_like=True, frozen=True):
    version: int
    offset: int
    summary: int | None
    body: bytes


_decode = msgspec.msgpack.Decoder(_Record).decode


@dataclass(frozen=True, slots=True)
class WindowCopy:
    """A window as it stood after the event at ``offset``, without its tail's text; ``summary`` is
    where its active summary stands. Its methods raise ``ValueError`` where ``body`` cannot be read.
    """

    offset: int
    summary: int | None
    body: bytes
    """Compressed: of many copies one or two are used."""

    def bare(self, key: Key, partition: int, rules: Rules) -> Window:
        """The window without text: whoever asks it for positions needs no more."""
        return bare(key, partition, rules, self._snapshot())

    def refilled(self, key: Key, partition: int, rules: Rules) -> Refilled:
        """The window, once it has its text."""
        return Refilled(key, partition, rules, self._snapshot())

    def _snapshot(self) -> bytes:
        try:
            return bytes(cramjam.zstd.decompress(self.body))
        except cramjam.DecompressionError as error:
            raise ValueError("a copy of a window cannot be read") from error


@dataclass(frozen=True, slots=True)
class CopiesChange:
    """What changes of a conversation's copies: ``clear`` takes all of them away first."""

    clear: bool = False
    put: tuple[NamedCopy, ...] = ()
    gone: tuple[bytes, ...] = ()

    def __bool__(self) -> bool:
        return self.clear or bool(self.put or self.gone)

    def then(self, more: CopiesChange) -> CopiesChange:
        """This change and the next one, as one."""
        if more.clear or not self:
            return more
        put = {name: value for name, value in self.put if name not in more.gone} | dict(more.put)
        gone = dict.fromkeys([*self.gone, *more.gone])
        return CopiesChange(self.clear, tuple(put.items()), tuple(n for n in gone if n not in put))


NO_CHANGE, ENDS = CopiesChange(), CopiesChange(clear=True)


def changed_copies(
    window: Window, before: int, *, back: bool = False, large: bool = False
) -> CopiesChange:
    """What changes of a window's copies once it has :data:`EVERY` events more, or went back.

    Args:
        before: how many events it had at the last change.
        back: it went back to an old event since.
        large: :data:`LARGE_BYTES` came since.
    """
    if window.meta.erased or window.meta.quarantine is not None:
        return NO_CHANGE
    now = window.meta.count
    step, former = _step(now), _step(before)
    gone = [b"%d" % at for at in range(former, now, former) if at % step] if step > former else []
    passed = now // EVERY > before // EVERY
    back, large = back and now >= EVERY, large and now >= FEWEST
    if not passed and not back and not large:
        return CopiesChange(gone=tuple(gone))
    copy = _encoded(window)
    fewer = _fewer(copy)
    names = [_large(window, fewer)] if large else []
    if now // (step * fewer) > before // (step * fewer):
        names.append(_even(now, step))
    if passed and step > EVERY:
        names.append(b"recent%d" % (now // EVERY % max(1, RECENT // fewer)))
    if back:
        names.append(b"back%d" % (window.meta.position % max(1, BACK // fewer)))
    return CopiesChange(put=tuple((name, copy) for name in names), gone=tuple(gone))


def large_copy(window: Window) -> NamedCopy | None:
    """The copy, with its name, of a fold to which :data:`LARGE_BYTES` came; None: none is kept."""
    if window.meta.count < FEWEST or window.meta.quarantine is not None:
        return None
    copy = _encoded(window)
    return _large(window, _fewer(copy)), copy


def even_copy(window: Window, before: int, count: int) -> NamedCopy | None:
    """The copy, with its name, of a fold that is on its way to ``count`` events and had ``before``
    of them a moment ago; None where none is kept.
    """
    now, step = window.meta.count, _step(count)
    if now // step == before // step or window.meta.quarantine is not None:
        return None
    copy = _encoded(window)
    step_of_large = step * _fewer(copy)
    kept = now // step_of_large > before // step_of_large
    return (_even(now, step), copy) if kept else None


def copies_anew(window: Window, since: CopiesChange = NO_CHANGE) -> CopiesChange:
    """What changes with a window that is written anew: nothing records which copies it has, but for
    those made ``since``. An erased one counts nothing any more, and may have had some.
    """
    known = since or window.meta.erased or window.meta.count >= FEWEST
    return ENDS if window.meta.erased else ENDS.then(since) if known else NO_CHANGE


def next_change(count: int) -> int:
    """The number of events at which the copies of a window of ``count`` events change next."""
    return (count // EVERY + 1) * EVERY


def decode_copies(values: Iterable[bytes]) -> list[WindowCopy]:
    """The copies that these values hold, by offset; what this code cannot use is left out."""
    found = []
    for value in values:
        try:
            record = _decode(value)
        except msgspec.DecodeError:
            continue
        if record.version == VERSION:
            found.append(WindowCopy(record.offset, record.summary, record.body))
    return sorted(found, key=lambda copy: copy.offset)


def _step(count: int) -> int:
    step = EVERY
    while count > MOST * step:
        step *= 2
    return step


def _fewer(copy: bytes) -> int:
    """Of how many such copies one is kept: a power of two."""
    fewer = 1
    while len(copy) > fewer * KEPT_BYTES:
        fewer *= 2
    return fewer


def _large(window: Window, fewer: int) -> bytes:
    # Positions may be so many apart each time: not their own remainder.
    return b"large%d" % (crc32(b"%d" % window.meta.position) % max(1, LARGE // fewer))


def _even(count: int, step: int) -> bytes:
    return b"%d" % (count // step * step)


def _encoded(window: Window) -> bytes:
    meta = window.meta
    summary = None if meta.summary is None else meta.summary.offset
    body = bytes(cramjam.zstd.compress(take_snapshot(window), level=3))
    return msgspec.msgpack.encode(_Record(VERSION, meta.position, summary, body))
