"""Which logs are erased, for reads of the long-term memory.

An erasure has begun once the keys topic says so, and every process knows that at once. The stores
learn of it later, from their own topics, or never if it was interrupted. So reads ask here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from projections.names import Key
from streams.encryption.payload_cipher import PayloadCipher

Erased: TypeAlias = Callable[[Key], bool] | None
"""Whether the erasure of a log has begun; None: nobody asks."""


def erased_by(seals: PayloadCipher) -> Callable[[Key], bool]:
    """Whether the erasure of a log has begun, as far as the keys topic was read."""
    return lambda log: seals.is_erased(str(log).encode())
