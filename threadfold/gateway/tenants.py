"""The routes under ``/v1/tenants``: tenants, their policies and quotas, and their keys. The scope
``admin`` is the deployment's operator's.

A change is on the control topic when it is answered; other gateways follow it, within a second
while Kafka is well.
"""

from __future__ import annotations

import time
from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from projections.errors import InvalidRequest
from projections.names import check_name
from streams.control.follower import State
from streams.settings.quotas import (
    SCOPES,
    Quota,
    Tenant,
    check_expiry,
    check_key_name,
    check_scopes,
    hash_key,
    read_quota,
    shown_key,
)
from threadfold.gateway.access import Caller, caller_with
from threadfold.gateway.bodies import read_json
from threadfold.quotas.quotas import shown_quota

router = APIRouter(prefix="/v1", tags=["administration"])
Admin = Annotated[Caller, Depends(caller_with("admin"))]
MAX_BODY = 1 << 20
_TEXT = {"type": "string"}
_KEY = {
    "scopes": {"type": "array", "items": {"type": "string", "enum": list(SCOPES)}},
    "key_name": _TEXT,
    "expires_at": {"type": "string", "format": "date-time"},
}
_RULES = {
    "policy": {"type": "object", "description": "keys of a tenant's policy"},
    "quota": {
        "type": "object",
        "properties": {
            name: {"type": ["number", "null"], "minimum": 0} for name in Quota.__struct_fields__
        },
        "additionalProperties": False,
    },
}


def _takes(properties: dict[str, Any], *required: str) -> dict[str, Any]:
    """A body's place in the OpenAPI document; it is read and checked by hand."""
    schema = {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }
    return {
        "requestBody": {
            "required": bool(required),
            "content": {"application/json": {"schema": schema}},
        }
    }


class NewTenant(msgspec.Struct, forbid_unknown_fields=True):
    """What ``POST /v1/tenants`` takes; ``scopes``, ``key_name`` and ``expires_at`` are the first
    key's.
    """

    name: str
    policy: dict[str, Any] | None = None
    quota: dict[str, Any] | None = None
    scopes: list[str] | None = None
    key_name: str | None = None
    expires_at: str | None = None


class TenantChange(msgspec.Struct, forbid_unknown_fields=True):
    """What ``PATCH /v1/tenants/{tenant}`` takes. The policy is replaced whole, the quota number by
    number; null takes all of it away.
    """

    policy: dict[str, Any] | None = None
    quota: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET


class NewKey(msgspec.Struct, forbid_unknown_fields=True):
    """What ``POST /v1/tenants/{tenant}/keys`` takes."""

    scopes: list[str] | None = None
    name: str | None = None
    expires_at: str | None = None


@router.get("/tenants")
async def get_tenants(caller: Admin) -> Response:
    """All tenants by name, each with its policy, its quota and its keys (which are shown by their
    ids alone).
    """
    state = await caller.backend.control.sync()
    names = sorted(state.tenants.keys() | {key.tenant for key in state.keys.values()})
    default = caller.backend.settings.quota()
    return _json({"tenants": [_shown(state, state.tenant(name), default) for name in names]})


@router.post(
    "/tenants", status_code=201, openapi_extra=_takes({"name": _TEXT, **_RULES, **_KEY}, "name")
)
async def post_tenant(request: Request, caller: Admin) -> Response:
    """Record a tenant and make its first key, which is shown in this answer and never again. 409
    where it is known already.
    """
    new = _read(await read_json(request, MAX_BODY), NewTenant)
    scopes, quota = (
        _checked_key(new.scopes, new.key_name, new.expires_at),
        read_quota(new.quota or {}),
    )
    control = caller.backend.control
    tenant = await control.new_tenant(new.name, new.policy, quota)
    key = await control.add_key(new.name, scopes, name=new.key_name, expires_at=new.expires_at)
    return _json(
        {**_shown(control.state, tenant, caller.backend.settings.quota()), "key": key}, 201
    )


@router.get("/tenants/{tenant}")
async def get_tenant(tenant: str, caller: Admin) -> Response:
    """One tenant: `policy` is in force, `next_policy` waits for the next generation; `quota` is its
    own, `quota_in_force` what holds.
    """
    state = await caller.backend.control.sync()
    return _json(_shown(state, _known(state, tenant), caller.backend.settings.quota()))


