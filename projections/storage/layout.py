"""How a window lies in a store: a few named fields, of which a batch writes those that changed.

``h`` is the head: counters, and the read header; written with every batch. ``b`` is the
base: the state before the tail and the active summary; written when they change. ``c`` is the card
(``projections.storage.card``). Fields with a number are the tail's chunks, in order. New entries go
to the newest chunk, which is written again until it is full; full small chunks are joined by
eights. So each entry is written a few times, small while it is new, and a read of any length finds
few fields. Recent ids lie apart, in numbered blocks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Mapping
from hashlib import sha256
from itertools import accumulate
from typing import NamedTuple

import msgspec
from msgspec import Struct

from projections.names import Key
from projections.policy.policy import Rules
from projections.render.read_header import ReadHeader, flat_digest, read_header_of
from projections.storage.card import CARD, LastMessage, Opened, encode_card, last_message, opened
from projections.storage.chunks import (
    MERGED,
    PER_ENTRY,
    SMALL,
    decode_chunk,
    encode_chunk,
    entries_of,
    stored_size,
)
from projections.window.conversation_state import ConversationState
from projections.window.meta import PROGRESS, ActiveSummary, Meta, Progress
from projections.window.recent_ids import BLOCK, LIMIT, RecentIds, first_block
from projections.window.window import Window

HEAD = b"h"
BASE = b"b"
_OTHERS = frozenset({HEAD, BASE, CARD})


class Head(Progress, array_like=True):
    """The counters of a window, how many entries at the front of its first chunk have left the
    tail, its read header, and what its fields are.

    ``base`` and ``chunks`` (by number) are :func:`checksum` of the other fields: whoever has one of
    them already need not read it again, and a field that is not of this head is found out.
    ``messages`` is the SHA-256 of the rendered messages where the read header is flat. ``at_ms`` is
    the time of its last record, by the broker's clock.
    """

    skip: int
    read_header: ReadHeader
    base: bytes
    chunks: dict[int, bytes]
    messages: bytes
    at_ms: int


class Base(Struct, array_like=True):
    """What a window stands on before its tail."""

    state: ConversationState
    summary: ActiveSummary | None


_encode = msgspec.msgpack.Encoder().encode
decode_head = msgspec.msgpack.Decoder(Head).decode
"""Decode field ``h``; raises :class:`msgspec.DecodeError`."""
decode_base = msgspec.msgpack.Decoder(Base).decode
"""Decode field ``b``; raises :class:`msgspec.DecodeError`."""


def checksum(value: bytes) -> bytes:
    """What tells a field's value from another one: the first 8 bytes of its SHA-256."""
    return sha256(value).digest()[:8]


class Placed(NamedTuple):
    """A stored chunk: its number, the running numbers of its entries (the end excluded), and about
    how large it is.
    """

    number: int
    start: int
    end: int
    size: int


class Mark(NamedTuple):
    """What of a window a store already holds; the default is nothing."""

    tail_revision: int = 0
    base_revision: int = -1
    end: int = 0
    added: int = 0
    chunks: tuple[Placed, ...] = ()
    checksums: dict[int, bytes] = {}  # noqa: RUF012 (never written to)
    base_checksum: bytes = b""
    opened: Opened = Opened()

    @property
    def nothing(self) -> bool:
        """Whether the store holds nothing of the window."""
        return self.base_revision < 0


class Changes(NamedTuple):
    """The fields that bring a store up to date: those to put, those to delete, whether all others
    go first; and the mark after it.
    """

    reset: bool
    put: list[tuple[bytes, bytes]]
    gone: list[bytes]
    id_blocks_put: list[tuple[bytes, bytes]]
    id_blocks_gone: list[bytes]
    after: Mark


