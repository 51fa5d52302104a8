"""The examples of answers in the OpenAPI document: made from their types, with one value for each
field by its name.
"""

from __future__ import annotations

from types import NoneType
from typing import Annotated, Any, Literal, get_args, get_origin

from msgspec import UNSET, Struct
from msgspec.structs import fields

from streams.settings.quotas import Quota

CONVERSATION = "support-42"
POSITION = "3-17"
DIGEST = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
TIME = "2026-01-31T12:00:00.000Z"
CURSOR = "AAAAAAAAABH__________zG3mJ4Qh1dS"
RENDER = "AAAAAwAAAAAAAAARkDcrvJ9jZJbB"
KEY = "3f9a1c0b7d2e"
QUOTA = {"requests_per_second": 200, "tokens_per_minute": 2000000}
QUESTION = {"role": "user", "content": "Where is my order 1182?"}
EVENT: dict[str, Any] = {
    "id": "0197a1c2-6f3e-7c41-9d2b-5f0a8e6b1c3d",
    "type": "message",
    "time": TIME,
    "position": POSITION,
    **QUESTION,
}
CALL: dict[str, Any] = {
    "model": "gpt-5-mini",
    "render_digest": DIGEST,
    "position": POSITION,
    "format": "openai",
    "tokens": 23,
}
_SUMMARY: dict[str, Any] = {
    "id": "c0ffee00c0ffee00c0ffee00c0ffee00",
    "type": "summary",
    "time": TIME,
    "position": "3-60",
    "summary_id": "c0ffee00c0ffee00c0ffee00c0ffee00",
    "text": "The customer asked where order 1182 is; it was shipped by post.",
    "tokens": 16,
    "span": {
        "from": POSITION,
        "to": "3-41",
        "count": 3,
        "positions": [17, 12, 12],
        "digest": DIGEST,
        "stands": "111",
    },
    "previous": None,
    "reason": "budget",
    "summarizer": "extractive",
    "trust": "tool",
    "tokens_before": 30400,
    "tokens_after": 12100,
    "policy": "0f1e2d3c4b5a6978",
}
_STORES = {
    "log": ("opaque", None, "payloads are encrypted with a key that is deleted"),
    "keys": (
        "deleted",
        "2026-02-01T13:00:00.000Z",
        "unusable at once; the broker drops the wrapped keys by then",
    ),
    "windows": ("deleted", None, "in all generations; only the fact of the erasure is left"),
}
_VALUES: dict[str, Any] = {
    "active_at": TIME,
    "agrees": True,
    "asyncapi": "3.0.0",
    "behind": 12,
    "budget": 30000,
    "ceiling": 92160,
    "channel": "web",
    "channels": {},
    "conversation": CONVERSATION,
    "count": 2,
    "created": "2026-01-31T12:00:00Z",
    "dialect": "https://json-schema.org/draft/2020-12/schema",
    "digest": DIGEST,
    "encryption": False,
    "erased_at": TIME,
    "erasure": "kept",
    "expired": False,
    "fencing_token": 18,
    "generation": 1,
    "guard": None,
    "halted": [3],
    "id": EVENT["id"],
    "key": "tf_shown-once",
    "metadata": {"title": "Order 1182"},
    "metadata_cut": False,
    "messages": [{"role": "system", "content": "You help customers of a shop."}, QUESTION],
    "offset": 11,
    "partitions": 16,
    "policy": {"working_budget": 20000},
    "position": POSITION,
    "prompt": "Refund 40 EUR?",
    "quota": QUOTA,
    "quota_in_force": {name: QUOTA.get(name) for name in Quota.__struct_fields__},
    "record": {**CALL, "generation": 1},
    "recorded": True,
    "render_digest": DIGEST,
    "revoked": [KEY],
    "scopes": ["append", "read", "subscribe"],
    "seconds": 60,
    "stores": {
        name: {"state": state, "deadline": deadline, "how": how}
        for name, (state, deadline, how) in _STORES.items()
    },
    "summaries": [_SUMMARY],
    "summary_cost": 1.25,
    "summary_tokens": 812000,
    "suspension_id": "refund-1",
    "text": QUESTION["content"],
    "time": TIME,
    "title": "Order 1182",
    "tokens": 23,
    "tool_call_id": "call_2",
    "trace": [],
    "turn_id": "t-1",
    "unreadable": [],
    "used_today": {"summary_tokens": 812000, "summary_cost": 1.25},
    "user": "u-7",
    "utilization": 0.00025,
    "waiting": ["t-2"],
    "why": [],
    "AppendedOfSeveral.positions": {CONVERSATION: POSITION},
    "Context.suspensions": [],
    "History.events": [EVENT],
    "History.next_before": CURSOR,
    "JsonSchema.id": "urn:threadfold:schema:message:v1",
    "Key.id": KEY,
    "Key.name": "backend",
    "RecordedCall.id": RENDER,
    "Render.id": RENDER,
    "ShownTenant.name": "nord",
}
"""The value of each field, by its name or by its struct's name and its own."""


def example_of(kind: type[Struct], **given: Any) -> dict[str, Any]:
    """An example of a struct, with the values ``given`` instead of the usual ones. It leaves out
    what an answer may leave out, unless it is given.

    Raises:
        KeyError: a field has no value, and its type gives none.
    """
    return {
        field.encode_name: given[field.name] if field.name in given else _value(kind, field)
        for field in fields(kind)
        if field.name in given or field.default is not UNSET
    }


def _value(owner: type[Struct], field: Any) -> Any:
    for name in (*(f"{one.__name__}.{field.name}" for one in owner.__mro__), field.name):
        if name in _VALUES:
            return _VALUES[name]
    return _of_type(field.type, f"{owner.__name__}.{field.name}")


def _of_type(kind: Any, name: str) -> Any:
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _of_type(arguments[0], name)
    if origin is Literal:
        return arguments[0]
    if origin is list:
        return [_of_type(arguments[0], name)]
    if NoneType in arguments:
        return None
    if isinstance(kind, type) and issubclass(kind, Struct):
        return example_of(kind)
    raise KeyError(f"{name} has no example: add a value for it")