@router.patch("/tenants/{tenant}", openapi_extra=_takes(_RULES))
async def patch_tenant(request: Request, tenant: str, caller: Admin) -> Response:
    """Change a tenant's quota, at once, or policy, with the next generation (`threadfold rebuild
    --switch`).

    Null takes the quota away, or one number of it.
    """
    change = _read(await read_json(request, MAX_BODY), TenantChange)
    values = change.quota
    if change.policy is None and values is msgspec.UNSET:
        raise InvalidRequest("the body changes nothing: give policy, quota or both")
    control = caller.backend.control
    _known(await control.sync(), tenant)
    quota = (
        None
        if values is msgspec.UNSET
        else (lambda old: Quota() if values is None else read_quota(values, old))
    )
    changed = await control.change_tenant(tenant, change.policy, quota)
    return _json(_shown(control.state, changed, caller.backend.settings.quota()))


@router.get("/tenants/{tenant}/keys")
async def get_keys(tenant: str, caller: Admin) -> Response:
    """A tenant's keys, oldest first: ids, names, scopes and times; of the keys themselves nothing
    is stored but a hash.
    """
    state = await caller.backend.control.sync()
    _known(state, tenant)
    return _json({"keys": _keys(state, tenant)})


@router.post(
    "/tenants/{tenant}/keys",
    status_code=201,
    openapi_extra=_takes(
        {"scopes": _KEY["scopes"], "name": _TEXT, "expires_at": _KEY["expires_at"]}
    ),
)
async def post_key(request: Request, tenant: str, caller: Admin) -> Response:
    """Make another key for a tenant; it is shown in this answer and never again. An empty object
    takes the usual scopes, without an end.
    """
    new = _read(await read_json(request, MAX_BODY), NewKey)
    control = caller.backend.control
    _known(await control.sync(), tenant)
    key = await control.add_key(tenant, new.scopes, name=new.name, expires_at=new.expires_at)
    hashed = hash_key(key)
    return _json({**shown_key(hashed, control.state.keys[hashed], time.time()), "key": key}, 201)


@router.delete("/tenants/{tenant}/keys/{key}")
async def delete_key(tenant: str, key: str, caller: Admin) -> Response:
    """Revoke one key by its id: from then on it answers 401."""
    control = caller.backend.control
    _known(await control.sync(), tenant)
    await control.revoke_keys(tenant, key)
    return _json({"revoked": [key]})


@router.delete("/tenants/{tenant}/keys")
async def delete_keys(tenant: str, caller: Admin) -> Response:
    """Revoke all keys of a tenant. The tenant stays recorded, as what it has said stays in the
    log.
    """
    control = caller.backend.control
    state = await control.sync()
    _known(state, tenant)
    gone = [key["id"] for key in _keys(state, tenant)]
    await control.revoke_keys(tenant)
    return _json({"revoked": gone})


def _known(state: State, name: str) -> Tenant:
    check_name("tenant", name)
    return state.tenant(name)


def _checked_key(
    scopes: list[str] | None, name: str | None, expires_at: str | None
) -> tuple[str, ...] | None:
    """Check a key's parts before anything is written; returns its scopes."""
    check_key_name(name)
    check_expiry(expires_at, time.time())
    return None if scopes is None else check_scopes(scopes)


def _keys(state: State, name: str) -> list[dict[str, Any]]:
    now = time.time()
    return [shown_key(hashed, key, now) for hashed, key in state.keys_of(name).items()]


def _shown(state: State, tenant: Tenant, default: Quota) -> dict[str, Any]:
    in_force = state.policy_of(tenant)
    own = {
        name: value
        for name, value in msgspec.structs.asdict(tenant.quota).items()
        if value is not None
    }
    return {
        "name": tenant.name,
        "policy": in_force,
        "next_policy": tenant.next_policy,
        "quota": own,
        "quota_in_force": shown_quota(tenant.quota.over(default)),
        "keys": _keys(state, tenant.name),
    }


def _read(body: object, into: type[Any]) -> Any:
    try:
        return msgspec.convert(body, into)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"the body: {str(error).replace('`', '')[:300]}") from None


def _json(document: object, status: int = 200) -> Response:
    return Response(msgspec.json.encode(document), status, media_type="application/json")
