"""The keys topic, followed: every process that seals or opens holds all of it
(``streams.encryption.key_table``), unwrapped only the keys in use.

The topic has one partition, so keys and erasures have one order for everybody. A new key is
acknowledged by all in-sync replicas before an event sealed with it is appended; several processes
that begin with a conversation at once make several keys, and all of them are good. So a key that a
record names and the topic does not hold, once it is read to its end, is deleted for good.
"""

from __future__ import annotations

import asyncio
import logging
import os
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from projections.errors import Erased, ThreadfoldError
from projections.events.codec import full_type
from projections.events.validation import Record
from streams.control.control_topic import Control
from streams.control.state import State
from streams.encryption.key_table import ERASED, Erasure, KeyTable, encode_key, key_place
from streams.encryption.master_keys import MasterKeys, master_keys_of
from streams.encryption.payload_cipher import KEY_BYTES, KID_BYTES, MARK, kid_in, seal_event
from streams.log.compacted_topic import CompactedTopic, TopicRecord
from streams.runtime.tasks import end_tasks
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)

UNWRAPPED = 20_000
"""Data keys held unwrapped, those used last."""
MOST_MISSING = 100_000
"""Deleted keys that are remembered, so that nobody looks for them again and again."""
IN_A_THREAD = 512 << 10
"""Bytes of a list from which on it is sealed in a thread."""
ROLL = b"!roll"
ROLL_AFTER = 60.0
"""Seconds beyond the compaction lag after which a quiet topic gets one more record: a segment is
only ever closed by the next one.
"""
_ERASED_TYPE = full_type("conversation.erased")


def encrypting(control: Control) -> Callable[[str], bool]:
    """Whether a tenant's payloads are sealed now: its policy's ``encryption`` under the live
    generation.
    """
    known: dict[str, bool] = {}

    def forget(state: State) -> None:
        known.clear()

    def encrypts(tenant: str) -> bool:
        found = known.get(tenant)
        if found is None:
            if control.state.live is None:
                return False
            found = known[tenant] = control.state.encrypted(tenant)
        return found

    control.on_change(forget)
    return encrypts


