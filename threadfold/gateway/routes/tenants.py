"""The routes under ``/v1/tenants``: tenants, their policies, quotas and keys. The scope ``admin``
is for the deployment's operator.

A change is on the control topic when it is answered. Other gateways follow within a second while
Kafka is well.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Any, Literal, get_args

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from projections.errors import InvalidRequest
from projections.names import check_name
from streams.settings.quotas import (
    COUNTS,
    Quota,
    Tenant,
    bounds_of,
    check_expiry,
    check_key_name,
    check_scopes,
    hash_key,
    read_quota,
    shown_key,
)
from threadfold.gateway.access import Caller
from threadfold.gateway.answers import KeyScope
from threadfold.gateway.declaration import Cost, Routes
from threadfold.gateway.examples import KEY, QUOTA
from threadfold.gateway.parameters import Path
from threadfold.gateway.request import Body
from threadfold.quotas.quotas import shown_quota
from threadfold.schemas.policy import policy_schema
from threadfold.schemas.structs import NAME

routes = Routes("Tenants")
_admin = partial(routes.add, scope="admin", cost=Cost.ADMINISTRATION)
_ALL = "/v1/tenants"
_ONE = "/v1/tenants/{tenant}"
_KEYS = f"{_ONE}/keys"


def _quota_schema(name: str) -> dict[str, Any]:
    return {
        "type": ["integer" if name in COUNTS else "number", "null"],
        "minimum": bounds_of(name)[0],
        "maximum": bounds_of(name)[1],
    }


# The schemas say what streams.settings.quotas checks; its errors name the field at fault.
_Quota = Annotated[
    dict[str, Any],
    Meta(
        description="numbers by name; 0: no limit, null: the deployment's default",
        extra_json_schema={
            "properties": {name: _quota_schema(name) for name in Quota.__struct_fields__},
            "additionalProperties": False,
        },
    ),
]
_Scope = Annotated[str, Meta(extra_json_schema={"enum": list(get_args(KeyScope))})]
_Scopes = Annotated[list[_Scope], Meta(extra_json_schema={"minItems": 1})]
_KeyName = Annotated[str, Meta(extra_json_schema={"minLength": 1, "maxLength": 100})]
_Policy = Annotated[dict[str, Any], Meta(extra_json_schema=policy_schema())]
_Until = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
_Name = Annotated[str, Meta(extra_json_schema=NAME)]
TenantName = Annotated[str, Path(example="nord"), Meta(extra_json_schema=NAME)]


class NewTenant(Struct, forbid_unknown_fields=True):
    """A tenant to record. `encryption` is that key of its policy. `scopes`, `key_name` and
    `expires_at` are those of its first key.
    """

    name: _Name
    policy: _Policy | None = None
    encryption: bool | None = None
    quota: _Quota | None = None
    scopes: _Scopes | None = None
    key_name: _KeyName | None = None
    expires_at: _Until | None = None


class TenantChange(Struct, forbid_unknown_fields=True):
    """What to change. The policy is replaced whole, the quota number by number; null removes the
    quota.
    """

    policy: _Policy | None = None
    quota: _Quota | UnsetType | None = UNSET


_CHANGES = {
    "anyOf": [
        {"required": ["policy"], "properties": {"policy": {"type": "object"}}},
        {"required": ["quota"]},
    ]
}
"""A change changes something."""


class NewKey(Struct, forbid_unknown_fields=True):
    """A key to make. Without `scopes` it has the usual ones; without `expires_at` it does not
    expire.
    """

    scopes: _Scopes | None = None
    name: _KeyName | None = None
    expires_at: _Until | None = None


class Key(Struct):
    """A key without its secret."""

    id: str
    name: str | None
    scopes: list[KeyScope]
    created: str | None
    expires_at: str | None
    expired: bool


class MadeKey(Key, kw_only=True):
    """A new key. `key` is the secret, shown in this answer and never again."""

    key: str


class ShownTenant(Struct):
    """A tenant. `policy` is active; `next_policy` waits for the next generation. `quota` is the
    tenant's own; `quota_in_force` includes the deployment's defaults.

    `erasure` is what an erasure makes of text in the log: `opaque` if the tenant is encrypted, else
    `kept`.

    `policy_error` is null, or why this release cannot use the policy, as one that a newer release
    wrote: the tenant's conversations wait then, and its requests answer 503.
    """

    name: str
    policy: dict[str, Any]
    policy_error: str | None
    next_policy: dict[str, Any] | None
    encryption: bool
    erasure: Literal["opaque", "kept"]
    quota: dict[str, Any]
    quota_in_force: dict[str, Any]
    keys: list[Key]


class SummaryUse(Struct):
    """What summaries by models have used since 00:00 UTC, over all workers, calls under way
    included: tokens of prompts and answers, and money at the prices of the settings.
    """

    summary_tokens: float
    summary_cost: float


class TenantInUse(ShownTenant, kw_only=True):
    """A tenant with what it has used of its daily budgets. `used_today` is null while Redis does
    not answer.
    """

    used_today: SummaryUse | None


class MadeTenant(ShownTenant, kw_only=True):
    """A new tenant. `key` is the secret of its first key, shown in this answer and never again."""

    key: str


class Tenants(Struct):
    """All tenants, by name."""

    tenants: list[ShownTenant]


class Keys(Struct):
    """A tenant's keys, oldest first."""

    keys: list[Key]


