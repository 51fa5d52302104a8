"""Revival: the windows of sleeping conversations, from their snapshots, or folded from the log
where those are gone.

Nothing is written here. A record is used when its body is the very one the stub was made for.
Else the window is looked for elsewhere: in a later record of the conversation (one that was written
again, and whose earlier one was compacted away), then in the log, which is right and slow.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from projections.errors import CallableUnavailable, Healing
from projections.names import Key, parse_key
from projections.policy.policy import Rules
from projections.storage.records import Stored
from projections.storage.snapshots import body_of
from projections.storage.stubs import Stub, checksum_of, encode_stub, pack, unpack
from streams.control.control_topic import Control
from streams.encryption.payload_cipher import NotAuthentic, kid_of_body, open_body
from streams.log.log import Log, Raw
from streams.recovery.refold import refold
from streams.recovery.snapshot_topic import SnapshotTopic

logger = logging.getLogger(__name__)

AT_ONCE = 64
"""Records fetched in one go: with their text, some MB."""
MOST_SLOW = 8
"""Reads of one process that may wait for a fold of the log; more are refused at once."""
MOST_REFUSED = 10_000
"""Windows of which a process knows that it cannot fold them; it forgets all when there are more."""
Known = Callable[[int, set[str]], Awaitable[Rules]]
"""The rules of a generation, which know the policies of these tenants."""
Place = tuple[int, Key, bytes]
"""A generation, a conversation, and its stub's checksum: what lies there never changes."""


def rules_of(control: Control) -> Known:
    """What a control topic knows of rules."""

    async def known(generation: int, tenants: set[str]) -> Rules:
        rules = control.state.rules(control.state.generations[generation])
        learn = control.learner(rules)
        for tenant in sorted(tenants):
            await learn(tenant)
        return rules

    return known


