"""What an adapter needs beside threadfold, and one clear line where it is missing."""

from __future__ import annotations

from importlib.util import find_spec

from projections.errors import ThreadfoldError


class MissingExtra(ThreadfoldError, ImportError):
    """The package an adapter is for is not installed."""


def require(package: str, extra: str) -> None:
    """Make sure a package can be imported; raises :class:`MissingExtra` with what to install."""
    if find_spec(package) is None:
        raise MissingExtra(f"this adapter needs the package {package}: pip install 'threadfold[{extra}]'")
