"""The AsyncAPI 3.0 document of the topics: what stands in them, under which keys, for how long, and
who writes and reads it.
"""

from __future__ import annotations

from typing import Any

import msgspec

from projections.events.types import CONTENT_TYPE, full_type
from streams.compaction.requests import CompactionRequest
from streams.control.state import Generation
from streams.encryption.key_table import Erasure, KeyRecord
from streams.log.topics import SPECS, TopicSpec
from streams.settings.quotas import ApiKey, Tenant
from threadfold.schemas.forms import LOG_TYPES, RENDER_TOPIC, SUMMARY_TOPIC, envelope
from threadfold.schemas.structs import ABOUT, DATA, Schema, components

_SCHEMAS = "#/components/schemas/{name}"
_KAFKA = "0.5.0"
_INTERNAL = "Internal: its form may change with any release."

_CHANNELS: dict[str, tuple[str, str]] = {
    "events": (
        "The log",
        (
            "Every event of every conversation, in the order of its partition: the only source of"
            " truth. Kept for ever and never key-compacted; times are the broker's. A service may"
            " append here itself: give every event an id of its own, and expect types and fields"
            " you do not know."
        ),
    ),
    "summaries": (
        "Summaries",
        (
            "The summaries that a window took, and what became of them: `summary.voided` after a"
            " rollback, `conversation.erased` at the end. Kept for ever. Delivery is at least once:"
            " dedupe on `summary_id`."
        ),
    ),
    "snapshots": (
        "Snapshots",
        (
            f"{_INTERNAL} The latest snapshot of each window. Key-compacted; losing it costs time,"
            " never data."
        ),
    ),
    "compactions": (
        "Compaction requests",
        (
            f"{_INTERNAL} Requests to summarise a span, repeated until its summary is accepted."
            " Kept 7 days."
        ),
    ),
    "renders": (
        "Model calls",
        "The ledger of model calls: what a model was sent, by its digest. Kept 30 days by default.",
    ),
    "control": (
        "Control",
        (
            f"{_INTERNAL} Tenants, hashed keys, policies, generations and the live one."
            " Key-compacted, one partition, keys are `kind/name`; a record without a value takes"
            " the thing back."
        ),
    ),
    "dead-letters": (
        "Dead letters",
        (
            "Position and cause of what could not be applied; the record itself stays in the log."
            " Kept 28 days. Keys are those of the source."
        ),
    ),
    "keys": (
        "Data keys",
        (
            f"{_INTERNAL} The wrapped data key of each conversation of a tenant with `encryption`."
            " Key-compacted; a record without a value erases the key, and with it what it sealed."
        ),
    ),
}
"""Title and description of each topic; ``test_schemas`` finds a topic that has none."""


def asyncapi_document(prefix: str = "threadfold") -> Schema:
    """The document for topics whose names begin with ``prefix`` (the setting ``topic_prefix``)."""
    channels: dict[str, Any] = {}
    operations: dict[str, Any] = {}
    messages = _messages()
    specs = [spec for spec in SPECS if spec.name in _CHANNELS]
    for spec in specs:
        channels[spec.name] = _channel(spec, prefix, _messages_of(spec.name))
        for action in _ACTIONS.get(spec.name, ()):
            operations[f"{action}-{spec.name}"] = {
                "action": action,
                "channel": {"$ref": f"#/channels/{spec.name}"},
                "summary": _SUMMARY.get((action, spec.name), "threadfold's own."),
                "messages": [
                    {"$ref": f"#/channels/{spec.name}/messages/{name}"}
                    for name in _messages_of(spec.name)
                ],
            }
    named = {name for spec in specs for name in _messages_of(spec.name)}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "threadfold topics",
            "version": "1",
            "description": (
                "Conversation events in, summaries out. Keys are `tenant/conversation`, partitions"
                " are chosen by Kafka's own murmur2, values are CloudEvents 1.0 in structured mode."
                " Whoever may read these topics reads every tenant: they are for the platform's own"
                " services; tenants use the gateway."
            ),
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "kafka": {
                "host": "localhost:9092",
                "protocol": "kafka",
                "description": "The setting `kafka`.",
            }
        },
        "channels": channels,
        "operations": operations,
        "components": {
            "messages": {name: message for name, message in messages.items() if name in named},
            "schemas": _schemas(),
        },
    }


_ACTIONS: dict[str, tuple[str, ...]] = {
    "events": ("send", "receive"),
    "summaries": ("send",),
    "snapshots": ("send", "receive"),
    "compactions": ("send", "receive"),
    "renders": ("send",),
    "control": ("send", "receive"),
    "dead-letters": ("send",),
    "keys": ("send", "receive"),
}
_SUMMARY = {
    ("send", "events"): "Gateway and client append; the compactor appends summaries.",
    ("receive", "events"): "The projector folds every event, whoever wrote it.",
    ("send", "summaries"): "The projector says which summaries a window took: subscribe here.",
    ("send", "renders"): "The gateway records a model call.",
    ("send", "dead-letters"): "The projector sets aside what is no event.",
}


