"""Drafts: validates a list of events to append, and turns it into records with ids."""

from __future__ import annotations

import re
import secrets
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from hashlib import sha256
from typing import NamedTuple

from projections.errors import (
    EventTooLarge,
    InvalidEvent,
    InvalidName,
    InvalidPolicy,
    InvalidPosition,
    ThreadfoldError,
)
from projections.events.json_text import bytes_at_least
from projections.events.times import present
from projections.events.token_cost import MOST_SLOW
from projections.events.tokenizer import SlowText
from projections.events.validation import Intake, Record
from projections.names import Key, make_key, parse_position, partition_of
from projections.policy.policy import Policy, Rules
from threadfold.service.pinned_limit import PinnedExcess, excesses
from threadfold.service.spill import Drafts, Preview, make_spilled, preview_of

_Pinned = tuple[int, Key, dict[str, object] | None]
"""A pinned event of a list: its place, its conversation, and the policy that came for it before."""
_OURS = re.compile(r"(?P<summary>summary-[0-9a-f]{32})|(?P<dropped>dropped-\d+-\d+)")
"""Ids that are made here and can be foretold, by the only type that a caller may give them to: a
summary that is appended again elsewhere keeps its id.
"""
_AROUND = 1 << 20
"""Bytes that an event has beside the text of its result."""
LIGHT = 400_000
EACH = 100
"""The unit of :func:`is_heavy` is the character: a list is light up to ``LIGHT``, an object adds
``EACH`` to its texts. toktok counts a character in about 3 ns, tiktoken in 40.
"""
_PINNED_ROLES = frozenset({"system", "developer"})
_WITH_MEANING = frozenset({"conversation.opened", "rollback"})
_VARIANT = {digit: "89ab"[int(digit, 16) & 3] for digit in "0123456789abcdef"}


Item = tuple[str | Key, object]
"""A conversation, by its name or its key, and a decoded flat event."""


class Conditions(NamedTuple):
    """Conditions that the fold checks of the events of a call (``projections.fold.conditions``);
    they are of one conversation then.
    """

    expect: str | None = None
    fence: int | None = None


UNCONDITIONED = Conditions()


@dataclass(slots=True)
class _Parts:
    """What the parts of a list before hold: so many events, the last one's id, pinned text."""

    done: int = 0
    last_id: str | None = None
    pinned_tokens: dict[Key, int] = field(default_factory=dict)
    slow_text: SlowText = field(default_factory=lambda: SlowText(MOST_SLOW))


