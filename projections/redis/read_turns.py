"""Turns of tenants to read what is large: others' reads share the connections and the processor."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Protocol, TypeAlias

LARGE = 256 << 10
"""Bytes beyond which a read makes its tenant rest."""
RATE = 75 << 20
"""Bytes a second that a place for reads has, then."""


class Turn(Protocol):
    """A tenant's place; ``rest``: seconds that it stays taken after the read."""

    rest: float


ReadTurns: TypeAlias = Callable[[str], AbstractAsyncContextManager[Turn | None]]
"""The turns of a tenant by its name."""


def no_turns(tenant: str) -> AbstractAsyncContextManager[None]:
    """Everybody reads at once."""
    del tenant
    return nullcontext()


def rest_after(turn: Turn | None, found: Sequence[Mapping[bytes, bytes]]) -> None:
    """Let others' work be done after these fields were read."""
    if turn is not None:
        size = sum([sum(map(len, fields.values())) for fields in found])
        turn.rest += max(0, size - LARGE) / RATE