def _channel(spec: TopicSpec, prefix: str, names: list[str]) -> Schema:
    title, about = _CHANNELS[spec.name]
    kept = {
        name: _setting(name, value)
        for name, value in spec.config.items()
        if name in _TOPIC_SETTINGS
    }
    return {
        "address": f"{prefix}.{spec.name}",
        "title": title,
        "description": about,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in names},
        "bindings": {
            "kafka": {
                "topic": f"{prefix}.{spec.name}",
                "topicConfiguration": kept,
                "bindingVersion": _KAFKA,
            }
        },
    }


_TOPIC_SETTINGS = ("cleanup.policy", "retention.ms", "retention.bytes")


def _setting(name: str, value: str) -> object:
    return value.split(",") if name == "cleanup.policy" else int(value)


def _messages_of(topic: str) -> list[str]:
    return {
        "events": [*LOG_TYPES],
        "summaries": [*SUMMARY_TOPIC],
        "renders": [*RENDER_TOPIC],
        "snapshots": ["snapshot"],
        "compactions": ["compaction.request"],
        "control": [
            "control.generation",
            "control.claim",
            "control.live",
            "control.tenant",
            "control.key",
        ],
        "dead-letters": ["dead.letter"],
        "keys": ["data.key", "erasure"],
    }[topic]


def _messages() -> dict[str, Schema]:
    events = {kind: _event(kind) for kind in DATA}
    return {
        **events,
        "snapshot": _record(
            "snapshot",
            "A window's latest snapshot, opaque.",
            {"type": "string", "format": "binary"},
            _CONVERSATION,
        ),
        "compaction.request": _record(
            "compaction.request",
            "A request to summarise a span.",
            _ref("CompactionRequest"),
            _CONVERSATION,
        ),
        "control.generation": _record(
            "control.generation",
            "One complete set of windows: its number, its rules and the log's shape.",
            _ref("Generation"),
            {"type": "string", "pattern": "^generation/[0-9]+$"},
        ),
        "control.claim": _record(
            "control.claim",
            "Who begins the generation of this number: the first of them on the topic.",
            {"type": "integer"},
            {"type": "string", "pattern": "^claim/[0-9]+/[0-9a-f]+$"},
        ),
        "control.live": _record(
            "control.live",
            "The number of the live generation.",
            {"type": "integer"},
            {"type": "string", "const": "generation/live"},
        ),
        "control.tenant": _record(
            "control.tenant", "A tenant.", _ref("Tenant"), {"type": "string", "pattern": "^tenant/"}
        ),
        "control.key": _record(
            "control.key",
            "What a key opens; the record's key has the hash.",
            _ref("ApiKey"),
            {"type": "string", "pattern": "^key/"},
        ),
        "dead.letter": _record(
            "dead.letter",
            "Where a record stands that is no event, and why.",
            _ref("DeadLetter"),
            _CONVERSATION,
        ),
        "data.key": _record(
            "data.key",
            "A conversation's data key, wrapped by a master key.",
            _ref("KeyRecord"),
            {"type": "string"},
        ),
        "erasure": _record(
            "erasure",
            "That a conversation is being erased, or was.",
            _ref("Erasure"),
            {"type": "string"},
        ),
    }


_CONVERSATION: Schema = {
    "type": "string",
    "pattern": "^[A-Za-z0-9._:-]{1,128}/[A-Za-z0-9._:-]{1,128}$",
    "description": "`tenant/conversation`",
}


def _event(kind: str) -> Schema:
    return {
        "name": full_type(kind),
        "title": kind,
        "summary": ABOUT[kind],
        "contentType": CONTENT_TYPE,
        "headers": {
            "type": "object",
            "properties": {"content-type": {"type": "string", "const": CONTENT_TYPE}},
            "required": ["content-type"],
        },
        "payload": _ref(_event_name(kind)),
        "bindings": {"kafka": {"key": _CONVERSATION, "bindingVersion": _KAFKA}},
    }


def _record(name: str, about: str, payload: Schema, key: Schema) -> Schema:
    binary = payload.get("format") == "binary"
    return {
        "name": name,
        "summary": about,
        "contentType": "application/octet-stream" if binary else "application/json",
        "payload": payload,
        "bindings": {"kafka": {"key": key, "bindingVersion": _KAFKA}},
    }


def _schemas() -> dict[str, Schema]:
    made = dict(components(_SCHEMAS))
    made |= {_event_name(kind): envelope(kind, _SCHEMAS) for kind in DATA}
    _, more = msgspec.json.schema_components(
        [CompactionRequest, Generation, Tenant, ApiKey, KeyRecord, Erasure], ref_template=_SCHEMAS
    )
    for name, schema in more.items():
        schema["description"] = " ".join(schema.get("description", "").replace("``", "`").split())
        made[name] = schema
    made["DeadLetter"] = {
        "type": "object",
        "description": (
            "Of kind `record` nobody's event; `poison` parked its conversation, and what is"
            " `waiting` came after it. `closed` says that an operator took the letter off the list."
        ),
        "properties": {
            "position": {"type": "string"},
            "cause": {"type": "string"},
            "kind": {"type": "string", "enum": ["record", "poison", "waiting"]},
            "closed": {"type": "boolean"},
        },
        "required": ["position", "cause"],
    }
    return dict(sorted(made.items()))


def _event_name(kind: str) -> str:
    return "".join(part.capitalize() for part in kind.split(".")) + "CloudEvent"


def _ref(name: str) -> Schema:
    return {"$ref": _SCHEMAS.format(name=name)}
