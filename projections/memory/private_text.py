"""What is marked as private in a text, which is never stored."""

from __future__ import annotations

import re

_PRIVATE = re.compile(r"<private>.*?(</private>|\Z)", re.DOTALL | re.IGNORECASE)


def without_private(text: str) -> str:
    """A text without its parts between ``<private>`` and ``</private>``; one that is not closed
    reaches to the end.
    """
    return _PRIVATE.sub("", text).strip() if "<" in text else text.strip()
