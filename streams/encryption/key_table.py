"""What the keys topic says, in memory: wrapped data keys by conversation as compact bytes, and
which conversations were erased.

Two kinds of records, both under a conversation's name: ``tenant/conversation/<kid>`` holds a
wrapped data key (no value: it is deleted), and ``tenant/conversation/erased`` that the conversation
is being erased or was. An erased conversation has no keys, whatever the order in which the records
come: those before the erasure are dropped, those after it are void. One conversation's keys take 74
bytes each beside the name, about 300 in all as Python holds them.
"""

from __future__ import annotations

import base64
import binascii
import logging
from collections.abc import Iterator
from typing import Literal, NamedTuple

import msgspec

from projections.events.untrusted import json_decoder
from projections.names import parse_key
from streams.encryption.master_keys import WRAPPED_BYTES
from streams.encryption.payload_cipher import KID_BYTES

logger = logging.getLogger(__name__)

ERASED = b"erased"
_ENTRY = KID_BYTES + 2 + WRAPPED_BYTES


class KeyRecord(msgspec.Struct):
    """A data key's record: the id of its master key, and the wrapped key in base64."""

    master: str
    wrapped: str


class Erasure(msgspec.Struct, omit_defaults=True, frozen=True):
    """An erasure's record. ``begun`` is written before the log's event, ``done`` once the window
    took it; then the keys are void.

    ``log`` is what becomes of the log's payloads, ``user`` a hash of the user on whose behalf, if
    any; times are RFC 3339.
    """

    state: Literal["begun", "done"]
    erased_at: str
    log: Literal["opaque", "kept"]
    position: str | None = None
    done_at: str | None = None
    user: str | None = None


class Wrapped(NamedTuple):
    """A wrapped data key: its kid, its master key's id, and the bytes."""

    kid: bytes
    master: str
    wrapped: bytes


def key_place(conversation: bytes, kid: bytes) -> bytes:
    """The record key of a data key."""
    return conversation + b"/" + base64.urlsafe_b64encode(kid)


def encode_key(master: str, wrapped: bytes) -> bytes:
    """The record of a data key."""
    return msgspec.json.encode(KeyRecord(master, base64.b64encode(wrapped).decode()))


_decode_key = json_decoder(KeyRecord)
_decode_erasure = json_decoder(Erasure)