class Revoked(Struct):
    """The ids of the revoked keys: from now on these keys answer 401."""

    revoked: list[str]


@_admin("GET", _ALL, "List tenants", Tenants)
async def get_tenants(caller: Caller) -> dict[str, Any]:
    """All tenants by name, each with its policy, its quota and its keys without their secrets."""
    state = await caller.backend.control.sync()
    names = sorted(state.tenants.keys() | {key.tenant for key in state.keys.values()})
    return {"tenants": [_shown(caller, state.tenant(name)) for name in names]}


@_admin(
    "POST",
    _ALL,
    "Add a tenant",
    MadeTenant,
    status=201,
    body=Body(
        NewTenant,
        {
            "a tenant": {
                "name": "nord",
                "policy": {"working_budget": 20000},
                "quota": QUOTA,
                "key_name": "backend",
            }
        },
    ),
    problems=(409,),
)
async def post_tenant(caller: Caller, body: NewTenant) -> dict[str, Any]:
    """Record a tenant and make its first key. The key is shown in this answer and never again. 409
    if the tenant exists.

    Without `encryption` an erasure leaves the text in the log: `erasure` says `kept`.
    """
    check_key_name(body.key_name)
    check_expiry(body.expires_at, time.time())
    scopes = None if body.scopes is None else check_scopes(body.scopes)
    quota = read_quota(body.quota or {})
    control = caller.backend.control
    policy = body.policy
    if body.encryption is not None:
        if (policy or {}).get("encryption", body.encryption) != body.encryption:
            raise InvalidRequest("encryption and policy.encryption contradict each other")
        policy = {**(policy or {}), "encryption": body.encryption}
    tenant = await control.new_tenant(body.name, policy, quota)
    key = await control.add_key(body.name, scopes, name=body.key_name, expires_at=body.expires_at)
    return {**_shown(caller, tenant), "key": key}


@_admin("GET", _ONE, "Show a tenant", TenantInUse)
async def get_tenant(caller: Caller, tenant: TenantName) -> dict[str, Any]:
    """One tenant with its policy, its quota, what it has used of its daily budgets, and its keys
    without their secrets.
    """
    known, quotas = await _known(caller, tenant), caller.quotas
    spent = None if quotas is None else await quotas.spent_today(tenant)
    used = spent and {"summary_tokens": spent.tokens, "summary_cost": spent.cost}
    return {**_shown(caller, known), "used_today": used}


