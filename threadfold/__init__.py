"""threadfold: a bounded window over an unbounded conversation log.

``threadfold.Client`` and ``threadfold.AsyncClient`` are imported when they are first used: ``import
threadfold`` alone loads nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threadfold.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]


def __getattr__(name: str) -> Any:
    if name in __all__:
        from threadfold import client

        return getattr(client, name)
    raise AttributeError(f"module 'threadfold' has no attribute {name!r}")
