"""The JSON Schema of a policy, as tenants and conversations give one."""

from __future__ import annotations

from typing import Any

import msgspec

from projections.policy.key_bounds import LIMITS
from projections.policy.policy import Policy


def policy_schema(*without: str) -> dict[str, Any]:
    """The schema of an object of policy keys but those of ``without``. What the values of several
    keys must be to each other, and what the deployment allows, it does not say.
    """
    _, parts = msgspec.json.schema_components([Policy], ref_template="#/$defs/{name}")
    keys = {
        name: {**schema, **LIMITS.get(name, {})}
        for name, schema in _inlined(parts["Policy"]["properties"], parts).items()
        if name not in without
    }
    for schema in keys.values():
        schema.pop("default", None)
    return {"type": "object", "properties": keys, "additionalProperties": False}


def _inlined(schema: Any, parts: dict[str, Any]) -> Any:
    """A schema with the parts it refers to in their places."""
    if isinstance(schema, list):
        return [_inlined(item, parts) for item in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        return _inlined(parts[schema["$ref"].rpartition("/")[2]], parts)
    return {
        name: _inlined(value, parts) for name, value in schema.items() if name != "discriminator"
    }
