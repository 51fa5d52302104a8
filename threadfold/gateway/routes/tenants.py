"""The routes under ``/v1/tenants``: tenants, their policies and quotas, and their keys. The scope
``admin`` is for the deployment's operator.

A change is on the control topic when it is answered; other gateways follow it, within a second
while Kafka is well.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType
from starlette.responses import Response

from projections.errors import InvalidRequest
from projections.names import check_name
from streams.control.state import State
from streams.settings.quotas import (
    BURSTS,
    COUNTS,
    Quota,
    Tenant,
    check_expiry,
    check_key_name,
    check_scopes,
    hash_key,
    read_quota,
    shown_key,
)
from threadfold.gateway.access import Caller
from threadfold.gateway.answers import KeyScope
from threadfold.gateway.declaration import Answer, Cost, Routes
from threadfold.gateway.parameters import Path
from threadfold.gateway.request import Body
from threadfold.gateway.routes.common import answer
from threadfold.quotas.quotas import shown_quota
from threadfold.schemas.structs import NAME

routes = Routes("Tenants")
_admin = partial(routes.add, scope="admin", cost=Cost.ADMINISTRATION)
_AllBody = partial(Body, limit=1 << 20)
_ALL = "/v1/tenants"
_ONE = "/v1/tenants/{tenant}"
_KEYS = f"{_ONE}/keys"


def _quota_schema(name: str) -> dict[str, Any]:
    return {
        "type": ["integer" if name in COUNTS else "number", "null"],
        "minimum": 0.1 if name in BURSTS else 0,
        "maximum": 86_400 if name in BURSTS else 1e12,
    }


# The schemas say what streams.settings.quotas checks; its errors name the field at fault.
_Quota = Annotated[
    dict[str, Any],
    Meta(
        description="numbers by name; 0: no limit, null: what the deployment's settings say",
        extra_json_schema={
            "properties": {name: _quota_schema(name) for name in Quota.__struct_fields__},
            "additionalProperties": False,
        },
    ),
]
_SCOPES_SCHEMA = msgspec.json.schema(Annotated[list[KeyScope], Meta(min_length=1)])
_Scopes = Annotated[list[str], Meta(extra_json_schema=_SCOPES_SCHEMA)]
_Until = Annotated[str, Meta(extra_json_schema={"format": "date-time"})]
_Name = Annotated[str, Meta(extra_json_schema=NAME)]
TenantName = Annotated[str, Path(example="nord"), Meta(extra_json_schema=NAME)]


class NewTenant(Struct, forbid_unknown_fields=True):
    """A tenant to record; `scopes`, `key_name` and `expires_at` are its first key's."""

    name: _Name
    policy: dict[str, Any] | None = None
    quota: _Quota | None = None
    scopes: _Scopes | None = None
    key_name: str | None = None
    expires_at: _Until | None = None


class TenantChange(Struct, forbid_unknown_fields=True):
    """What to change. The policy is replaced whole, the quota number by number; null takes all of
    it away.
    """

    policy: dict[str, Any] | None = None
    quota: _Quota | UnsetType | None = UNSET


class NewKey(Struct, forbid_unknown_fields=True):
    """A key to make; without `scopes` it has the usual ones, without `expires_at` it does not
    expire.
    """

    scopes: _Scopes | None = None
    name: str | None = None
    expires_at: _Until | None = None


class Key(Struct):
    """A key as lists show it, without its secret."""

    id: str
    name: str | None
    scopes: list[KeyScope]
    created: str | None
    expires_at: str | None
    expired: bool


class MadeKey(Key, kw_only=True):
    """A new key; `key` is the secret, shown in this answer and never again."""

    key: str


class ShownTenant(Struct):
    """A tenant. `policy` is in force, `next_policy` waits for the next generation; `quota` is its
    own, `quota_in_force` the effective one.
    """

    name: str
    policy: dict[str, Any]
    next_policy: dict[str, Any] | None
    quota: dict[str, Any]
    quota_in_force: dict[str, Any]
    keys: list[Key]


