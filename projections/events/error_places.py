"""Where a value is wrong, at the end of an error of msgspec's."""

from __future__ import annotations

import re

_PLACE = re.compile(r" - at (`key` in )?`\$\.?([\w.-]*(?:\[(?:\d+|\.\.\.)\][\w.-]*)*)`\Z")
_WITHIN = 500
"""Characters at the end of an error that may name the place. It has names of our fields and numbers
alone; before it stands what a caller wrote, of any length.
"""


def place_in(error: str) -> re.Match[str] | None:
    """The end of an error that names a place: whether it is a key (1), and the place, like
    ``calls[0].id`` (2).
    """
    return _PLACE.search(error, max(0, len(error) - _WITHIN))
