"""Memory stores that lie in a folder, for tests: those whose packages are installed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path

import pytest

from streams.memory.store import LocalStore
from streams.memory.store_folder import LANCE
from streams.memory.stores import local_stores


def stores_of(kind: str) -> type[LocalStore]:
    """The stores of a kind; skips the test where they need a package that is not installed."""
    if kind == LANCE and find_spec("lancedb") is None:
        pytest.skip("no LanceDB here: pip install lancedb")
    return local_stores(kind)


def contents(path: Path) -> Iterator[bytes]:
    """What all files of a store hold, whether it is one, has others beside it, or is a folder. A
    store that is fed may delete some meanwhile.
    """
    for one in path.parent.glob(f"{path.name}*"):
        for file in [one] if one.is_file() else one.rglob("*"):
            if file.is_file():
                with suppress(FileNotFoundError):
                    yield file.read_bytes()