class Drafter:
    """Turns the flat events of one call into records, all at once or part by part. Pure but for the
    clock and random ids.

    Args:
        tenant: the owner of the events.
        rules: those of the live generation.
        partitions: how many the log has.
        max_bytes: the limit of one event.
        traceparent: of the events that have none.
    """

    def __init__(
        self,
        tenant: str,
        rules: Rules,
        partitions: int,
        max_bytes: int,
        traceparent: str | None = None,
    ) -> None:
        self._tenant = tenant
        self._traceparent = traceparent
        self._rules = rules
        self._partitions = partitions
        self._max_bytes = max_bytes
        self._overrides: dict[Key, dict[str, object]] = {}
        self._parts = _Parts()

    def check_size(self, text: bytes, where: str) -> None:
        """Check the JSON of an event before it is decoded.

        Raises:
            EventTooLarge: it fits no event, nor, as a result that is spilled, the tenant's policy.
        """
        policy = self._rules.for_conversation(self._tenant, None)
        most = max(self._max_bytes, policy.max_result_bytes) + _AROUND
        if len(text) > most and (size := bytes_at_least(text)) > most:
            raise EventTooLarge(
                f"{where}: {size} bytes are over the limit of {self._max_bytes} bytes for one event"
            )

    def records(
        self,
        items: Sequence[Item],
        noun: str,
        operator: bool,
        id_seed: str | None,
    ) -> list[Record]:
        """The records of :meth:`drafts`; raises ValueError if a result spills."""
        drafts = self.drafts(items, noun, operator, id_seed)
        if drafts.spilled:
            raise ValueError("a result of this list spills: its records alone are not all of it")
        return drafts.records

    def drafts(
        self,
        items: Sequence[Item],
        noun: str,
        operator: bool,
        id_seed: str | None,
        conditions: Conditions = UNCONDITIONED,
        *,
        goes_on: bool = False,
    ) -> Drafts:
        """One record for each ``(conversation, flat event)``, in order; errors count them from 1,
        like ``event 3``. If it ``goes_on``, they are the next part of the list before.

        A result whose text is over ``spill_chars`` becomes a preview with its pieces
        (``threadfold.service.spill``). The policy is the conversation's if this instance saw the
        event that opens it, else the tenant's. What is pinned beyond the tenant's limit is
        refused by the first, and otherwise left to whoever knows the conversation
        (``Drafts.pinned_excess``).

        Raises:
            InvalidName, InvalidEvent, EventTooLarge, InvalidPolicy: an item is invalid; the message
                names the first.
            InvalidPosition: the position that is expected is of another conversation.
        """
        self._parts = parts = self._parts if goes_on else _Parts()
        now = present()
        encoding = self._rules.for_conversation(self._tenant, None).encoding
        intake = Intake(
            now=now,
            encoding=encoding,
            max_bytes=self._max_bytes,
            operator=operator,
            expect=conditions.expect
            if conditions.expect is None or not parts.done
            else parts.last_id,
            fence=conditions.fence,
            traceparent=self._traceparent,
            slow_text=parts.slow_text,
        )
        previews: list[tuple[int, Preview, Policy]] = []
        pinned: list[_Pinned] = []
        try:
            made_ids = self._add_all(intake, items, noun, operator, id_seed, previews, pinned)
        except ThreadfoldError:
            # Raises if an earlier item is too large: the error names the first invalid item.
            intake.records()
            raise
        records = intake.records()
        if records and conditions.expect and not parts.done:
            self._check_expected(records[0].key, conditions.expect)
        pinned_excess = self._pinned_excess(pinned, intake.tokens, noun)
        spilled = [
            make_spilled(
                parts.done + i,
                records[i],
                preview,
                policy,
                where=f"{noun} {parts.done + i + 1}",
                now=now,
                max_bytes=self._max_bytes,
            )
            for i, preview, policy in previews
        ]
        parts.done += len(records)
        parts.last_id = records[-1].id if records else parts.last_id
        return Drafts(records, spilled, intake.tokens, made_ids, pinned_excess)

    def _add_all(
        self,
        intake: Intake,
        items: Sequence[Item],
        noun: str,
        operator: bool,
        id_seed: str | None,
        previews: list[tuple[int, Preview, Policy]],
        pinned: list[_Pinned],
    ) -> frozenset[str]:
        """Add all items; returns the ids that were made for them."""
        ids = new_ids(len(items)) if id_seed is None else None
        done = self._parts.done
        for i, (conversation, flat) in enumerate(items):
            where = f"{noun} {done + i + 1}"
            key = self._key_of(conversation, where)
            if (
                isinstance(flat, dict)
                and flat.get("type") == "tool.result"
                and flat.get("spill") is None
            ):
                policy = self._rules.for_conversation(self._tenant, self._overrides.get(key))
                preview = preview_of(flat.get("content"), policy, where)
                if preview is not None:
                    previews.append((i, preview, policy))
                    flat = {**flat, "content": preview.content}
            intake.add(
                key,
                flat,
                where=where,
                new_id=(
                    ids[i] if ids is not None else derived_id(self._tenant, id_seed or "", done + i)
                ),
            )
            if isinstance(flat, dict):
                if "id" in flat and not operator:
                    _check_id(flat["id"], flat["type"], where)
                if flat["type"] in _WITH_MEANING:
                    self._check_meaning(key, flat, where)
                if (
                    flat.get("pinned") is True
                    or flat.get("role") in _PINNED_ROLES
                    or flat.get("tools")
                ):
                    pinned.append((i, key, self._overrides.get(key)))
        return frozenset(ids or ())

    def _key_of(self, conversation: str | Key, where: str) -> Key:
        try:
            # A name that is not text may not be hashable.
            return (
                _known_key(self._tenant, conversation)
                if isinstance(conversation, str)
                else key_of(self._tenant, conversation)
            )
        except InvalidName as error:
            raise InvalidName(f"{where}: {error}") from None

    def _check_expected(self, key: Key, expect: str) -> None:
        try:
            position = parse_position(expect)
        except InvalidPosition:
            return  # the id of an event: the fold knows whether it is in the window
        if position.partition != partition_of(key, self._partitions):
            raise InvalidPosition(
                f"header If-Match: position {expect} is not one of conversation {key.conversation}"
            )

    def _pinned_excess(
        self, pinned: list[_Pinned], tokens: list[int], noun: str
    ) -> list[PinnedExcess]:
        """What of the pinned text of a list is above the tenant's limit. The fold cuts what exceeds
        a limit over several lists.
        """
        done, total = self._parts.done, self._parts.pinned_tokens
        found = []
        for i, key, own in pinned:
            total[key] = total.get(key, 0) + tokens[i]
            each = PinnedExcess(key, f"{noun} {done + i + 1}", tokens[i], total[key])
            found.append((each, own))
        return list(excesses(found, self._rules))

    def _check_meaning(self, key: Key, flat: dict[str, object], where: str) -> None:
        """Check that a policy is possible and that a rollback stays in its conversation."""
        kind = flat["type"]
        if kind == "conversation.opened" and isinstance(policy := flat.get("policy"), dict):
            try:
                self._rules.check(self._rules.tenants.get(self._tenant), policy)
            except InvalidPolicy as error:
                raise InvalidPolicy(f"{where}: field policy: {error}") from None
            self._overrides[key] = policy
        elif kind == "rollback":
            try:
                target = parse_position(flat.get("to"))
            except InvalidPosition:
                return  # the id of a recent event: only the fold knows those
            if target.partition != partition_of(key, self._partitions):
                raise InvalidEvent(
                    f"{where}: field to: position {target} is not one of conversation"
                    f" {key.conversation}"
                )


