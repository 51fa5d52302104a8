"""The control topic: generations, the live one, tenants and their keys. Key-compacted; every
service holds it whole in memory.

A generation records the rules its windows were built with, because the fold may know no setting
that is not in the log or recorded with the generation. A tenant's policy is fixed by its first
record; a later change takes effect with the next generation (a rebuild).

Any process may change a tenant. A record counts only if its version is beyond the one before it, so
that of two written at once everybody takes the first; the other's writer sees that and makes its
change anew on top. Compaction keeps a topic's last record, so it ends with one that counts.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import Any
from weakref import WeakValueDictionary

import msgspec

from projections.errors import Conflict, TenantExists, UnknownKey, UnknownProjection
from projections.events.times import present, rfc3339
from projections.names import check_name
from projections.policy.policy import Rules
from streams.control.custom_projections import ProjectionRecord
from streams.control.state import Generation, State
from streams.log.compacted_topic import CompactedTopic, TopicRecord
from streams.settings.callables import load_callables
from streams.settings.quotas import (
    DEFAULT_SCOPES,
    ApiKey,
    Quota,
    Tenant,
    TokenKeys,
    check_expiry,
    check_key_name,
    check_scopes,
    hash_key,
    key_id,
)
from streams.settings.settings import Settings

logger = logging.getLogger(__name__)
ATTEMPTS = 20
"""How often a change of a record is repeated because another one came first."""


class Control:
    """The control topic, held in memory and followed. ``state`` is what was read so far;
    :meth:`sync` reads up to the end.
    """

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.state = State()
        self.state.callables = load_callables(settings.callables)
        self.state.summarizers = settings.summarizer_names
        self._topic = CompactedTopic(settings, settings.topic("control"), self._apply)
        self._changed: list[Callable[[State], None]] = []
        self._tenant_locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def start(self) -> Control:
        """Read the topic to its end and go on following it; returns itself."""
        await self._topic.start()
        return self

    async def stop(self) -> None:
        """Stop following, and close the clients."""
        await self._topic.stop()

    def on_change(self, callback: Callable[[State], None]) -> None:
        """Call back after each record that was read."""
        self._changed.append(callback)

    async def sync(self) -> State:
        """Wait until everything written before this call is in ``state``, and return it."""
        await self._topic.sync()
        return self.state

    def _apply(self, record: TopicRecord) -> None:
        self.state.put(record.key or b"", record.value)
        for callback in self._changed:
            callback(self.state)

    def learner(self, rules: Rules) -> Callable[[str], Awaitable[None]]:
        """What a folder awaits before a tenant's first event: it makes ``rules`` know the tenant's
        policy.

        A tenant is on the control topic before its first event is in the log, so reading up to here
        is enough, once a tenant.
        """

        async def learn(tenant: str) -> None:
            if tenant not in rules.tenants:
                state = await self.sync()
                rules.learn({t.name: t.policy for t in state.tenants.values() if t.policy})

        return learn

    # -- writing

    async def write(self, records: dict[str, msgspec.Struct | int | None]) -> None:
        """Write records (None deletes) in order, wait for all replicas, and read them back."""
        rows = {
            key.encode(): None if value is None else msgspec.json.encode(value)
            for key, value in records.items()
        }
        await self._topic.write(rows, one_by_one=True)
        await self._topic.sync()

    async def ensure_generation(self, partitions: int) -> Generation:
        """The live generation; the first one is made from the deployment's policy when there is
        none.

        Raises:
            InvalidPolicy: that policy does not hold, or names a summariser or callable that is not
                in these settings.
        """
        state = await self.sync()
        state.check_copied()
        if state.live is None:
            policy = self.settings.deployment_policy()
            Rules(policy, callables=state.callables, summarizers=state.summarizers).check(None)
            now = present("seconds")
            first = Generation(1, partitions, policy, created=now, live_at=now)
            await self.write({"generation/1": first, "generation/live": 1})
        return self.state.live_generation

    async def ensure_tenant(self, name: str, policy: dict[str, Any] | None = None) -> Tenant:
        """Record a tenant before its first event. A policy given for a known tenant waits for the
        next generation; encryption as :meth:`change_tenant` says.

        Raises:
            InvalidName, InvalidPolicy: as named.
        """
        check_name("tenant", name)
        await self.sync()
        self._check_policy(policy)

        def change(known: Tenant | None) -> Tenant:
            if known is None:
                return Tenant(name, policy or {})
            if policy is None or (layer := self._sealing(known, policy)) == known.policy:
                return known
            return msgspec.structs.replace(known, next_policy=layer)

        return await self._put_tenant(name, change)

    async def _put_tenant(self, name: str, change: Callable[[Tenant | None], Tenant]) -> Tenant:
        """Record what ``change`` makes of a tenant's record (None: there is none), of the one that
        stands when it is written.

        Raises:
            Conflict: others changed it all the time.
            ThreadfoldError: whatever ``change`` raises, when nothing is written of it.
        """
        async with self._tenant_locks.setdefault(
            name, asyncio.Lock()
        ):  # within a process they take turns
            for _ in range(ATTEMPTS):
                known = self.state.tenants.get(name)
                changed = change(known)
                if changed == known or await self._counted(name, changed.after(known)):
                    return changed.after(known) if changed != known else changed
                # The topic's last record of a tenant must be one that counts, whatever comes of the
                # change.
                while not await self._counted(
                    name, (known := self.state.tenants[name]).after(known)
                ):
                    pass
        raise Conflict(f"tenant {name} is being changed by other processes: try again")

    async def _counted(self, name: str, tenant: Tenant) -> bool:
        """Write a tenant's record; returns whether it counted, or one that says the same."""
        counted = False

        def look(state: State) -> None:
            nonlocal counted
            counted = counted or state.tenants.get(name) == tenant

        self._changed.append(look)
        try:
            await self.write({f"tenant/{name}": tenant})
        finally:
            self._changed.remove(look)
        return counted

    def _check_policy(self, policy: dict[str, Any] | None) -> None:
        state = self.state
        deployment = state.live_generation.policy if state.live is not None else {}
        Rules(deployment, callables=state.callables, summarizers=state.summarizers).check(policy)

    async def new_tenant(self, name: str, policy: dict[str, Any] | None, quota: Quota) -> Tenant:
        """Record a tenant that is not known yet. Two calls at the same moment that say the very
        same may both do so.

        Raises:
            TenantExists: it is known.
            InvalidName, InvalidPolicy: as named.
        """
        check_name("tenant", name)
        await self.sync()

        def change(known: Tenant | None) -> Tenant:
            if known is not None:
                raise TenantExists(
                    f"tenant {name} exists already: change it with PATCH, or make another key for"
                    " it"
                )
            self._check_policy(policy)
            return Tenant(name, policy or {}, quota=quota)

        return await self._put_tenant(name, change)

    async def change_tenant(
        self, name: str, policy: dict[str, Any] | None, quota: Callable[[Quota], Quota] | None
    ) -> Tenant:
        """Change a tenant's quota at once, and its policy with the next generation; None leaves
        each as it is.

        Giving the policy that is in force takes back one that waits. A policy without `encryption`
        leaves that as the tenant's policy has it. Of changes at the same moment each is made on top
        of the other.

        Raises:
            UnknownTenant, InvalidPolicy: as named.
        """
        await self.sync()

        def change(recorded: Tenant | None) -> Tenant:
            changed = self.state.tenant(name)
            if policy is not None:
                self._check_policy(policy)
                layer = self._sealing(changed, policy)
                waits = recorded is not None and layer != self.state.policy_of(changed)
                # Nothing can be in the log of a tenant that has no record yet: its policy is in
                # force at once.
                first = {} if recorded is not None else {"policy": layer}
                changed = msgspec.structs.replace(
                    changed, next_policy=layer if waits else None, **first
                )
            return (
                changed
                if quota is None
                else msgspec.structs.replace(changed, quota=quota(changed.quota))
            )

        return await self._put_tenant(name, change)

    def _sealing(self, known: Tenant, policy: dict[str, Any]) -> dict[str, Any]:
        """A new policy of a tenant, with the ``encryption`` that was chosen before where it names
        none: text that is not encrypted stays readable in the log for good.
        """
        now = self.state.policy_of(known)
        if "encryption" in policy or policy == now:
            return policy
        for chosen in (known.next_policy or {}, now):
            if "encryption" in chosen:
                return policy | {"encryption": chosen["encryption"]}
        return policy

    async def settle_policies(self, live: Generation) -> None:
        """Take the policies that the live generation was built with from those that wait; those in
        force already stay as they are.
        """
        for name in live.tenants:

            def change(known: Tenant | None, name: str = name) -> Tenant:
                tenant = Tenant(name) if known is None else known
                waits = tenant.next_policy is not None and tenant.next_policy == live.tenants[name]
                return (
                    msgspec.structs.replace(tenant, policy=live.tenants[name], next_policy=None)
                    if waits
                    else tenant
                )

            if name in self.state.tenants:
                await self._put_tenant(name, change)

    def projection(self, name: str) -> ProjectionRecord:
        """The record of a custom projection; raises :class:`UnknownProjection` when it has no
        results.
        """
        found = self.state.projections.get(name)
        if found is None or found.live is None:
            raise UnknownProjection(
                f"projection {name} has no results yet: start it with `threadfold projection run`"
            )
        return found

    async def change_projection(
        self, name: str, change: Callable[[ProjectionRecord], ProjectionRecord | None]
    ) -> ProjectionRecord:
        """Write what ``change`` makes of a custom projection's record (None: nothing is to be
        done); returns the record that counts then.

        Raises:
            Conflict: others changed it each time.
            KafkaUnavailable: as named.
        """
        for _ in range(ATTEMPTS):
            before = (await self.sync()).projections.get(name, ProjectionRecord())
            after = change(before)
            if after is None:
                return before
            await self.write({f"view/{name}": after})
            if self.state.projections.get(name) == after:
                return after
        raise Conflict(
            f"the record of projection {name} is changed by others all the time: try again"
        )

    async def add_key(
        self,
        tenant: str,
        scopes: Sequence[str] | None = None,
        *,
        name: str | None = None,
        expires_at: str | None = None,
    ) -> str:
        """Make a new API key for a tenant and return it; it is shown this once and stored only as a
        hash.

        Raises:
            InvalidKey: a scope is unknown, ``expires_at`` is no RFC 3339 time or has passed, or the
                name cannot be.
        """
        now = time.time()
        record = ApiKey(
            tenant,
            DEFAULT_SCOPES if scopes is None else check_scopes(scopes),
            check_key_name(name),
            rfc3339(datetime.fromtimestamp(round(now, 3), UTC)),
            check_expiry(expires_at, now),
        )
        key = f"tf_{secrets.token_urlsafe(32)}"
        await self.write({f"key/{hash_key(key)}": record})
        return key

    async def set_token_keys(self, tenant: str, keys: list[dict[str, Any]]) -> None:
        """Replace the public keys of the tokens that a tenant signs for its end users; an empty
        list ends all these tokens.
        """
        record = TokenKeys(keys) if keys else None
        if record != self.state.token_keys.get(tenant):
            await self.write({f"token-keys/{tenant}": record})

    async def revoke_keys(self, tenant: str, key: str | None = None) -> int:
        """Delete all keys of a tenant, or the one with an id; returns how many there were. With all
        of them go the public keys of the tokens that it signs: the tenant is closed.

        Raises:
            UnknownKey: an id was given that none of its keys has.
        """
        mine = (await self.sync()).keys_of(tenant)
        revoked = [hashed for hashed in mine if key is None or key_id(hashed) == key]
        if key is not None and not revoked:
            raise UnknownKey(
                f"tenant {tenant} has no key {key[:40]!r}: its keys are"
                f" {', '.join(map(key_id, mine)) or 'none'}"
            )
        gone = [f"key/{hashed}" for hashed in revoked]
        if key is None and tenant in self.state.token_keys:
            gone.append(f"token-keys/{tenant}")
        if gone:
            await self.write(dict.fromkeys(gone))
        return len(revoked)
