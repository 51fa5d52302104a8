"""Secrets that stand in files, as orchestrators mount them."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Self

from projections.errors import InvalidSettings

SECRETS = ("kafka_password", "redis", "token_secret", "accepted_token_secrets")
"""Settings of which each may stand in a file: the setting's name with ``_file`` behind it names the
file. Master keys have a file of their own form (``master_keys_file``).
"""
FILES = tuple(f"{name}_file" for name in SECRETS)


class SecretOfFile(str):
    """A secret as a file had it when the settings were read. Whoever encodes it gets what the file
    has now: aiokafka does at each login by SCRAM, so a new password needs no restart.
    """

    path: Path

    def __new__(cls, text: str, path: Path) -> Self:
        made = super().__new__(cls, text)
        made.path = path
        return made

    def __getnewargs__(self) -> tuple[str, Path]:  # type: ignore[override]
        return str(self), self.path

    def encode(self, encoding: str = "utf-8", errors: str = "strict") -> bytes:
        """What the file has now; what it had before while it cannot be read."""
        try:
            now = self.path.read_text().strip()
        except (OSError, UnicodeDecodeError):
            now = ""
        return (now or str(self)).encode(encoding, errors)


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
        if name == "kafka_password":
            values[name] = SecretOfFile(values[name], Path(str(path)))
    return values
