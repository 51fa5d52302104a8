"""The operations of administration: tenants, their policies and quotas, and their keys."""

from __future__ import annotations

from typing import Any

from streams.settings.quotas import BURSTS, COUNTS, Quota
from threadfold.gateway.openapi.components import OBJECT, SCOPE, TEXT, array, nullable, record
from threadfold.gateway.openapi.operation import Answer, Body, Operation, Schema, Table, ref
from threadfold.schemas.structs import NAME

_ALL = "/v1/tenants"
_ONE = "/v1/tenants/{tenant}"
_KEYS = f"{_ONE}/keys"
_SCOPES = array(SCOPE, minItems=1)
_UNTIL = {"type": "string", "format": "date-time"}
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


def _limit(name: str) -> Schema:
    least = 0.1 if name in BURSTS else 0
    return {
        "type": ["integer" if name in COUNTS else "number", "null"],
        "minimum": least,
        "maximum": 86_400 if name in BURSTS else 1e12,
    }


_QUOTA: Schema = {
    "type": "object",
    "properties": {name: _limit(name) for name in Quota.__struct_fields__},
    "additionalProperties": False,
    "description": "numbers by name; 0: no limit, null: what the deployment's settings say",
}
_REVOKED = record({"revoked": array(TEXT)})

OPERATIONS: Table = {
    ("GET", _ALL): Operation(
        "Tenants",
        "List tenants",
        "admin",
        {
            200: Answer(
                record({"tenants": array(ref("Tenant"))}),
                {"tenants": [_TENANT]},
                "All tenants, by name.",
            )
        },
    ),
    ("POST", _ALL): Operation(
        "Tenants",
        "Add a tenant",
        "admin",
        {
            201: Answer(
                ref("Tenant"),
                {**_TENANT, "key": _SECRET},
                "The tenant, and its first key: it is never shown again.",
            )
        },
        Body(
            record(
                {"name": NAME},
                {
                    "policy": nullable(OBJECT),
                    "quota": nullable(_QUOTA),
                    "scopes": nullable(_SCOPES),
                    "key_name": nullable(TEXT),
                    "expires_at": nullable(_UNTIL),
                },
                closed=True,
            ),
            {
                "a tenant": {
                    "name": "nord",
                    "policy": {"working_budget": 20000},
                    "quota": _LIMITS,
                    "key_name": "backend",
                }
            },
        ),
        (409,),
    ),
    ("GET", _ONE): Operation(
        "Tenants",
        "Show a tenant",
        "admin",
        {200: Answer(ref("Tenant"), _TENANT, "The tenant.")},
        None,
        (404,),
        {"tenant": "nord"},
    ),
    ("PATCH", _ONE): Operation(
        "Tenants",
        "Change a tenant",
        "admin",
        {
            200: Answer(
                ref("Tenant"),
                {**_TENANT, "next_policy": {"working_budget": 10000}},
                "The tenant as it is now.",
            )
        },
        Body(
            record({}, {"policy": nullable(OBJECT), "quota": nullable(_QUOTA)}, closed=True),
            {
                "quota": {"quota": {"requests_per_second": 100}},
                "policy": {"policy": {"working_budget": 10000}},
            },
        ),
        (404, 409),
        {"tenant": "nord"},
    ),
    ("GET", _KEYS): Operation(
        "Tenants",
        "List a tenant's keys",
        "admin",
        {200: Answer(record({"keys": array(ref("Key"))}), {"keys": [_KEY]}, "Oldest first.")},
        None,
        (404,),
        {"tenant": "nord"},
    ),
    ("POST", _KEYS): Operation(
        "Tenants",
        "Make a key",
        "admin",
        {
            201: Answer(
                ref("NewKey"), {**_KEY, "key": _SECRET}, "The new key: it is never shown again."
            )
        },
        Body(
            record(
                {},
                {
                    "scopes": nullable(_SCOPES),
                    "name": nullable(TEXT),
                    "expires_at": nullable(_UNTIL),
                },
                closed=True,
            ),
            {"for reading": {"scopes": ["read"], "name": "dashboard"}},
        ),
        (404,),
        {"tenant": "nord"},
    ),
    ("DELETE", f"{_KEYS}/{{key}}"): Operation(
        "Tenants",
        "Revoke a key",
        "admin",
        {200: Answer(_REVOKED, {"revoked": ["3f9a1c0b7d2e"]}, "It answers 401 from now on.")},
        None,
        (404,),
        {"tenant": "nord", "key": "3f9a1c0b7d2e"},
    ),
    ("DELETE", _KEYS): Operation(
        "Tenants",
        "Revoke all keys of a tenant",
        "admin",
        {200: Answer(_REVOKED, {"revoked": ["3f9a1c0b7d2e"]}, "They answer 401 from now on.")},
        None,
        (404,),
        {"tenant": "nord"},
    ),
}