def _check_id(id_: str, name: str, where: str) -> None:
    """Refuse an id that an event of ours is to have: that one would be taken for a repeat."""
    found = _OURS.fullmatch(id_)
    if found is not None and name != found.lastgroup:
        raise InvalidEvent(
            f"{where}: field id: {id_} has the form of ids that are made here: choose another"
        )


def key_of(tenant: str, conversation: str | Key) -> Key:
    """The key of a conversation by its name, checked; a key stays as it is. A user's own log has no
    name that a caller could give: who means it has its key.
    """
    return conversation if isinstance(conversation, Key) else make_key(tenant, conversation)


@lru_cache(maxsize=16384)
def _known_key(tenant: str, conversation: str) -> Key:
    return make_key(tenant, conversation)


def is_heavy(items: Sequence[Item]) -> bool:
    """Whether checking and counting may take many milliseconds, and belongs in a thread.

    Long texts do: nearly all the time is the tokenizer's, which releases the interpreter lock. Many
    short events do not: 500 take about 3 ms, mostly in Python, which a thread would not spare the
    event loop.
    """
    left = LIGHT
    for _, flat in items:
        waiting = [flat]
        while waiting:
            value = waiting.pop()
            left -= EACH
            for part in (
                value.values()
                if isinstance(value, dict)
                else value
                if isinstance(value, list)
                else (value,)
            ):
                if isinstance(part, str):
                    # The tokenizer takes many times longer for letters beyond ASCII.
                    left -= len(part) if part.isascii() else 8 * len(part)
                elif isinstance(part, dict | list):
                    waiting.append(part)
                else:
                    left -= 10
            if left < 0:
                return True
    return False


def new_id() -> str:
    """A new event id: a UUID of version 7 (RFC 9562), with Unix time in ms and random bits."""
    return new_ids(1)[0]


def new_ids(count: int) -> list[str]:
    """New event ids like :func:`new_id`, with one time and one call for random bits."""
    ms = f"{time.time_ns() // 1_000_000:012x}"
    begin = f"{ms[:8]}-{ms[8:]}-7"
    bits = secrets.token_hex(10 * count)
    # 3 random digits, then one of the four that a variant may begin with (by two bits of the
    # fourth), then 15 more.
    return [
        f"{begin}{bits[i : i + 3]}-{_VARIANT[bits[i + 3]]}{bits[i + 4 : i + 7]}-"
        f"{bits[i + 7 : i + 19]}"
        for i in range(0, 20 * count, 20)
    ]


def derived_id(tenant: str, seed: str, index: int) -> str:
    """The id of item ``index`` (from 0) of a call that named an idempotency key: the same whenever
    the call is repeated.
    """
    return sha256(f"{tenant}\n{seed}\n{index}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
