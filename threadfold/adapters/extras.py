"""What an adapter needs beside threadfold, and one clear line where it is missing."""

from __future__ import annotations

from importlib.util import find_spec

from projections.errors import ThreadfoldError
from threadfold.client import AsyncClient


class MissingExtra(ThreadfoldError, ImportError):
    """The package an adapter is for is not installed."""


def require(package: str, extra: str) -> None:
    """Make sure a package can be imported; raises :class:`MissingExtra` with what to install."""
    if find_spec(package) is None:
        raise MissingExtra(
            f"this adapter needs the package {extra}: pip install 'threadfold[{extra}]'"
        )


def needs_asynchronous(client: object, adapter: str) -> None:
    """Raise ``TypeError`` for a synchronous client, where its calls would be awaited."""
    if not isinstance(client, AsyncClient):
        raise TypeError(
            f"{adapter} needs an AsyncClient, not a {type(client).__name__}: what it calls is"
            " awaited"
        )
