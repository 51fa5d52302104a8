"""What an adapter needs beside the client, and one clear line where it is missing."""

from __future__ import annotations

from importlib.util import find_spec

from threadfold_client.aio import AsyncClient


class MissingExtra(ImportError):
    """The package an adapter is for is not installed."""


def require(package: str, extra: str, distribution: str = "threadfold-client") -> None:
    """Make sure a package can be imported; raises :class:`MissingExtra` with what to install."""
    if find_spec(package) is None:
        raise MissingExtra(
            f"this adapter needs the package {extra}: pip install '{distribution}[{extra}]'"
        )


def needs_asynchronous(client: object, adapter: str) -> None:
    """Raise ``TypeError`` for a client whose calls cannot be awaited."""
    if not isinstance(client, AsyncClient):
        raise TypeError(
            f"{adapter} awaits its client's calls: give it an AsyncClient, not a"
            f" {type(client).__name__}"
        )
