"""A policy's callable in two releases: one that fails, and, once a file says so, the one that is
fixed.
"""

from __future__ import annotations

import os
from pathlib import Path

from tests.support.fragile import broken, mended

FIXED = "DRILL_FIXED"
"""The variable that names the file."""


def shorten(tool: str, call_id: str, text: str) -> str:
    """Replaces a tool's result."""
    release = mended if Path(os.environ[FIXED]).exists() else broken
    return release(tool, call_id, text)