class KeyRing:
    """A :class:`streams.encryption.payload_cipher.PayloadCipher` over the keys topic. Start it
    before use, stop it after; for one event loop.
    """

    def __init__(self, settings: Settings, encrypts: Callable[[str], bool]) -> None:
        """Args: ``encrypts`` says of a tenant whether its new events are sealed. Raises
        InvalidSettings for wrong master keys.
        """
        self.settings = settings
        self._topic = CompactedTopic(settings, settings.topic("keys"), self._apply, idle=self._tidy)
        self.masters: MasterKeys = master_keys_of(settings)
        self.table = KeyTable()
        self._encrypts = encrypts
        self._tasks: set[asyncio.Task[Any]] = set()
        self._unwrapped: OrderedDict[tuple[bytes, bytes], AESGCM] = OrderedDict()
        self._missing: OrderedDict[tuple[bytes, bytes], None] = OrderedDict()
        self._making: dict[bytes, asyncio.Task[None]] = {}
        self._erased: list[Callable[[bytes], None]] = []
        self._wiped_at, self._last_at = 0, 0
        self._checked = 0

    # -- following

    async def start(self) -> KeyRing:
        """Read the topic to its end and go on following it; returns itself.

        Raises:
            TopicMismatch: there is no such topic.
            KafkaUnavailable: as named.
        """
        await self._topic.start()
        return self

    async def stop(self) -> None:
        """Stop following, and close the clients."""
        await end_tasks(self._tasks)
        await self._topic.stop()

    def check(self) -> None:
        """Raise :class:`KeyUnusable` when a master key that is in use is not configured, or
        another: no process should begin with that.
        """
        seen: set[str] = set()
        for conversation, one in self.table.all():
            if one.master not in seen:
                seen.add(one.master)
                self.masters.unwrap(key_place(conversation, one.kid), one.master, one.wrapped)

    def check_followed(self) -> None:
        """Raise :class:`TopicStuck` while the topic's follower fails at a record."""
        self._topic.check()

    def on_erased(self, callback: Callable[[bytes], None]) -> None:
        """Call back with the conversation whenever an erasure was begun or done."""
        self._erased.append(callback)

    async def sync(self) -> None:
        """Wait until everything written before this call is known; raises KafkaUnavailable."""
        await self._topic.sync()

    def _apply(self, record: TopicRecord) -> None:
        place = record.key or b""
        self._last_at = record.timestamp
        if record.value is None:
            self._wiped_at = record.timestamp
        changed = self.table.put(place, record.value)
        if changed is None:
            return
        for key in [key for key in self._unwrapped if key[0] == changed] if self._unwrapped else ():
            del self._unwrapped[key]
        if place.endswith(b"/" + ERASED):
            for callback in self._erased:
                callback(changed)

    async def _tidy(self) -> None:
        """When nothing comes: delete keys that came after their conversation's erasure, and have
        the last tombstones compacted in time.
        """
        now, lag = int(time.time() * 1000), self.settings.key_compaction_lag * 1000
        rows: dict[bytes, bytes | None] = dict.fromkeys(sorted(self.table.void)[:500])
        if (
            self._wiped_at
            and now > self._wiped_at + lag + ROLL_AFTER * 1000
            and self._last_at <= self._wiped_at + lag
        ):
            rows[ROLL] = b"{}"
        if rows:
            try:
                await self.write(rows)
            except ThreadfoldError as error:
                logger.warning("keys of erased conversations are deleted later: %s", error)

    async def write(self, rows: dict[bytes, bytes | None]) -> None:
        """Write records (None deletes), in order, and return when all replicas have them; raises
        :class:`KafkaUnavailable`.
        """
        await self._topic.write(rows)

    # -- sealing

    async def seal(self, records: Sequence[Record]) -> list[Record]:
        """As :class:`streams.encryption.payload_cipher.PayloadCipher` says. A conversation that has
        a key is sealed even when its tenant's policy does not ask for it any more.
        """
        table = self.table
        names = {record.key: str(record.key).encode() for record in records}
        if table.any_erased:
            self._refuse_erased(records)
        sealed = {
            name for key, name in names.items() if table.has(name) or self._encrypts(key.tenant)
        }
        if not sealed:
            return list(records)
        missing = [
            name for name in sorted(sealed) if not table.has(name) and not table.is_erased(name)
        ]
        if missing:
            await self._make(missing)
            self._refuse_erased(records)
        keys = {name: self._first(name) for name in sealed}

        def work() -> list[Record]:
            return [_sealed(record, keys.get(names[record.key])) for record in records]

        heavy = sum(len(record.value) for record in records) > IN_A_THREAD
        return await asyncio.to_thread(work) if heavy else work()

    def _refuse_erased(self, records: Sequence[Record]) -> None:
        for record in records:
            if self.table.is_erased(str(record.key).encode()) and record.type != _ERASED_TYPE:
                raise Erased(f"{record.key.shown} was erased")

    def _first(self, conversation: bytes) -> tuple[bytes, AESGCM] | None:
        """The key to seal with; None for a conversation that is erased by now, of which only the
        erasure itself is appended.
        """
        one = self.table.first(conversation)
        if one is None:
            return None
        return one.kid, self._unwrap(conversation, one.kid, one.master, one.wrapped)

    async def _make(self, conversations: list[bytes]) -> None:
        """Have a key for each of these; who asks for one that is being made waits for it."""
        own = [name for name in conversations if name not in self._making]
        if own:
            task = asyncio.create_task(self._create(own), name="new-keys")
            self._making.update(dict.fromkeys(own, task))
            self._tasks.add(task)
            task.add_done_callback(lambda done: self._made(own, done))
        # Shielded: a caller that gives up must not take the key from the others.
        await asyncio.gather(
            *(asyncio.shield(task) for task in {self._making[name] for name in conversations})
        )

    def _made(self, conversations: list[bytes], task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        for name in conversations:
            self._making.pop(name, None)
        if not task.cancelled() and task.exception() is not None:
            logger.warning("new data keys could not be stored: %s", task.exception())

    async def _create(self, conversations: list[bytes]) -> None:
        current = self.masters.current
        if self._checked != self.table.masters:
            # What one process with another master key seals, no worker can open: all of them would
            # stop at it.
            self.check()
            self._checked = self.table.masters
        rows: dict[bytes, bytes | None] = {}
        for name in conversations:
            place = key_place(name, os.urandom(KID_BYTES))
            rows[place] = encode_key(current, self.masters.wrap(place, os.urandom(KEY_BYTES)))
        await self.write(rows)
        for place, value in rows.items():
            # Not awaited from the topic: what the follower brings later is the same. An erasure
            # that came meanwhile makes it void.
            self.table.put(place, value)

    # -- opening

    async def ready(self, rows: Iterable[Any]) -> None:
        sealed = [row for row in rows if row.value is not None and MARK in row.value]
        keys = {(row.key, kid) for row in sealed if (kid := kid_in(row.value)) is not None}
        if keys:
            await self.find(keys)

    async def find(self, keys: Iterable[tuple[bytes | None, bytes]]) -> None:
        """Read on until each of these keys (conversation, kid) is known or known to be deleted."""
        unknown = {(c, kid) for c, kid in keys if c is not None and self._unknown(c, kid)}
        if unknown:
            await self.sync()
            for place in unknown:
                if self._unknown(*place):
                    self._missing[place] = None
            while len(self._missing) > MOST_MISSING:
                self._missing.popitem(last=False)

    def _unknown(self, conversation: bytes, kid: bytes) -> bool:
        if (
            (conversation, kid) in self._unwrapped
            or self.table.is_done(conversation)
            or (conversation, kid) in self._missing
        ):
            return False
        return self.table.find(conversation, kid) is None

    def data_key(self, conversation: bytes, kid: bytes) -> AESGCM | None:
        found = self._unwrapped.get((conversation, kid))
        if found is not None:
            self._unwrapped.move_to_end((conversation, kid))
            return found
        one = self.table.find(conversation, kid)
        return None if one is None else self._unwrap(conversation, kid, one.master, one.wrapped)

    def _unwrap(self, conversation: bytes, kid: bytes, master: str, wrapped: bytes) -> AESGCM:
        found = self._unwrapped.get((conversation, kid))
        if found is None:
            found = AESGCM(self.masters.unwrap(key_place(conversation, kid), master, wrapped))
            self._unwrapped[conversation, kid] = found
            if len(self._unwrapped) > UNWRAPPED:
                self._unwrapped.popitem(last=False)
        return found

    def snapshot_key(self, conversation: bytes) -> tuple[bytes, AESGCM] | None:
        found = self._first(conversation)
        if found is None and self.table.is_erased(conversation):
            # Of a window that has not folded its erasure yet: what it holds must not be readable
            # where it may stay for a while.
            return os.urandom(KID_BYTES), AESGCM(os.urandom(KEY_BYTES))
        return found

    # -- erasures

    def is_erased(self, conversation: bytes) -> bool:
        return self.table.is_erased(conversation)

    def erased_at(self, conversation: bytes) -> str | None:
        erasure = self.table.erasure(conversation)
        return erasure.position if erasure is not None and erasure.state == "done" else None

    async def put_erasure(self, conversation: bytes, erasure: Erasure) -> None:
        """Write an erasure's record, with a finished one the tombstones of all keys, too; returns
        when it is known here. On whose behalf an earlier record is, stays.
        """
        before = self.table.erasure(conversation)
        if before is not None and erasure.user is None:
            erasure = msgspec.structs.replace(erasure, user=before.user)
        rows: dict[bytes, bytes | None] = {
            conversation + b"/" + ERASED: msgspec.json.encode(erasure)
        }
        await self.write(rows)
        await self.sync()
        if erasure.state == "done":
            await self.wipe(conversation)

    async def wipe(self, conversation: bytes) -> None:
        """Write the tombstones of an erased conversation's keys that are still in the topic."""
        begin = conversation + b"/"
        rows: dict[bytes, bytes | None] = dict.fromkeys(
            place for place in self.table.void if place.startswith(begin)
        )
        if rows:
            await self.write(rows)
            await self.sync()

    # -- rotation

    async def rotate(self, batch: int = 500) -> int:
        """Wrap every data key that another master key wraps with the current one; returns how many.
        Cut off, it goes on when repeated.

        Raises:
            KeyUnusable: no master key is configured, or one that is in use is not.
            KafkaUnavailable: what was written so far stands.
        """
        await self.sync()
        current, count = self.masters.current, 0
        self.check()
        rows: dict[bytes, bytes | None] = {}
        for conversation, one in self.table.all():
            if one.master != current:
                place = key_place(conversation, one.kid)
                rows[place] = encode_key(
                    current,
                    self.masters.wrap(place, self.masters.unwrap(place, one.master, one.wrapped)),
                )
                count += 1
            if len(rows) >= batch:
                await self.write(rows)
                rows = {}
        if rows:
            await self.write(rows)
        await self.sync()
        return count


def _sealed(record: Record, key: tuple[bytes, AESGCM] | None) -> Record:
    if key is None or record.type == _ERASED_TYPE:
        return record
    return Record(record.key, record.id, record.type, seal_event(record.value, *key))
