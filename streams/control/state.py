"""What the control topic holds: generations, tenants, keys; taken in record by record, without any
I/O.
"""

from __future__ import annotations

import logging
from typing import Any

import msgspec

from projections.errors import TopicMismatch, UnderMaintenance, UnknownTenant
from projections.events.untrusted import Decode, json_decoder
from projections.policy.policy import Callables, Rules
from streams.control.custom_projections import ProjectionRecord, take_record
from streams.control.halts import Halt
from streams.settings.quotas import ApiKey, Quota, Tenant, TokenKeys, hash_key, key_id

logger = logging.getLogger(__name__)


class Generation(msgspec.Struct, omit_defaults=True):
    """One complete set of windows: its number, the rules it is built with, and the log's shape it
    was built on.

    ``created`` and ``live_at`` are when it was begun and when it last became live (RFC 3339); None:
    never, or by a release that did not note it.
    """

    number: int
    partitions: int
    policy: dict[str, Any] = {}
    tenants: dict[str, dict[str, Any]] = {}
    state: str = "ready"
    created: str | None = None
    live_at: str | None = None

    def check_partitions(self, topic: str, partitions: int) -> None:
        """Refuse a log whose partition count is not the one these windows were built on.

        Raises:
            TopicMismatch: it is another.
        """
        if partitions != self.partitions:
            raise TopicMismatch(
                f"topic {topic} has {partitions} partitions, its windows were built on"
                f" {self.partitions}: a changed count moves conversations; copy the log into a new"
                " topic instead"
            )


class Maintenance(msgspec.Struct, omit_defaults=True):
    """Appends are refused, of the whole deployment or of one tenant, from ``since`` (RFC 3339) on.

    ``copied_to`` is the prefix of the topics that took the log's place, if any.
    """

    since: str
    reason: str = ""
    copied_to: str | None = None


class Copy(msgspec.Struct, omit_defaults=True):
    """Events at offsets from ``starts`` to before ``ends`` were copied from another log, and with
    them what workers had appended because of them. ``source``: a prefix of topics, or the SHA-256
    of a tenant's manifest. Without ``ends`` the copy is not finished.
    """

    source: str
    starts: list[int]
    ends: list[int] | None = None


_number = json_decoder(int)
_generation = json_decoder(Generation)
_tenant = json_decoder(Tenant)
_key = json_decoder(ApiKey)
_token_keys = json_decoder(TokenKeys)
_halt = json_decoder(Halt)
_maintenance = json_decoder(Maintenance)
_copy = json_decoder(Copy)


