"""Master keys: what data keys are wrapped by. They come from the settings and are shown nowhere."""

from __future__ import annotations

import base64
import binascii
import os
import re
import secrets
from pathlib import Path

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from projections.errors import InvalidSettings, KeyUnusable
from streams.encryption.payload_cipher import KEY_BYTES, NONCE_BYTES
from streams.settings.settings import Settings

_ID = re.compile(r"[A-Za-z0-9._-]{1,64}", re.ASCII)
WRAPPED_BYTES = NONCE_BYTES + KEY_BYTES + 16


class MasterKeys:
    """The configured master keys by id; the first is the current one, with which new data keys are
    wrapped.
    """

    def __init__(self, keys: dict[str, bytes]) -> None:
        self.ids = tuple(keys)
        self._keys = {name: AESGCM(key) for name, key in keys.items()}

    def __repr__(self) -> str:
        return f"MasterKeys({', '.join(self.ids)})"

    @property
    def current(self) -> str:
        """The id of the first; raises :class:`KeyUnusable` where none is configured."""
        if not self.ids:
            raise KeyUnusable(
                "encryption is on, and no master key is configured: set THREADFOLD_MASTER_KEYS_FILE"
                " (`threadfold keys new-master` prints a line for it)"
            )
        return self.ids[0]

    def wrap(self, place: bytes, data_key: bytes) -> bytes:
        """Wrap a data key for the record key ``place`` with the current master key, by
        AES-256-GCM.
        """
        nonce = os.urandom(NONCE_BYTES)
        return nonce + self._keys[self.current].encrypt(nonce, data_key, place)

    def unwrap(self, place: bytes, master: str, wrapped: bytes) -> bytes:
        """The data key; raises :class:`KeyUnusable` when the master key ``master`` is not
        configured, or is another key of that id.
        """
        key = self._keys.get(master)
        if key is None:
            raise KeyUnusable(
                f"the data key {place.decode('utf-8', 'replace')} is wrapped by master key"
                f" {master!r}, which is not configured (configured:"
                f" {', '.join(self.ids) or 'none'}): add it to THREADFOLD_MASTER_KEYS or its file"
            )
        try:
            return key.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], place)
        except (InvalidTag, ValueError):
            raise KeyUnusable(
                f"the data key {place.decode('utf-8', 'replace')} cannot be unwrapped by the"
                f" configured master key {master!r}: it is not the key that this id had when it was"
                " wrapped"
            ) from None


def master_keys_of(settings: Settings) -> MasterKeys:
    """The master keys of the settings: ``master_keys`` joined by commas, or ``master_keys_file``,
    one a line (``#`` begins a comment).

    Raises:
        InvalidSettings: both are set, the file cannot be read, or an entry is not ``id:base64`` of
            32 bytes. The message shows no key.
    """
    if settings.master_keys and settings.master_keys_file:
        raise InvalidSettings(
            "settings 'master_keys' and 'master_keys_file' are both set: use one of them"
        )
    if settings.master_keys_file:
        try:
            lines = Path(settings.master_keys_file).read_text("ascii").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not ASCII"
            raise InvalidSettings(
                f"the master key file {settings.master_keys_file} cannot be read: {reason}"
            ) from None
        entries = [
            line.strip() for line in lines if line.strip() and not line.lstrip().startswith("#")
        ]
        where = f"the master key file {settings.master_keys_file}"
    else:
        entries = [entry.strip() for entry in settings.master_keys.split(",") if entry.strip()]
        where = "setting 'master_keys'"
    keys: dict[str, bytes] = {}
    for number, entry in enumerate(entries, 1):
        name, _, text = entry.partition(":")
        try:
            key = base64.b64decode(text, validate=True)
        except (binascii.Error, ValueError):
            key = b""
        if not _ID.fullmatch(name) or len(key) != KEY_BYTES:
            raise InvalidSettings(
                f"{where}: entry {number} is not id:base64 of 32 bytes (an id has letters, digits"
                " and . _ -): `threadfold keys new-master` prints one"
            )
        if name in keys:
            raise InvalidSettings(f"{where}: entry {number} has the id {name!r} of an earlier one")
        keys[name] = key
    return MasterKeys(keys)


def new_master(name: str | None = None) -> str:
    """A new master key as an entry of the settings: an id (random where none is given) and 32
    random bytes in base64.

    Raises:
        InvalidSettings: the id is none.
    """
    name = name or f"m{secrets.token_hex(4)}"
    if not _ID.fullmatch(name):
        raise InvalidSettings(
            f"{name[:60]!r} is not an id of a master key: use 1 to 64 letters, digits and . _ -"
        )
    return f"{name}:{base64.b64encode(os.urandom(KEY_BYTES)).decode()}"
