"""A partition in memory with all that it works with, and the plain fold of its log."""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field

from projections.errors import CorruptWindow
from projections.events import types as events
from projections.events.types import AnyEvent
from projections.fold.apply import History, Outcome
from projections.names import Key, Position
from projections.policy.policy import Rules
from projections.storage.records import Checkpoint
from projections.window.window import Window
from streams.compaction.requests import CompactionRequest, request_for
from streams.log.log import Log, Raw
from streams.log.rollback_history import Copies, fetch_needed
from streams.partition.log_identity import find_start, stored_place
from streams.partition.owned import Fenced
from streams.partition.partition import Partition
from streams.recovery.healing import heal_from_snapshots
from streams.recovery.hydrating_reader import HydratingReader
from streams.recovery.revival import Revival
from streams.recovery.snapshot_writer import SnapshotWriter
from tests.support.partitions import NUMBER, keys_of, what_is_restored
from tests.support.quarantines import Code, Expected, PartitionlessSink, rules_of
from tests.support.snapshots import MemorySnapshots
from tests.support.talks import encode, event_for, summary_of
from threadfold.testing import MemoryLog, MemoryStore

KEYS = keys_of("acme", 5)


@dataclass
class Model(Expected):
    """What a conversation's window is to be; what is asked of it in between is noted for summaries
    to come.
    """

    requests: list[CompactionRequest] = field(default_factory=list)
    erased: bool = False

    def take(self, offset: int, event: AnyEvent | None) -> None:
        if isinstance(event, events.ErasedEvent):
            self.quarantined, self.waiting, self.erased = None, [], True
        if self.erased and event is None:
            self.window.advance(offset)
            return
        super().take(offset, event)
        request = request_for(self.window, 1) if self.quarantined is None else None
        if request is not None:
            self.requests.append(request)


