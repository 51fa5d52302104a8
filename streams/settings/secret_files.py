"""Secrets that stand in files, as orchestrators mount them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from projections.errors import InvalidSettings

SECRETS = ("kafka_password", "redis", "token_secret", "accepted_token_secrets")
"""Settings of which each may stand in a file: the setting's name with ``_file`` behind it names the
file. Master keys have a file of their own form (``master_keys_file``).
"""
FILES = tuple(f"{name}_file" for name in SECRETS)


def read_secrets(values: dict[str, Any]) -> dict[str, Any]:
    """The values with those of the named files in place of the names. Blanks and line breaks at a
    file's ends do not count.

    Raises:
        InvalidSettings: a file cannot be read or is empty, or the setting is given as well.
    """
    values = dict(values)
    for name in SECRETS:
        path = values.pop(f"{name}_file", None)
        if path is None:
            continue
        if values.get(name):
            raise InvalidSettings(f"settings {name!r} and '{name}_file' exclude each other")
        try:
            values[name] = Path(str(path)).read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = getattr(error, "strerror", None) or "it is not text"
            raise InvalidSettings(
                f"setting '{name}_file': {path} cannot be read: {reason}"
            ) from None
        if not values[name]:
            raise InvalidSettings(f"setting '{name}_file': {path} is empty")
    return values