class MadeTenant(ShownTenant, kw_only=True):
    """A new tenant; `key` is the secret of its first key, shown in this answer and never again."""

    key: str


class Tenants(Struct):
    """All tenants, by name."""

    tenants: list[ShownTenant]


class Keys(Struct):
    """A tenant's keys, oldest first."""

    keys: list[Key]


class Revoked(Struct):
    """The ids of the keys that were revoked."""

    revoked: list[str]


_KEY: dict[str, Any] = {
    "id": "3f9a1c0b7d2e",
    "name": "backend",
    "scopes": ["append", "read", "subscribe"],
    "created": "2026-01-31T12:00:00Z",
    "expires_at": None,
    "expired": False,
}
_SECRET = "tf_shown-once"
_LIMITS = {"requests_per_second": 200, "tokens_per_minute": 2000000}
_TENANT: dict[str, Any] = {
    "name": "nord",
    "policy": {"working_budget": 20000},
    "next_policy": None,
    "quota": _LIMITS,
    "quota_in_force": {name: _LIMITS.get(name) for name in Quota.__struct_fields__},
    "keys": [_KEY],
}
_REVOKED = {"revoked": [_KEY["id"]]}


@_admin(
    "GET",
    _ALL,
    summary="List tenants",
    answers={200: Answer(Tenants, {"tenants": [_TENANT]}, "All tenants, by name.")},
)
async def get_tenants(caller: Caller) -> Response:
    """All tenants by name, each with its policy, its quota and its keys (by their ids alone)."""
    state = await caller.backend.control.sync()
    names = sorted(state.tenants.keys() | {key.tenant for key in state.keys.values()})
    default = caller.backend.settings.quota()
    return answer({"tenants": [_shown(state, state.tenant(name), default) for name in names]})


@_admin(
    "POST",
    _ALL,
    summary="Add a tenant",
    body=_AllBody(
        NewTenant,
        {
            "a tenant": {
                "name": "nord",
                "policy": {"working_budget": 20000},
                "quota": _LIMITS,
                "key_name": "backend",
            }
        },
    ),
    answers={
        201: Answer(
            MadeTenant,
            {**_TENANT, "key": _SECRET},
            "The tenant, and its first key, which is never shown again.",
        )
    },
    problems=(409,),
)
async def post_tenant(caller: Caller, body: NewTenant) -> Response:
    """Record a tenant and make its first key, which is shown in this answer and never again. 409 if
    it is known already.
    """
    check_key_name(body.key_name)
    check_expiry(body.expires_at, time.time())
    scopes = None if body.scopes is None else check_scopes(body.scopes)
    quota = read_quota(body.quota or {})
    control = caller.backend.control
    tenant = await control.new_tenant(body.name, body.policy, quota)
    key = await control.add_key(body.name, scopes, name=body.key_name, expires_at=body.expires_at)
    shown = _shown(control.state, tenant, caller.backend.settings.quota())
    return answer({**shown, "key": key}, 201)


@_admin(
    "GET",
    _ONE,
    summary="Show a tenant",
    answers={200: Answer(ShownTenant, _TENANT, "The tenant.")},
    problems=(404,),
)
async def get_tenant(caller: Caller, tenant: TenantName) -> Response:
    """One tenant: `policy` is in force, `next_policy` waits for the next generation; `quota` is its
    own, `quota_in_force` the effective one.
    """
    state = await caller.backend.control.sync()
    return answer(_shown(state, _known(state, tenant), caller.backend.settings.quota()))


