"""Names and places: the conversation key, the opaque position, and Kafka's own partitioner.

A record's key is ``tenant/conversation``; its partition is Kafka's murmur2 of that key, so a
producer in any language and a reader of Redis find the same place without asking anybody.
"""

from __future__ import annotations

import re
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from projections.errors import InvalidName, InvalidPosition

NAME_PATTERN = r"[A-Za-z0-9._:-]{1,128}"
USERS_LOG_PATTERN = r"~[0-9a-f]{32}"
LOG_PATTERN = rf"(?:{NAME_PATTERN}|{USERS_LOG_PATTERN})"
"""The part of a record's key after the tenant: a conversation, or a user's own log."""
LONGEST_KEY = 257
"""Bytes of a record's key: two names, and the slash between them."""
_NAME = re.compile(NAME_PATTERN, re.ASCII)
_LOG = re.compile(LOG_PATTERN, re.ASCII)
POSITION_PATTERN = r"([0-9]{1,9})-([0-9]{1,18})"
_POSITION = re.compile(POSITION_PATTERN, re.ASCII)
_PLAIN = re.compile(r"[\w.:@$\[\]-]{1,80}")


class Key(NamedTuple):
    """A conversation's identity: its tenant and its own name within that tenant."""

    tenant: str
    conversation: str

    def __str__(self) -> str:
        return f"{self.tenant}/{self.conversation}"

    @property
    def source(self) -> str:
        """The CloudEvents ``source`` of this conversation's events."""
        return f"/tenants/{self.tenant}/conversations/{self.conversation}"

    @property
    def of_user(self) -> bool:
        """Whether it is the log of a user's own (:func:`users_log`), and no conversation."""
        return self.conversation.startswith("~")

    @property
    def shown(self) -> str:
        """What errors call it: a user's own log has no name that callers know."""
        return "the memory of this user" if self.of_user else f"conversation {self.conversation}"


class Position(NamedTuple):
    """Where an event stands in the log. Callers see :func:`str` of it and must treat that as
    opaque.
    """

    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.partition}-{self.offset}"


def quoted(value: object, most: int = 60) -> str:
    """A caller's value as a refusal shows it: quoted, and no more than its start."""
    if isinstance(value, str):
        return repr(value if len(value) <= most else value[:most] + "…")
    whole = repr(value)
    return whole if len(whole) <= most else whole[:most] + "…"


def one_line(text: object) -> str:
    """A caller's id, or name of a field, as a refusal shows it: as it is where it is plain, else
    :func:`quoted`.
    """
    plain = str(text)
    return plain if _PLAIN.fullmatch(plain) else quoted(plain)


def check_name(what: str, name: object) -> str:
    """Return ``name`` when it is 1-128 characters of ``A-Z a-z 0-9 . _ : -``.

    Raises:
        InvalidName: it is anything else; the message names ``what`` and shows the start of the
            value.
    """
    if isinstance(name, str) and _NAME.fullmatch(name):
        return name
    raise InvalidName(
        f"{what} {quoted(name, 40)} is not a name: use 1 to 128 characters of A-Z a-z 0-9 . _ : -"
    )


def make_key(tenant: object, conversation: object) -> Key:
    """Build a checked :class:`Key`; raises :class:`InvalidName` for either part."""
    return Key(check_name("tenant", tenant), check_name("conversation", conversation))


def user_tag(tenant: str, user: str | None) -> str:
    """What stands for a user where its id must not be readable: 32 hex digits of a SHA-256.

    Whoever guesses the user can check the guess.
    """
    return sha256(f"user\n{tenant}\n{user or ''}".encode("utf-8", "surrogatepass")).hexdigest()[:32]


def users_log(tenant: str, user: str | None) -> Key:
    """The log that holds what is saved of a user without a conversation (None: of the tenant
    itself). It is also the key of the user's records on the topic of memories.

    No caller can name it: :func:`make_key` refuses it.
    """
    return Key(tenant, "~" + user_tag(tenant, user))


def parse_key(raw: bytes) -> Key | None:
    """Read a record's key, or None when it is not one (such a record belongs to nobody)."""
    # Other producers may send keys of a megabyte: the cache would hold them.
    return None if len(raw) > LONGEST_KEY else _parse_key(raw)


@lru_cache(maxsize=65536)
def _parse_key(raw: bytes) -> Key | None:
    try:
        tenant, slash, conversation = raw.decode("ascii").partition("/")
    except UnicodeDecodeError:
        return None
    if slash and _NAME.fullmatch(tenant) and _LOG.fullmatch(conversation):
        return Key(tenant, conversation)
    return None


def parse_position(text: object) -> Position:
    """Read a position that :class:`Position` printed.

    Raises:
        InvalidPosition: the text is not such a position.
    """
    match = _POSITION.fullmatch(text) if isinstance(text, str) else None
    if match is None:
        raise InvalidPosition(f"position {quoted(text, 40)} does not come from threadfold")
    return Position(int(match[1]), int(match[2]))


def murmur2(data: bytes) -> int:
    """Kafka's 32-bit murmur2 (the Java client's ``Utils.murmur2``), unsigned."""
    length = len(data)
    h = (0x9747B28C ^ length) & 0xFFFFFFFF
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * 0x5BD1E995 & 0xFFFFFFFF
        k ^= k >> 24
        h = (h * 0x5BD1E995 & 0xFFFFFFFF) ^ (k * 0x5BD1E995 & 0xFFFFFFFF)
    rest = data[whole:]
    if rest:
        h ^= int.from_bytes(rest, "little")
        h = h * 0x5BD1E995 & 0xFFFFFFFF
    h ^= h >> 13
    h = h * 0x5BD1E995 & 0xFFFFFFFF
    return h ^ (h >> 15)


@lru_cache(maxsize=65536)
def partition_of(key: Key, partitions: int) -> int:
    """The partition of a conversation's events: ``(murmur2(key) & 0x7fffffff) % partitions``, as
    every Kafka client computes it.
    """
    return (murmur2(str(key).encode()) & 0x7FFFFFFF) % partitions