class KeyTable:
    """The keys topic's content as far as it was read."""

    def __init__(self) -> None:
        self._keys: dict[bytes, bytes] = {}
        self._erasures: dict[bytes, bytes] = {}
        self._begun: set[bytes] = set()
        self._masters: list[str] = []
        self.void: set[bytes] = set()
        """Places of data keys that came after their conversation's erasure and are still in the
        topic.
        """

    def put(self, place: bytes, value: bytes | None) -> bytes | None:
        """Take one record in; returns the conversation whose keys or erasure changed so that what
        was derived of them must go.

        Records of unknown kinds are left to newer releases; raises ``ValueError`` for one that
        cannot be read.
        """
        conversation, _, name = place.rpartition(b"/")
        if parse_key(conversation) is None:
            return None
        if name == ERASED:
            return self._put_erasure(conversation, value)
        try:
            kid = base64.b64decode(name, altchars=b"-_", validate=True)
        except (binascii.Error, ValueError):
            return None
        if len(kid) != KID_BYTES:
            return None
        if value is None:
            self.void.discard(place)
            return conversation if self._drop(conversation, kid) else None
        if self.is_done(conversation):
            self.void.add(place)
            return None
        record = _decode_key(value)
        wrapped = base64.b64decode(record.wrapped, validate=True)
        if len(wrapped) != WRAPPED_BYTES:
            raise ValueError(f"{len(wrapped)} bytes are no wrapped key")
        self._drop(conversation, kid)
        self._keys[conversation] = (
            self._keys.get(conversation, b"") + kid + self._number(record.master) + wrapped
        )
        return None

    def _put_erasure(self, conversation: bytes, value: bytes | None) -> bytes | None:
        if value is None:
            return None
        erasure, before = _decode_erasure(value), self.erasure(conversation)
        if before is not None:
            # A user's erasure may go on with one that was asked for by name.
            erasure = msgspec.structs.replace(erasure, user=before.user or erasure.user)
            value = msgspec.json.encode(erasure)
        if before is not None and before.state == "done":
            # The first one that was done is the one that receipts are of.
            done = msgspec.structs.replace(before, user=erasure.user)
            self._erasures[conversation] = msgspec.json.encode(done)
            return None
        self._erasures[conversation] = value
        if erasure.state == "begun":
            self._begun.add(conversation)
            return conversation
        self._begun.discard(conversation)
        self.void.update(key_place(conversation, one.kid) for one in self.of(conversation))
        self._keys.pop(conversation, None)
        return conversation

    def _drop(self, conversation: bytes, kid: bytes) -> bool:
        held = self._keys.get(conversation)
        if held is None:
            return False
        left = b"".join(
            held[i : i + _ENTRY]
            for i in range(0, len(held), _ENTRY)
            if held[i : i + KID_BYTES] != kid
        )
        if left:
            self._keys[conversation] = left
        else:
            del self._keys[conversation]
        return len(left) < len(held)

    def _number(self, master: str) -> bytes:
        if master not in self._masters:
            self._masters.append(master)
        return self._masters.index(master).to_bytes(2, "big")

    def has(self, conversation: bytes) -> bool:
        """Whether the conversation has any key."""
        return conversation in self._keys

    def find(self, conversation: bytes, kid: bytes) -> Wrapped | None:
        """One data key."""
        held = self._keys.get(conversation, b"")
        for i in range(0, len(held), _ENTRY):
            if held[i : i + KID_BYTES] == kid:
                return self._entry(held, i)
        return None

    def first(self, conversation: bytes) -> Wrapped | None:
        """The data key that new events are sealed with."""
        held = self._keys.get(conversation)
        return None if held is None else self._entry(held, 0)

    def of(self, conversation: bytes) -> list[Wrapped]:
        """All data keys of a conversation."""
        held = self._keys.get(conversation, b"")
        return [self._entry(held, i) for i in range(0, len(held), _ENTRY)]

    def all(self) -> Iterator[tuple[bytes, Wrapped]]:
        """Every data key with its conversation, as of this moment."""
        for conversation in list(self._keys):
            for one in self.of(conversation):
                yield conversation, one

    def __len__(self) -> int:
        return len(self._keys)

    @property
    def masters(self) -> int:
        """How many master keys were seen so far; it only grows."""
        return len(self._masters)

    def _entry(self, held: bytes, at: int) -> Wrapped:
        master = self._masters[int.from_bytes(held[at + KID_BYTES : at + KID_BYTES + 2], "big")]
        return Wrapped(held[at : at + KID_BYTES], master, held[at + KID_BYTES + 2 : at + _ENTRY])

    # -- erasures

    @property
    def any_erased(self) -> bool:
        """Whether there is any erasure at all."""
        return bool(self._erasures)

    def any_begun(self, tenant: str) -> bool:
        """Whether some erasure of the tenant has begun and is not done."""
        begin = tenant.encode() + b"/"
        return any(name.startswith(begin) for name in self._begun)

    def is_erased(self, conversation: bytes) -> bool:
        """Whether an erasure was begun."""
        return conversation in self._erasures

    def is_done(self, conversation: bytes) -> bool:
        """Whether an erasure is done, so that there are no keys any more."""
        return conversation in self._erasures and conversation not in self._begun

    def erasure(self, conversation: bytes) -> Erasure | None:
        """The conversation's erasure."""
        value = self._erasures.get(conversation)
        return None if value is None else _decode_erasure(value)

    def erased_for(self, tenant: str, user: str) -> list[str]:
        """The conversations of a tenant that were erased on behalf of the user of this hash."""
        begin = tenant.encode() + b"/"
        found = [
            name
            for name, value in self._erasures.items()
            if name.startswith(begin) and _decode_erasure(value).user == user
        ]
        return sorted(name[len(begin) :].decode() for name in found)