@_admin(
    "PATCH",
    _ONE,
    summary="Change a tenant",
    body=_AllBody(
        TenantChange,
        {
            "quota": {"quota": {"requests_per_second": 100}},
            "policy": {"policy": {"working_budget": 10000}},
        },
    ),
    answers={
        200: Answer(
            ShownTenant,
            {**_TENANT, "next_policy": {"working_budget": 10000}},
            "The tenant as it is now.",
        )
    },
    problems=(404, 409),
)
async def patch_tenant(caller: Caller, body: TenantChange, tenant: TenantName) -> Response:
    """Change a tenant's quota, at once, or its policy, with the next generation (`threadfold
    rebuild --switch`).

    Null takes the quota away, or one number of it.
    """
    values = body.quota
    if body.policy is None and values is UNSET:
        raise InvalidRequest("the body changes nothing: give policy, quota or both")
    control = caller.backend.control
    _known(await control.sync(), tenant)
    quota = (
        None
        if isinstance(values, UnsetType)
        else (lambda old: Quota() if values is None else read_quota(values, old))
    )
    changed = await control.change_tenant(tenant, body.policy, quota)
    return answer(_shown(control.state, changed, caller.backend.settings.quota()))


@_admin(
    "GET",
    _KEYS,
    summary="List a tenant's keys",
    answers={200: Answer(Keys, {"keys": [_KEY]}, "Oldest first.")},
    problems=(404,),
)
async def get_keys(caller: Caller, tenant: TenantName) -> Response:
    """A tenant's keys, oldest first: ids, names, scopes and times. Of a key's secret only a hash is
    stored.
    """
    state = await caller.backend.control.sync()
    _known(state, tenant)
    return answer({"keys": _keys(state, tenant)})


@_admin(
    "POST",
    _KEYS,
    summary="Make a key",
    body=_AllBody(NewKey, {"for reading": {"scopes": ["read"], "name": "dashboard"}}),
    answers={
        201: Answer(MadeKey, {**_KEY, "key": _SECRET}, "The new key, which is never shown again.")
    },
    problems=(404,),
)
async def post_key(caller: Caller, body: NewKey, tenant: TenantName) -> Response:
    """Make another key for a tenant; it is shown in this answer and never again. An empty object
    gives it the usual scopes and no expiry.
    """
    control = caller.backend.control
    _known(await control.sync(), tenant)
    key = await control.add_key(tenant, body.scopes, name=body.name, expires_at=body.expires_at)
    hashed = hash_key(key)
    return answer({**shown_key(hashed, control.state.keys[hashed], time.time()), "key": key}, 201)


@_admin(
    "DELETE",
    f"{_KEYS}/{{key}}",
    summary="Revoke a key",
    answers={200: Answer(Revoked, _REVOKED, "It answers 401 from now on.")},
    problems=(404,),
)
async def delete_key(
    caller: Caller, tenant: TenantName, key: Annotated[str, Path(example=_KEY["id"])]
) -> Response:
    """Revoke one key by its id: from then on it answers 401."""
    control = caller.backend.control
    _known(await control.sync(), tenant)
    await control.revoke_keys(tenant, key)
    return answer({"revoked": [key]})


@_admin(
    "DELETE",
    _KEYS,
    summary="Revoke all keys of a tenant",
    answers={200: Answer(Revoked, _REVOKED, "They answer 401 from now on.")},
    problems=(404,),
)
async def delete_keys(caller: Caller, tenant: TenantName) -> Response:
    """Revoke all keys of a tenant. The tenant stays recorded, and its conversations stay in the
    log.
    """
    control = caller.backend.control
    state = await control.sync()
    _known(state, tenant)
    ids = [key["id"] for key in _keys(state, tenant)]
    await control.revoke_keys(tenant)
    return answer({"revoked": ids})


def _known(state: State, name: str) -> Tenant:
    check_name("tenant", name)
    return state.tenant(name)


def _keys(state: State, name: str) -> list[dict[str, Any]]:
    now = time.time()
    return [shown_key(hashed, key, now) for hashed, key in state.keys_of(name).items()]


def _shown(state: State, tenant: Tenant, default: Quota) -> dict[str, Any]:
    own = msgspec.structs.asdict(tenant.quota)
    return {
        "name": tenant.name,
        "policy": state.policy_of(tenant),
        "next_policy": tenant.next_policy,
        "quota": {name: value for name, value in own.items() if value is not None},
        "quota_in_force": shown_quota(tenant.quota.over(default)),
        "keys": _keys(state, tenant.name),
    }
