"""The control topic: generations, the live one, tenants and their keys. Key-compacted; every service holds it whole in memory.

A generation records the rules its windows were built with, because the fold may know no setting that is not in the log or recorded with
the generation. A tenant's policy is fixed by its first record; a later change takes effect with the next generation (a rebuild).
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import logging
import secrets
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from aiokafka import AIOKafkaConsumer, TopicPartition
from aiokafka.errors import KafkaError

from projections.errors import TopicMismatch
from projections.names import check_name
from projections.policy import Callables, Rules
from streams.callables import load_callables
from streams.kafka import SharedProducer, kafka_errors, make_consumer, start_client, stop_client
from streams.settings import Settings
from streams.summarizers.registry import known_summarizers

logger = logging.getLogger(__name__)


class Generation(msgspec.Struct, omit_defaults=True):
    """One complete set of windows: its number, the rules it is built with, and the log's shape it was built on."""

    number: int
    partitions: int
    policy: dict[str, Any] = {}
    tenants: dict[str, dict[str, Any]] = {}
    state: str = "ready"

    def check_partitions(self, topic: str, partitions: int) -> None:
        """Refuse a log whose partition count is not the one these windows were built on.

        Raises:
            TopicMismatch: it is another.
        """
        if partitions != self.partitions:
            raise TopicMismatch(
                f"topic {topic} has {partitions} partitions, its windows were built on {self.partitions}: "
                f"a changed count moves conversations; copy the log into a new topic instead"
            )


class Tenant(msgspec.Struct, omit_defaults=True):
    """A tenant. ``next_policy`` waits for the next generation; ``policy`` is what it was first recorded with."""

    name: str
    policy: dict[str, Any] = {}
    next_policy: dict[str, Any] | None = None


class ApiKey(msgspec.Struct, omit_defaults=True):
    """What a key opens; the key itself is stored nowhere, only its SHA-256."""

    tenant: str
    scopes: tuple[str, ...] = ("append", "read", "subscribe")


class State:
    """The control topic's content."""

    def __init__(self) -> None:
        self.generations: dict[int, Generation] = {}
        self.live: int | None = None
        self.tenants: dict[str, Tenant] = {}
        self.keys: dict[str, ApiKey] = {}
        self.callables: Callables = {}
        self.summarizers: frozenset[str] | None = None

    def put(self, key: bytes, value: bytes | None) -> None:
        """Take one record in; records of unknown kinds are left to newer releases."""
        kind, _, name = key.decode("utf-8", "replace").partition("/")
        if kind == "generation" and name == "live":
            self.live = msgspec.json.decode(value, type=int) if value else None
        elif kind == "generation":
            _set(self.generations, int(name), value, Generation)
        elif kind == "tenant":
            _set(self.tenants, name, value, Tenant)
        elif kind == "key":
            _set(self.keys, name, value, ApiKey)

    @property
    def live_generation(self) -> Generation:
        """The generation that readers see.

        Raises:
            TopicMismatch: there is none yet.
        """
        if self.live is None or self.live not in self.generations:
            raise TopicMismatch("there is no live generation yet: run `threadfold topics create`")
        return self.generations[self.live]

    def rules(self, generation: Generation) -> Rules:
        """The rules of a generation: its own record, and tenants that came after it was begun."""
        tenants = {t.name: t.policy for t in self.tenants.values() if t.policy}
        return Rules(generation.policy, {**tenants, **generation.tenants}, self.callables, self.summarizers)

    def key_of(self, key: str) -> ApiKey | None:
        """What an API key opens, None for an unknown key."""
        return self.keys.get(hash_key(key))


def _set(where: dict[Any, Any], name: Any, value: bytes | None, type_: type[msgspec.Struct]) -> None:
    if value:
        where[name] = msgspec.json.decode(value, type=type_)
    else:
        where.pop(name, None)


def hash_key(key: str) -> str:
    """An API key as the control topic stores it (keys are 256 random bits, so a plain SHA-256 cannot be searched)."""
    return hashlib.sha256(key.encode()).hexdigest()