class Revival:
    """Finds windows by their stubs; for one event loop. Fetches of the same window at the same time
    are one.
    """

    def __init__(
        self,
        topic: SnapshotTopic,
        log: Log,
        known: Known,
        *,
        cache_bytes: int = 0,
        patience: float | None = None,
        strict: bool = False,
    ) -> None:
        """Nothing is read yet.

        Args:
            cache_bytes: how many bytes of packed windows are kept.
            patience: how many seconds a fold of the log may take; None without end.
            strict: whether to refuse a window in whose fold a callable failed: for processes that
                show windows. A worker's own fold is right by definition.
        """
        self._topic = topic
        self._log = log
        self._known = known
        self._patience = patience
        self._strict = strict
        self._refused: dict[Place, CallableUnavailable] = {}
        self._cache_bytes = cache_bytes
        self._kept: OrderedDict[Place, bytes] = OrderedDict()
        self._size = 0
        self._fetching: dict[Place, asyncio.Task[dict[Key, bytes]]] = {}
        self._folding: dict[Place, asyncio.Task[dict[Key, Stored]]] = {}
        self._one_folds = asyncio.Lock()

    @property
    def folding(self) -> bool:
        """Whether a window is being folded from the log now, for which somebody may wait for
        long.
        """
        return bool(self._folding)

    async def stop(self) -> None:
        """End what is under way."""
        tasks: set[asyncio.Task[Any]] = {*self._fetching.values(), *self._folding.values()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def forget(self, conversation: Key) -> None:
        """Keep nothing of a conversation any more."""
        for place in [place for place in self._kept if place[1] == conversation]:
            self._size -= len(self._kept.pop(place))

    async def quick(
        self, generation: int, partition: int, stubs: Mapping[Key, Stub]
    ) -> dict[Key, Stored]:
        """The windows that their stubs' records give; those of records that are gone, or not what
        they were, are absent.

        Raises:
            KafkaUnavailable, KeyUnusable: as named.
        """
        places = {(generation, key, stub.checksum): key for key, stub in stubs.items()}
        bodies = {key: self._kept[place] for place, key in places.items() if place in self._kept}
        wanted = {
            key: stubs[key]
            for place, key in places.items()
            if key not in bodies and place not in self._fetching
        }
        if wanted:
            task = asyncio.create_task(self._fetch(generation, partition, wanted), name="revival")
            begun = [(generation, key, stub.checksum) for key, stub in wanted.items()]
            self._fetching |= dict.fromkeys(begun, task)
            task.add_done_callback(lambda done: self._ended(self._fetching, begun, done))
        for waiting in {
            self._fetching[place] for place, key in places.items() if key not in bodies
        }:
            # Others may wait for the same: who leaves does not end it.
            bodies |= await asyncio.shield(waiting)
        found: dict[Key, Stored] = {}
        for place, key in places.items():
            if key in bodies:
                self._use(place)
                found[key] = Stored(*unpack(bodies[key]), encode_stub(stubs[key]))
        return found

    async def sure(
        self, generation: int, partition: int, stubs: Mapping[Key, Stub]
    ) -> dict[Key, Stored]:
        """The windows of all these stubs, however long it takes, or ``patience``.

        Raises:
            Healing: it takes too long: it goes on, and is there for the next who asks.
            CallableUnavailable: (``strict``) a callable failed in the fold of one.
            CorruptWindow: the log does not give what a stub says.
            KafkaUnavailable, KeyUnusable: as named.
        """
        found = await self.quick(generation, partition, stubs)
        missing = {key: stub for key, stub in stubs.items() if key not in found}
        if not missing:
            return found
        places = [(generation, key, stub.checksum) for key, stub in missing.items()]
        for place in places:
            if place in self._refused:
                # Callables stay as they were registered, so another fold would fail, too.
                raise self._refused[place]
        new = {
            key: stub
            for place, (key, stub) in zip(places, missing.items(), strict=True)
            if place not in self._folding
        }
        if new and self._patience is not None and len(self._folding) >= MOST_SLOW:
            raise _busy(missing)
        if new:
            task = asyncio.create_task(self._slowly(generation, partition, new), name="refold")
            begun = [(generation, key, stub.checksum) for key, stub in new.items()]
            self._folding |= dict.fromkeys(begun, task)
            task.add_done_callback(lambda done: self._ended(self._folding, begun, done))
        try:
            async with asyncio.timeout(self._patience):
                for waiting in {self._folding[place] for place in places}:
                    found |= await asyncio.shield(waiting)
        except TimeoutError:
            raise _busy(missing) from None
        return {key: found[key] for key in stubs}

    # -- parts
    # ------------------------------------------------------------------------------------------

    async def _fetch(
        self, generation: int, partition: int, stubs: Mapping[Key, Stub]
    ) -> dict[Key, bytes]:
        """The packed windows of these stubs' records, some at a time."""
        found: dict[Key, bytes] = {}
        order = sorted(stubs, key=lambda key: stubs[key].at)
        for i in range(0, len(order), AT_ONCE):
            some = order[i : i + AT_ONCE]
            rows = await self._topic.read(partition, [stubs[key].at for key in some])
            await self._log.seals.find(_kids(rows.values()))
            for key in some:
                row = rows.get(stubs[key].at)
                body = None if row is None else self._body(key, stubs[key], row)
                if body is not None:
                    found[key] = body
                    self._keep((generation, key, stubs[key].checksum), body)
        return found

    def _body(self, key: Key, stub: Stub, row: Raw) -> bytes | None:
        """The packed window of a record, None where that is not the stub's."""
        name, sealed = str(key).encode(), body_of(row.value)
        if row.key != name or sealed is None:
            return None
        try:
            body = open_body(self._log.seals, name, sealed)
        except NotAuthentic as error:
            logger.warning("the snapshot of %s: %s", key, error)
            return None
        return body if body is not None and checksum_of(body) == stub.checksum else None

    async def _slowly(
        self, generation: int, partition: int, stubs: Mapping[Key, Stub]
    ) -> dict[Key, Stored]:
        """Windows whose records are gone: from later records, else folded from the log; one fold at
        a time.
        """
        async with self._one_folds:
            later = await self._later(partition, stubs)
            found = {
                key: Stored(*unpack(body), encode_stub(stubs[key])) for key, body in later.items()
            }
            rest = {key: stub for key, stub in stubs.items() if key not in found}
            if rest:
                rules = await self._known(generation, {key.tenant for key in rest})
                found |= await refold(self._log, partition, rules, rest, strict=self._strict)
            for key, stored in found.items():
                if self._cache_bytes:
                    self._keep(
                        (generation, key, stubs[key].checksum),
                        pack(stored.fields, stored.id_blocks),
                    )
            return found

    async def _later(self, partition: int, stubs: Mapping[Key, Stub]) -> dict[Key, bytes]:
        """The packed windows that records after the stubs' own give."""
        if await self._topic.usable() is not None:
            return {}
        begin, end = await self._topic.bounds(partition)
        names = {str(key).encode(): key for key in stubs}
        rows: dict[bytes, Raw] = {}
        async for row in self._topic.scan(
            partition, max(begin, min(stub.at for stub in stubs.values()) + 1), end - 1
        ):
            if row.key in names and row.key is not None:
                rows[row.key] = row
        await self._log.seals.find(_kids(rows.values()))
        bodies = {
            names[name]: self._body(names[name], stubs[names[name]], row)
            for name, row in rows.items()
        }
        return {key: body for key, body in bodies.items() if body is not None}

    def _ended(
        self, tasks: dict[Place, Any], begun: Iterable[Place], done: asyncio.Task[Any]
    ) -> None:
        for place in begun:
            tasks.pop(place)
        if not done.cancelled() and (error := done.exception()) is not None:
            # Whoever waited gets the error, but may have left.
            logger.warning("reviving hibernating windows: %s", error)
            if isinstance(error, CallableUnavailable):
                if len(self._refused) >= MOST_REFUSED:
                    self._refused.clear()
                self._refused |= {
                    place: error for place in begun if str(place[1]) == error.conversation
                }

    def _keep(self, place: Place, body: bytes) -> None:
        # Not of one that is being erased: who reads it is refused.
        if len(body) > self._cache_bytes or self._log.seals.is_erased(str(place[1]).encode()):
            return
        self._size += len(body) - len(self._kept.get(place, b""))
        self._kept[place] = body
        while self._size > self._cache_bytes:
            self._size -= len(self._kept.popitem(last=False)[1])

    def _use(self, place: Place) -> None:
        if place in self._kept:
            self._kept.move_to_end(place)


def _kids(rows: Iterable[Raw]) -> list[tuple[bytes | None, bytes]]:
    """The keys that the bodies of these records are sealed with."""
    found: list[tuple[bytes | None, bytes]] = []
    for row in rows:
        kid = kid_of_body(body_of(row.value) or b"")
        if kid is not None and row.key is not None and parse_key(row.key) is not None:
            found.append((row.key, kid))
    return found


def _busy(missing: Mapping[Key, Stub]) -> Healing:
    names = ", ".join(key.conversation for key in list(missing)[:3])
    return Healing(
        f"conversation {names} was hibernated and its snapshot is missing: it is being folded"
        " from the log: try again shortly"
    )