class PartitionWorld:
    """A log, a store, a snapshots topic, the partition's owner, and the plain fold of all that is
    in the log.
    """

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.code = Code()
        self.rules: Rules = rules_of(self.code)
        self.log, self.store, self.topic = MemoryLog(4), MemoryStore(), MemorySnapshots(4)
        self.revival = Revival(self.topic, self.log, self._known)
        self.store.reader = HydratingReader(self.store, self.revival)
        self.readers = HydratingReader(
            self.store, Revival(self.topic, self.log, self._known, cache_bytes=1 << 20)
        )
        self.rounds = SnapshotWriter(self.log, self.topic, 1, 1e-9)
        self.generation, self.generations, self.latest, self.served = 1, [1], 1, -1
        self.owner: Partition | None = None
        self.zombies: list[Partition] = []
        self.ids = 0
        self.did: list[str] = []
        self.seen: dict[str, int] = {}
        self.models = {key: Model(key, self.rules) for key in KEYS}

    async def _known(self, generation: int, tenants: set[str]) -> Rules:
        return self.rules

    # -- the log
    # ------------------------------------------------------------------------------------------

    @property
    def rows(self) -> list[Raw]:
        return self.log.rows(NUMBER)

    def put(self, key: Key, data: object, text: bytes | None = None) -> None:
        self.ids += 1
        event = (
            None
            if text is not None
            else event_for(key, data, f"{key.conversation}-{self.ids}", self.rng.choice([None, 30]))
        )
        at = self.log.put(NUMBER, str(key).encode(), text if event is None else encode(event))
        self.models[key].take(at.offset, event)

    def say(self) -> None:
        rng = self.rng
        key = rng.choice(KEYS)
        model, roll, end = self.models[key], rng.random(), len(self.rows)
        if roll < 0.02:
            self.put(key, None, rng.choice([b"{not json", b"[]"]))
        elif model.quarantined is not None and roll < 0.35:
            self.put(
                key,
                events.EventDropped(
                    str(
                        Position(
                            NUMBER,
                            rng.choice([model.quarantined, model.quarantined, rng.randrange(end)]),
                        )
                    )
                ),
            )
        elif roll < 0.10:
            self.put(
                key,
                events.Message("assistant", None, tool_calls=[events.ToolCall("a", "look", "{}")]),
            )
            self.put(
                key,
                events.ToolResult(
                    "a", rng.choice(["trap ", "fine ", "fine "]) * rng.choice([10, 40])
                ),
            )
        elif roll < 0.16 and end:
            self.put(key, events.Rollback(f"{NUMBER}-{rng.randrange(end)}"))
        elif roll < 0.32 and model.requests:
            self.put(key, summary_of(rng.choice(model.requests[-3:]), model.history))  # type: ignore[arg-type]
        elif 0.32 <= roll < 0.324:
            self.put(key, events.Erased())
        elif 0.324 <= roll < 0.36 and model.history:
            event = rng.choice(model.history[-10:])[1]
            at = self.log.put(NUMBER, str(key).encode(), encode(event))
            model.take(at.offset, event)
        elif roll < 0.38:
            self.log.put(NUMBER, rng.choice([b"no-slash", None, str(key).encode()]), None)
        elif roll < 0.42:
            choices = [
                events.Opened(user="u"),
                events.Suspension("s", "approval"),
                events.Resolution("s", "approved"),
                None,
            ]
            self.put(key, rng.choice(choices))
        else:
            self.put(
                key,
                events.Message(rng.choice(["user", "assistant"]), "word " * rng.choice([5, 40])),
            )

    # -- the owner
    # ------------------------------------------------------------------------------------------

    def partition(self, generation: int, **options: object) -> Partition:
        async def learn(tenant: str) -> None:
            assert tenant == "acme"

        options = {"sink": PartitionlessSink(), **options}
        log = options.pop("log", self.log)
        return Partition(NUMBER, generation, self.store, log, self.rules, learn=learn, **options)  # type: ignore[arg-type]

    async def fetch(self, log: Log, window: Window, needs: Outcome, copies: Copies) -> History:
        """As the projector does; the copies of the window change nothing."""
        known = await copies.read()
        found = await fetch_needed(log, window, needs, copies)
        if needs.target is not None:
            self.note("back from a copy" if known else "back from the beginning")
            plain = await fetch_needed(log, window, needs)
            assert what_is_restored(found.window) == what_is_restored(plain.window)
        return found

    async def prepare(self) -> Partition:
        """As the projector does."""
        if self.owner is not None and self.rng.random() < 0.3:
            self.zombies = [*self.zombies[-2:], self.owner]
        self.rounds.forget([NUMBER])
        stored = self.store.checkpoint(self.generation, NUMBER)
        place = await stored_place(
            self.log, NUMBER, stored, committed=self.served + 1, name="owner"
        )
        start = find_start(
            NUMBER, place, committed=self.served + 1, served=self.served, accept=False
        )
        if start.other:
            self.served = start.end - 1
        if start.checkpoint.offset < 0:
            await self.store.drop_partition(self.generation, NUMBER)
            start = start._replace(checkpoint=Checkpoint())
        owner = self.owner = self.partition(
            self.generation,
            cached_windows=self.rng.choice([1, 3, 50]),
            fetch=self.fetch,
        )
        owner.adopt(start.checkpoint)
        await owner.set_target(start.target)
        heals = owner.checkpoint.healing or owner.checkpoint.offset < 0 < start.end
        if (
            heals
            and await heal_from_snapshots(owner, self.log, self.topic, start.target) is not None
        ):
            self.note("healed")
        self.rounds.take_over(owner)
        return owner

    async def fold(self, most: int = 1 << 30) -> None:
        """Fold on, prepared anew wherever that is called for."""
        for _ in range(8):
            owner = self.owner or await self.prepare()
            try:
                while (first := owner.checkpoint.offset + 1) < len(self.rows) and most > 0:
                    n = min(most, self.rng.randint(1, 30))
                    most -= n
                    async with owner.turn:
                        await owner.process(self.rows[first : first + n])
                    if not owner.checkpoint.healing:
                        self.served = max(self.served, owner.checkpoint.offset)
                    if self.rng.random() < 0.3:
                        self.rounds.consider(NUMBER)
                    await asyncio.sleep(0)
                async with owner.turn:
                    await owner.check()
                return
            except Fenced:
                self.owner = None
            except CorruptWindow:
                self.note("discarded")
                self.owner = None
                await self.store.drop_partition(self.generation, NUMBER)
        raise AssertionError("the owner does not come to the log's end")

    async def settle(self) -> None:
        """Let what runs in the background end, and the snapshots reach the checkpoint."""
        await self.fold()
        mine = self.rounds.partitions[NUMBER]
        async with asyncio.timeout(20):
            while (
                self.rounds.is_running(NUMBER)
                or mine.covered < mine.partition.checkpoint.offset
                or not mine.ready
            ):
                self.rounds.consider(NUMBER)
                await asyncio.sleep(0)

    async def stubs(self) -> list[Key]:
        found = (await self.store.read(self.generation, NUMBER, KEYS))[1]
        return [
            key
            for key, parts in zip(KEYS, found, strict=True)
            if parts is not None and parts.asleep is not None
        ]

    def note(self, what: str) -> None:
        self.seen[what] = self.seen.get(what, 0) + 1