class Control:
    """The control topic, held in memory and followed. ``state`` is what was read so far; :meth:`sync` reads up to the end."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.state = State()
        self.state.callables = load_callables(settings.callables)
        self.state.summarizers = known_summarizers(settings)
        self.topic = settings.topic("control")
        self._producer = SharedProducer(settings)
        self._consumer: AIOKafkaConsumer | None = None
        self._follower: asyncio.Task[None] | None = None
        self._read = 0
        self._advanced = asyncio.Condition()
        self._changed: list[Callable[[State], None]] = []

    async def start(self) -> Control:
        """Read the topic to its end and go on following it; returns itself."""
        async with kafka_errors(self.settings, "reading the control topic"):
            consumer = make_consumer(self.settings)
            await start_client(consumer, self.settings)
            self._consumer = consumer
            if not consumer.partitions_for_topic(self.topic) and self.topic not in await consumer.topics():
                await self.stop()
                raise TopicMismatch(f"topic {self.topic} is missing: run `threadfold topics create`")
            consumer.assign([TopicPartition(self.topic, 0)])
            await consumer.seek_to_beginning()
        self._follower = asyncio.create_task(self._follow(), name="control-follower")
        await self.sync()
        return self

    async def stop(self) -> None:
        """Stop following, and close the clients."""
        await self._producer.stop()
        if self._follower is not None:
            self._follower.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._follower
        if self._consumer is not None:
            await stop_client(self._consumer, self.settings)
        self._follower = self._consumer = None

    def on_change(self, callback: Callable[[State], None]) -> None:
        """Call back after each record that was read."""
        self._changed.append(callback)

    async def sync(self) -> State:
        """Wait until everything written before this call is in ``state``, and return it."""
        async with kafka_errors(self.settings, "reading the control topic"), asyncio.timeout(self.settings.append_timeout):
            if self._consumer is None:
                raise TimeoutError("the control follower is stopped")
            tp = TopicPartition(self.topic, 0)
            end = (await self._consumer.end_offsets([tp]))[tp]
            async with self._advanced:
                await self._advanced.wait_for(lambda: self._read >= end)
        return self.state

    async def _follow(self) -> None:
        tp = TopicPartition(self.topic, 0)
        while self._consumer is not None:
            try:
                rows = (await self._consumer.getmany(tp, timeout_ms=500)).get(tp, [])
                at = await self._consumer.position(tp)
            except KafkaError:
                # The brokers are away: keep what is known and try again; aiokafka reconnects by itself.
                await asyncio.sleep(0.5)
                continue
            for row in rows:
                try:
                    self.state.put(row.key or b"", row.value)
                except ValueError as error:
                    logger.error("control record %r at offset %d cannot be read and is passed over: %s", row.key, row.offset, error)
                for callback in self._changed:
                    callback(self.state)
            async with self._advanced:
                self._read = at
                self._advanced.notify_all()

    def learner(self, rules: Rules) -> Callable[[str], Awaitable[None]]:
        """What a folder awaits before a tenant's first event: it makes ``rules`` know the tenant's policy.

        A tenant is on the control topic before its first event is in the log, so reading up to here is enough, once a tenant.
        """

        async def learn(tenant: str) -> None:
            if tenant not in rules.tenants:
                state = await self.sync()
                rules.learn({t.name: t.policy for t in state.tenants.values() if t.policy})

        return learn

    # -- writing -------------------------------------------------------------------------------------------------------------

    async def write(self, records: dict[str, msgspec.Struct | int | None]) -> None:
        """Write records (None deletes) in order, wait for all replicas, and read them back."""
        async with kafka_errors(self.settings, "writing the control topic"):
            producer = await self._producer.get()
            for key, value in records.items():
                body = None if value is None else msgspec.json.encode(value)
                await producer.send_and_wait(self.topic, body, key.encode(), partition=0)
        await self.sync()

    async def ensure_generation(self, partitions: int) -> Generation:
        """The live generation; the first one is made from the deployment's policy when there is none.

        Raises:
            InvalidPolicy: that policy does not hold, or names a summariser or callable that is not in these settings.
        """
        state = await self.sync()
        if state.live is None:
            policy = self.settings.deployment_policy()
            Rules(policy, callables=state.callables, summarizers=state.summarizers).check(None)
            first = Generation(1, partitions, policy)
            await self.write({"generation/1": first, "generation/live": 1})
        return self.state.live_generation

    async def ensure_tenant(self, name: str, policy: dict[str, Any] | None = None) -> Tenant:
        """Record a tenant before its first event. A policy given for a known tenant waits for the next generation.

        Raises:
            InvalidName, InvalidPolicy: as named.
        """
        check_name("tenant", name)
        state = await self.sync()
        deployment = state.live_generation.policy if state.live is not None else {}
        Rules(deployment, callables=state.callables, summarizers=state.summarizers).check(policy)
        known = state.tenants.get(name)
        if known is None:
            known = Tenant(name, policy or {})
        elif policy is not None and policy != known.policy:
            known = Tenant(name, known.policy, policy)
        else:
            return known
        await self.write({f"tenant/{name}": known})
        return known

    async def add_key(self, tenant: str, scopes: list[str] | None = None) -> str:
        """Make a new API key for a tenant and return it; it is shown this once and stored only as a hash."""
        key = f"tf_{secrets.token_urlsafe(32)}"
        await self.write({f"key/{hash_key(key)}": ApiKey(tenant, tuple(scopes)) if scopes else ApiKey(tenant)})
        return key

    async def revoke_keys(self, tenant: str) -> int:
        """Delete all keys of a tenant; returns how many there were."""
        state = await self.sync()
        gone = [hashed for hashed, key in state.keys.items() if key.tenant == tenant]
        if gone:
            await self.write({f"key/{hashed}": None for hashed in gone})
        return len(gone)