class State:
    """The control topic's content."""

    def __init__(self) -> None:
        self.generations: dict[int, Generation] = {}
        self.claims: dict[int, str] = {}
        """Who took a generation's number first; a number is never given twice, not even when its
        generation was dropped.
        """
        self.live: int | None = None
        self.former: int | None = None
        """The generation that was live before it, if the topic still says so."""
        self.tenants: dict[str, Tenant] = {}
        self.keys: dict[str, ApiKey] = {}
        self._key_ids: dict[str, set[str]] = {}
        self.token_keys: dict[str, TokenKeys] = {}
        """The public keys of each tenant that signs tokens for its end users."""
        self.projections: dict[str, ProjectionRecord] = {}
        self.halts: dict[int, Halt] = {}
        self.maintenance: dict[str, Maintenance] = {}
        """By tenant; of the whole deployment under the empty name."""
        self.copies: dict[str, Copy] = {}
        """By tenant; of a whole log under the empty name."""
        self.callables: Callables = {}
        self.summarizers: frozenset[str] | None = None

    def put(self, key: bytes, value: bytes | None) -> None:
        """Take one record in; records of unknown kinds are left to newer releases. Raises
        ``ValueError`` for one that cannot be read.
        """
        kind, _, name = key.decode("utf-8", "replace").partition("/")
        if kind == "generation" and name == "live":
            live = _number(value) if value else None
            if self.live not in (None, live):
                self.former = self.live
            self.live = live
        elif kind == "generation":
            _set(self.generations, int(name), value, _named(_generation, "number", int(name)))
        elif kind == "claim":
            number, _, claimant = name.partition("/")
            self.claims.setdefault(int(number), claimant)
        elif kind == "tenant":
            self._put_tenant(name, value)
        elif kind == "key":
            _set(self.keys, name, value, _key)
            same_id = self._key_ids.setdefault(key_id(name), set())
            (same_id.add if value else same_id.discard)(name)
        elif kind == "token-keys":
            _set(self.token_keys, name, value, _token_keys)
        elif kind == "halt":
            _set(self.halts, int(name), value, _halt)
        elif kind == "maintenance":
            _set(self.maintenance, name, value, _maintenance)
        elif kind == "copy":
            _set(self.copies, name, value, _copy)
        elif kind == "view":
            take_record(self.projections, name, value)

    def _put_tenant(self, name: str, value: bytes | None) -> None:
        known, decode = self.tenants.get(name), _named(_tenant, "name", name)
        # The records of earlier releases have no version.
        if not value or known is None or not 0 < (new := decode(value)).version <= known.version:
            _set(self.tenants, name, value, decode)
        else:
            logger.debug(
                "a record of tenant %s is skipped: version %d is newer",
                name,
                new.version,
            )

    def stage_of(self, generation: Generation) -> str:
        """How a generation stands: ``live``; ``building``, ``ready`` to become live, or ``retired``
        (it was live, or a later one became live in its place).
        """
        if generation.number == self.live:
            return "live"
        passed = self.live is not None and generation.number < self.live
        if generation.state == "ready" and (generation.live_at is not None or passed):
            return "retired"
        return generation.state

    @property
    def live_generation(self) -> Generation:
        """The generation that readers see.

        Raises:
            TopicMismatch: there is none yet, or the log is still being copied here.
        """
        self.check_copied()
        if self.live is None or self.live not in self.generations:
            raise TopicMismatch("there is no live generation yet: run `threadfold topics create`")
        return self.generations[self.live]

    def check_copied(self) -> None:
        """Refuse topics that `topics copy` has not filled yet; raises TopicMismatch."""
        copy = self.copies.get("")
        if copy is not None and copy.ends is None:
            raise TopicMismatch(
                f"the log of {copy.source} is not completely copied to these topics: run the same"
                " `threadfold topics copy` again, or drop them (`threadfold topics drop`)"
            )

    def was_copied(self, tenant: str, partition: int, offset: int) -> bool:
        """Whether an event of a tenant came with a copy of another log."""
        for name in ("", tenant):
            copy = self.copies.get(name)
            if copy is None or offset < copy.starts[partition]:
                continue
            if copy.ends is None or offset < copy.ends[partition]:
                return True
        return False

    def check_appends(self, tenant: str) -> None:
        """Refuse what a caller appends while an operator has stopped appends.

        Raises:
            UnderMaintenance: they are stopped, for all or for this tenant.
        """
        if not self.maintenance:
            return
        for name in ("", tenant):
            found = self.maintenance.get(name)
            if found is not None:
                whose = f"tenant {name}" if name else "this deployment"
                why = f" ({found.reason})" if found.reason else ""
                raise UnderMaintenance(
                    f"{whose} is under maintenance since {found.since}{why}",
                    "reads go on; append it again later, with the same ids",
                )

    def halted(self) -> dict[int, Halt]:
        """By partition the live generation's halts that nobody has accepted."""
        return {
            partition: halt
            for partition, halt in sorted(self.halts.items())
            if halt.generation == self.live and not halt.accepted
        }

    def rules(self, generation: Generation) -> Rules:
        """The rules of a generation: its own record, and tenants that came after it was begun."""
        tenants = {t.name: t.policy for t in self.tenants.values() if t.policy}
        return Rules(
            generation.policy, {**tenants, **generation.tenants}, self.callables, self.summarizers
        )

    def key_of(self, key: str) -> ApiKey | None:
        """What an API key opens, None for an unknown key; whether it has expired is for the caller
        to see.
        """
        return self.keys.get(hash_key(key))

    def keys_by_id(self, id_: str) -> list[tuple[str, ApiKey]]:
        """The keys of an id with their hashes: nearly always one, or none."""
        return [(hashed, self.keys[hashed]) for hashed in self._key_ids.get(id_, ())]

    def keys_of(self, tenant: str) -> dict[str, ApiKey]:
        """A tenant's keys by their hashes, oldest first."""
        mine = [(hashed, key) for hashed, key in self.keys.items() if key.tenant == tenant]
        return dict(sorted(mine, key=lambda item: (item[1].created, item[0])))

    def policy_of(self, tenant: Tenant) -> dict[str, Any]:
        """The tenant's layer of policy that windows are folded with now."""
        live = self.generations.get(self.live) if self.live is not None else None
        return tenant.policy if live is None else live.tenants.get(tenant.name, tenant.policy)

    def quota_of(self, tenant: str, default: Quota) -> Quota:
        """A tenant's quota in force; ``default`` has the deployment's numbers."""
        known = self.tenants.get(tenant)
        return default if known is None else known.quota.over(default)

    def encrypted(self, tenant: str) -> bool:
        """Whether a tenant's payloads are encrypted under the live generation; False before there
        is one.
        """
        rules = self._rules_alone(tenant)
        return rules is not None and rules.encrypts(tenant)

    def unsealed_by(self, generation: Generation) -> list[str]:
        """The tenants whose payloads are encrypted under the live generation, and not under this
        one.
        """
        now, then = self.rules(self.live_generation), self.rules(generation)
        return [
            name for name in sorted(self.tenants) if now.encrypts(name) and not then.encrypts(name)
        ]

    def policy_error(self, tenant: str) -> str | None:
        """Why a tenant's policy under the live generation cannot be used here; None: it can."""
        rules = self._rules_alone(tenant)
        error = None if rules is None else rules.unusable.get(tenant)
        return None if error is None else error.why

    def _rules_alone(self, tenant: str) -> Rules | None:
        """The live generation's rules with one tenant only; None before there is one."""
        if self.live is None or self.live not in self.generations:
            return None
        layer = self.policy_of(self.tenants.get(tenant, Tenant(tenant)))
        tenants = {tenant: layer} if layer else {}
        return Rules(self.live_generation.policy, tenants, self.callables, self.summarizers)

    def tenant(self, name: str) -> Tenant:
        """A recorded tenant, or one that has keys only; raises :class:`UnknownTenant`."""
        known = self.tenants.get(name)
        if known is None and any(key.tenant == name for key in self.keys.values()):
            known = Tenant(name)
        if known is None:
            raise UnknownTenant(f"tenant {name} is not known: see `threadfold tenants list`")
        return known


def _named(decode: Decode[Any], field: str, name: str | int) -> Decode[Any]:
    """Decodes the record of this name; raises ``ValueError`` for one that is of another."""

    def decode_named(value: bytes | msgspec.Raw | None) -> Any:
        found = decode(value)
        if getattr(found, field) != name:
            raise ValueError(f"the record of {name} is of {str(getattr(found, field))[:40]!r}")
        return found

    return decode_named


def _set(where: dict[Any, Any], name: Any, value: bytes | None, decode: Decode[Any]) -> None:
    if value:
        where[name] = decode(value)
    else:
        where.pop(name, None)
