"""Where files lie that a machine fetches or makes once, for all stacks on it."""

from __future__ import annotations

import os
from pathlib import Path


def cache_folder() -> Path:
    """Return the cache folder: THREADFOLD_CACHE, else ``threadfold`` in XDG_CACHE_HOME, else
    ``~/.cache/threadfold``.
    """
    named = os.environ.get("THREADFOLD_CACHE")
    if named:
        return Path(named).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "threadfold"