def changes_of(window: Window, mark: Mark, at_ms: int = 0) -> Changes:
    """What has to be written so that a store that is at ``mark`` holds the window as it is now.

    ``at_ms`` is the time of its last record.
    """
    reset = mark.nothing or window.tail_revision != mark.tail_revision or window.start > mark.end
    old = () if reset else mark.chunks
    plan = _plan(window, old, window.start if reset else mark.end)
    skip = max(0, window.start - plan[0].start) if plan else 0
    put: list[tuple[bytes, bytes]] = []
    base_checksum = mark.base_checksum
    if reset or window.base_revision != mark.base_revision:
        put.append((BASE, _encode(Base(window.meta.base, window.meta.summary))))
        base_checksum = checksum(put[0][1])
    now = opened(window.state)
    gone: list[bytes] = []
    if reset or now != mark.opened:
        card = encode_card(now)
        if card:
            put.append((CARD, card))
        elif not reset:
            gone.append(CARD)
    known, checksums = set(old), {}
    for chunk in plan:
        if chunk in known:
            checksums[chunk.number] = mark.checksums[chunk.number]
        else:
            first = max(chunk.start, window.start) - window.start
            value = encode_chunk(window.tail[first : chunk.end - window.start])
            checksums[chunk.number] = checksum(value)
            put.append((b"%d" % chunk.number, value))
    put.append((HEAD, _encode_head(window, skip, base_checksum, checksums, at_ms)))
    kept = {chunk.number for chunk in plan}
    gone += [b"%d" % chunk.number for chunk in old if chunk.number not in kept]
    added = window.recent_ids.added
    if reset and window.meta.erased:
        # The erasure set them back: all that is stored goes, and what there is now is written
        # whole.
        kept_ids, gone_ids = (
            range(first_block(added), -(-added // BLOCK)),
            range(first_block(mark.added), -(-mark.added // BLOCK)),
        )
        gone_ids = range(max(gone_ids.start, kept_ids.stop), gone_ids.stop)
    else:
        kept_ids = (
            range(max(first_block(added), mark.added // BLOCK), -(-added // BLOCK))
            if added > mark.added
            else range(0)
        )
        gone_ids = range(first_block(mark.added), min(first_block(added), -(-mark.added // BLOCK)))
    return Changes(
        reset,
        put,
        gone,
        [(b"%d" % n, window.recent_ids.block_of(n)) for n in kept_ids],
        [b"%d" % n for n in gone_ids],
        Mark(
            window.tail_revision,
            window.base_revision,
            window.start + len(window.tail),
            added,
            tuple(plan),
            checksums,
            base_checksum,
            now,
        ),
    )


def _plan(window: Window, old: tuple[Placed, ...], at: int) -> list[Placed]:
    """The chunks the tail lies in: those of ``old`` that still hold entries, and the entries from
    running number ``at`` on.
    """
    start, end = window.start, window.start + len(window.tail)
    plan = [chunk for chunk in old if chunk.end > start]
    number = max((chunk.number for chunk in old), default=-1) + 1
    first, size = at, 0
    if at < end and plan and plan[-1].size < SMALL:
        # The newest chunk is not full: it is written again with what came.
        newest = plan.pop()
        number, first, size = newest.number, max(newest.start, start), newest.size
    new = window.tail[at - start :]
    # Running sums, and a search for each boundary: entries are not looked at one by one.
    sums = list(
        accumulate(
            [
                len(e.body) + PER_ENTRY
                if e.calls is None and e.positions is None and not e.variants
                else stored_size(e)
                for e in new
            ],
            initial=0,
        )
    )
    i = 0
    while i < len(new):
        # As many as fit beside what is in the chunk, but one at least in an empty one.
        upto = bisect_right(sums, sums[i] + SMALL - size, i + 1) - 1
        if upto == i and not size:
            upto = i + 1
        size += sums[upto] - sums[i]
        i = upto
        if i < len(new):
            plan.append(Placed(number, first, at + i, size))
            number, first, size = number + 1, at + i, 0
    if first < end:
        plan.append(Placed(number, first, end, size))
    return _merged(plan, start, at)


def _merged(plan: list[Placed], start: int, at: int) -> list[Placed]:
    """Join small chunks, eight at a time or as many as fit; the newest, which still grows, stays
    apart.

    Those with nothing but entries from running number ``at`` on are joined at once: no store has
    them yet, so each entry is written once less.
    """
    run = len(plan) - 1
    while run > 0 and plan[run - 1].start >= at:
        run -= 1
    _join(plan, run, start, fewest=2)
    run = len(plan) - 1
    while run > 0 and plan[run - 1].size <= 2 * SMALL:
        run -= 1
    _join(plan, run, start, fewest=MERGED)
    return plan


def _join(plan: list[Placed], run: int, start: int, fewest: int) -> None:
    """Join the chunks from index ``run`` on but for the newest, while there are ``fewest``."""
    while len(plan) - 1 - run >= fewest:
        n, size = 0, 0
        while n < min(MERGED, len(plan) - 1 - run) and (
            not n or size + plan[run + n].size <= MERGED * SMALL
        ):
            size += plan[run + n].size
            n += 1
        plan[run : run + n] = [
            Placed(plan[run].number, max(plan[run].start, start), plan[run + n - 1].end, size)
        ]
        run += 1


def _encode_head(
    window: Window, skip: int, base_checksum: bytes, checksums: dict[int, bytes], at_ms: int
) -> bytes:
    meta, header = window.meta, read_header_of(window)
    messages = flat_digest(window) if header.flat else b""
    progress = {name: getattr(meta, name) for name in PROGRESS}
    return _encode(
        Head(
            skip=skip,
            read_header=header,
            base=base_checksum,
            chunks=checksums,
            messages=messages,
            at_ms=at_ms,
            **progress,
        )
    )


def numbered(fields: Mapping[bytes, bytes]) -> list[tuple[bytes, bytes]]:
    """The tail's fields, in order."""
    return [
        (name, fields[name])
        for name in sorted((name for name in fields if name not in _OTHERS), key=int)
    ]


def load_window(
    key: Key,
    partition: int,
    rules: Rules,
    fields: dict[bytes, bytes],
    id_blocks: dict[bytes, bytes],
) -> tuple[Window, Mark]:
    """Build a window from its fields, with the mark of a store that holds it.

    Raises:
        ValueError, KeyError, msgspec.DecodeError: the fields are not what was stored.
    """
    head, base = decode_head(fields[HEAD]), decode_base(fields[BASE])
    progress = {name: getattr(head, name) for name in PROGRESS}
    meta = Meta(base=base.state, summary=base.summary, **progress)
    found = numbered(fields)
    if (
        checksum(fields[BASE]) != head.base
        or {int(name): checksum(value) for name, value in found} != head.chunks
    ):
        raise ValueError("its fields are not those of its head")
    tail, chunks, at = [], [], -head.skip
    for name, value in found:
        entries = entries_of(decode_chunk(value))
        chunks.append(Placed(int(name), at, at + len(entries), sum(map(stored_size, entries))))
        at += len(entries)
        tail += entries
    del tail[: head.skip]
    ids = load_recent_ids(id_blocks, head.events)
    if len(ids) != min(ids.added, LIMIT):
        raise ValueError(f"it has {len(ids)} recent ids, not those of {ids.added} events")
    window = Window(key, partition, rules, meta, tail, ids)
    if read_header_of(window) != head.read_header:
        raise ValueError("its read header is not that of its parts")
    now = opened(window.state)
    if fields.get(CARD, b"") != encode_card(now):
        raise ValueError("its card is not that of its parts")
    return window, Mark(
        window.tail_revision,
        window.base_revision,
        len(tail),
        ids.added,
        tuple(chunks),
        head.chunks,
        head.base,
        now,
    )


def last_message_of(fields: Mapping[bytes, bytes]) -> LastMessage | None:
    """The last message of a window that is there whole, None before its first; raises like
    :func:`load_window`.
    """
    head = decode_head(fields[HEAD])
    order = sorted(head.chunks)
    for number in reversed(order):
        skip = head.skip if number == order[0] else 0
        if (found := last_message(fields[b"%d" % number], skip)) is not None:
            return found
    offset = decode_base(fields[BASE]).state.last_message
    return None if offset < 0 else LastMessage("", "", offset)


def pins_results(fields: Mapping[bytes, bytes]) -> bool:
    """Whether a window has pinned tool results, in its pinned lane or in its tail; raises like
    :func:`load_window`.
    """
    if decode_base(fields[BASE]).state.pins:
        return True
    chunks = (decode_chunk(value) for _, value in numbered(fields))
    return any(entry.pinned for chunk in chunks for entry in chunk.extras.values())


def load_recent_ids(id_blocks: dict[bytes, bytes], added: int = LIMIT) -> RecentIds:
    """The recent ids from their blocks; ``added`` matters only to whoever adds to them. Raises like
    :func:`load_window`.
    """
    return RecentIds.from_blocks([id_blocks[name] for name in sorted(id_blocks, key=int)], added)
