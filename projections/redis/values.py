"""The values that Redis holds for a partition: its state, the fields of windows, sorted sets."""

from __future__ import annotations

import math
from collections.abc import Sequence

import cramjam

from projections.names import Key, parse_key
from projections.redis.node import Node
from projections.storage.listing import Lists
from projections.storage.records import Checkpoint, Stored
from projections.storage.stubs import ZSTD
from projections.storage.window_copies import CopiesChange
from projections.window.meta import VERSION

STATE = (
    b"revision",
    b"offset",
    b"timestamp",
    b"hash",
    b"target",
    b"layout",
    b"server",
    b"ahead",
    b"rollbacks",
    b"withheld_until",
)
Command = tuple[str, str, Sequence[str | bytes | int]]
"""A key, a command and its other arguments."""
LAYOUT = b"6.%d" % VERSION
"""How windows lie here, and what the fold makes of the log, in each partition's state: what another
release left is not read, its partitions are folded anew.
"""
COMPRESS_FROM = 2_048
"""Bytes of a field from which on compression pays."""


def at_of(score: float) -> int:
    """The time that a member of a sorted set has; -1 for a score that no time has."""
    return int(score) if math.isfinite(score) else -1


def by_key(rows: list[tuple[bytes, float]]) -> dict[Key, int]:
    """A sorted set's members; a name that is no conversation's has the tenant "" here."""
    return {
        parse_key(name) or Key("", name.decode("utf-8", "replace")): at_of(at) for name, at in rows
    }


def stored_windows(answers: list[dict[bytes, bytes]], recent_ids: bool) -> list[Stored | None]:
    """The windows of HGETALL's answers; with ``recent_ids`` every second answer is their blocks."""
    if not recent_ids:
        return [Stored(plain(fields), {}) if fields else None for fields in answers]
    return [
        Stored(plain(answers[i]), plain(answers[i + 1])) if answers[i] else None
        for i in range(0, len(answers), 2)
    ]


def compressed(value: bytes) -> bytes:
    """A field as zstd where that pays: level 3 took 24 us for 4 KB of a real talk, to 37 % of its
    size; 90 us and 21 % for 32 KB.
    """
    return bytes(cramjam.zstd.compress(value, level=3)) if len(value) >= COMPRESS_FROM else value


def plain(fields: dict[bytes, bytes]) -> dict[bytes, bytes]:
    """The fields as they were before they were compressed; what cannot be read stays as it is, and
    is found out when it is decoded.
    """
    for name, value in fields.items():
        if value.startswith(ZSTD):
            try:
                fields[name] = bytes(cramjam.zstd.decompress(value))
            except cramjam.DecompressionError:
                fields[name] = value
    return fields


def checkpoint_of(state: dict[bytes, bytes], node: Node) -> Checkpoint | None:
    """A partition's checkpoint, as ``node`` holds it; None: it has to be folded anew."""
    if state.get(b"layout") != LAYOUT:
        return None
    try:
        return Checkpoint(
            revision=state[b"revision"].decode(),
            offset=int(state[b"offset"]),
            timestamp=int(state[b"timestamp"]),
            digest=state[b"hash"].decode(),
            target=int(state[b"target"]),
            # Written by a former process of this server, or by another one that it took over from:
            # it may be older than what was served.
            unverified=state.get(b"server", b"").decode() != node.server,
            # Where it is not said which conversations are not that far, none is known to be.
            ahead=int(state.get(b"ahead", b"-1")) if b"rollbacks" in state else -1,
            rollbacks=_rollbacks_of(state.get(b"rollbacks", b"")),
            withheld_until=int(state.get(b"withheld_until", b"0")),
        )
    except (KeyError, ValueError):
        return None


def list_commands(lists: Lists, begin: str) -> list[Command]:
    """The commands that change a partition's lists; their keys begin with ``begin``."""
    commands: list[Command] = [
        (begin + name, "ZADD", [part for member, at in times.items() for part in (at, member)])
        for name, times in lists.put.items()
    ]
    commands += [(begin + name, "ZREM", list(left)) for name, left in lists.gone.items()]
    return [command for command in commands if command[2]]


def copy_commands(change: CopiesChange, name: str) -> list[Command]:
    """The commands that change the hash ``name`` of a conversation's copies."""
    put: list[bytes] = [part for pair in change.put for part in pair]
    commands: list[Command] = [
        (name, "DEL", [name] if change.clear else []),
        (name, "HDEL", change.gone),
        (name, "HSET", put),
    ]
    return [command for command in commands if command[2]]


def rollbacks_text(checkpoint: Checkpoint) -> str:
    """The conversations of a checkpoint that are being restored, as they are stored."""
    return " ".join([f"{offset}:{name}" for name, offset in checkpoint.rollbacks])


def _rollbacks_of(text: bytes) -> tuple[tuple[str, int], ...]:
    pairs = [item.split(":", 1) for item in text.decode().split()]
    return tuple((name, int(offset)) for offset, name in pairs)
