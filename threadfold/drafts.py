"""Drafts: what a caller wants appended, checked as a whole list and turned into records, with their ids."""

from __future__ import annotations

import secrets
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from hashlib import sha256

from projections.errors import InvalidEvent, InvalidPolicy, InvalidPosition
from projections.intake import Record, make_record
from projections.names import Key, make_key, parse_position, partition_of
from projections.policy import Rules, make_policy

MANY_ITEMS = 50
LONG_TEXT = 50_000


class Drafter:
    """Turns the flat events of one call into records. Pure but for the clock and random ids.

    ``tenant`` is whose they are, ``rules`` the live generation's, ``partitions`` the log's, ``max_bytes`` the limit of one event.
    """

    def __init__(self, tenant: str, rules: Rules, partitions: int, max_bytes: int) -> None:
        self._tenant = tenant
        self._rules = rules
        self._partitions = partitions
        self._max_bytes = max_bytes

    def records(self, items: Sequence[tuple[str, object]], noun: str, operator: bool, id_seed: str | None) -> list[Record]:
        """One record for each ``(conversation, flat event)``, in order; errors count them from 1, like ``event 3``.

        Raises:
            InvalidName, InvalidEvent, EventTooLarge, InvalidPolicy: the first item that is wrong, named.
        """
        encoding = self._rules.for_conversation(self._tenant, None).encoding
        now = datetime.now(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
        records = []
        for i, (conversation, flat) in enumerate(items, 1):
            where = f"{noun} {i}"
            key = make_key(self._tenant, conversation)
            record = make_record(
                key,
                flat,
                where=where,
                now=now,
                new_id=new_id() if id_seed is None else derived_id(self._tenant, id_seed, i - 1),
                encoding=encoding,
                max_bytes=self._max_bytes,
                operator=operator,
            )
            if isinstance(flat, dict):
                self._check_meaning(key, flat, where)
            records.append(record)
        return records

    def _check_meaning(self, key: Key, flat: dict[str, object], where: str) -> None:
        """What the form alone does not tell: a policy that cannot hold, a rollback into another conversation."""
        kind = flat["type"]
        if kind == "conversation.opened" and isinstance(policy := flat.get("policy"), dict):
            try:
                make_policy(self._rules.deployment, self._rules.tenants.get(self._tenant), policy)
            except InvalidPolicy as error:
                raise InvalidPolicy(f"{where}: field policy: {error}") from None
        elif kind == "rollback":
            try:
                target = parse_position(flat.get("to"))
            except InvalidPosition:
                return  # the id of a recent event: only the fold knows those
            if target.partition != partition_of(key, self._partitions):
                raise InvalidEvent(f"{where}: field to: position {target} is not one of conversation {key.conversation}")


def is_heavy(items: Sequence[tuple[str, object]]) -> bool:
    """Whether checking and counting may take milliseconds, so that it had better not be done in the event loop."""
    if len(items) > MANY_ITEMS:
        return True
    for _, flat in items:
        if isinstance(flat, dict):
            content = flat.get("content")
            # Anything but a short string may be long in ways not worth finding out here.
            if content is not None and (not isinstance(content, str) or len(content) > LONG_TEXT):
                return True
    return False


def new_id() -> str:
    """A new event id: 48 bits of Unix time in ms and random bits, in the form of a version 7 UUID (RFC 9562)."""
    value = time.time_ns() // 1_000_000 << 80 | secrets.randbits(80)
    value = value & ~(0xF << 76) | 0x7 << 76
    value = value & ~(0x3 << 62) | 0x2 << 62
    text = f"{value:032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def derived_id(tenant: str, seed: str, index: int) -> str:
    """The id of item ``index`` (from 0) of a call that named an idempotency key: the same whenever the call is repeated."""
    return sha256(f"{tenant}\n{seed}\n{index}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