@_admin(
    "PATCH",
    _ONE,
    "Change a tenant",
    ShownTenant,
    body=Body(
        Annotated[TenantChange, Meta(extra_json_schema=_CHANGES)],
        {
            "quota": {"quota": {"requests_per_second": 100}},
            "policy": {"policy": {"working_budget": 10000}},
        },
    ),
    problems=(409,),
)
async def patch_tenant(caller: Caller, body: TenantChange, tenant: TenantName) -> dict[str, Any]:
    """Change a tenant's quota at once, or its policy with the next generation (`threadfold rebuild
    --switch`).

    Null removes the quota, or one number of it. A policy without `encryption` leaves that as it is.
    """
    values = body.quota
    if body.policy is None and values is UNSET:
        raise InvalidRequest("the body changes nothing: give policy, quota or both")
    await _known(caller, tenant)
    quota = (
        None
        if isinstance(values, UnsetType)
        else (lambda old: Quota() if values is None else read_quota(values, old))
    )
    return _shown(caller, await caller.backend.control.change_tenant(tenant, body.policy, quota))


@_admin("GET", _KEYS, "List a tenant's keys", Keys)
async def get_keys(caller: Caller, tenant: TenantName) -> dict[str, Any]:
    """A tenant's keys, oldest first: ids, names, scopes and times. Only a hash of a key's secret is
    stored.
    """
    await _known(caller, tenant)
    return {"keys": _keys(caller, tenant)}


@_admin(
    "POST",
    _KEYS,
    "Make a key",
    MadeKey,
    status=201,
    body=Body(NewKey, {"for reading": {"scopes": ["read"], "name": "dashboard"}}),
)
async def post_key(caller: Caller, body: NewKey, tenant: TenantName) -> dict[str, Any]:
    """Make another key for a tenant. The key is shown in this answer and never again. An empty
    object makes a key with the usual scopes that does not expire.
    """
    await _known(caller, tenant)
    control = caller.backend.control
    key = await control.add_key(tenant, body.scopes, name=body.name, expires_at=body.expires_at)
    hashed = hash_key(key)
    return {**shown_key(hashed, control.state.keys[hashed], time.time()), "key": key}


@_admin("DELETE", f"{_KEYS}/{{key}}", "Revoke a key", Revoked)
async def delete_key(
    caller: Caller, tenant: TenantName, key: Annotated[str, Path(example=KEY)]
) -> dict[str, Any]:
    """Revoke one key by its id: from now on it answers 401."""
    await _known(caller, tenant)
    await caller.backend.control.revoke_keys(tenant, key)
    return {"revoked": [key]}


@_admin("DELETE", _KEYS, "Revoke all keys of a tenant", Revoked)
async def delete_keys(caller: Caller, tenant: TenantName) -> dict[str, Any]:
    """Revoke all keys of a tenant. The tenant stays recorded, and its conversations stay in the
    log.
    """
    await _known(caller, tenant)
    ids = [key["id"] for key in _keys(caller, tenant)]
    await caller.backend.control.revoke_keys(tenant)
    return {"revoked": ids}


async def _known(caller: Caller, name: str) -> Tenant:
    """The tenant of that name, once the control topic is read to its end; raises if there is
    none.
    """
    check_name("tenant", name)
    return (await caller.backend.control.sync()).tenant(name)


def _keys(caller: Caller, name: str) -> list[dict[str, Any]]:
    now, keys = time.time(), caller.backend.control.state.keys_of(name)
    return [shown_key(hashed, key, now) for hashed, key in keys.items()]


def _shown(caller: Caller, tenant: Tenant) -> dict[str, Any]:
    own = msgspec.structs.asdict(tenant.quota)
    sealed = caller.backend.control.state.encrypted(tenant.name)
    return {
        "name": tenant.name,
        "policy": caller.backend.control.state.policy_of(tenant),
        "policy_error": caller.backend.control.state.policy_error(tenant.name),
        "next_policy": tenant.next_policy,
        "encryption": sealed,
        "erasure": "opaque" if sealed else "kept",
        "quota": {name: value for name, value in own.items() if value is not None},
        "quota_in_force": shown_quota(tenant.quota.over(caller.backend.settings.quota())),
        "keys": _keys(caller, tenant.name),
    }
