"""The AsyncAPI 3.0 document of the topics: their messages, keys and retention, and who writes and
reads them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from projections.events.codec import CONTENT_TYPE, full_type
from projections.names import LOG_PATTERN, NAME_PATTERN
from streams.compaction.requests import CompactionRequest
from streams.control.state import Generation
from streams.encryption.key_table import Erasure, KeyRecord
from streams.log.topics import SPECS, TopicSpec
from streams.memory.extraction_requests import ExtractionRequest
from streams.settings.quotas import ApiKey, Tenant
from threadfold.schemas.forms import LOG_TYPES, MEMORY_TOPIC, RENDER_TOPIC, SUMMARY_TOPIC, envelope
from threadfold.schemas.structs import ABOUT, DATA, Schema, components, plain_text

_SCHEMAS = "#/components/schemas/{name}"
_KAFKA = "0.5.0"
_INTERNAL = "Internal: its form may change with any release."
_OWN = "threadfold's own."


class _Channel(NamedTuple):
    """A topic: its messages, and who sends and receives them (None: nobody but its readers)."""

    title: str
    about: str
    messages: tuple[str, ...]
    send: str = _OWN
    receive: str | None = None


_CHANNELS = {
    "events": _Channel(
        "The log",
        "Every event of every conversation, in the order of its partition: the only source of"
        " truth. Kept for ever and never key-compacted. Times are the broker's. A service may"
        " append here itself: give every event an id of its own, and expect types and fields that"
        " you do not know.",
        LOG_TYPES,
        "Gateway and client append; the compactor appends summaries.",
        "The projector folds every event, whoever wrote it.",
    ),
    "summaries": _Channel(
        "Summaries",
        "The summaries that a window accepted. `summary.voided` follows after a rollback,"
        " `conversation.erased` at the end. Kept for ever. Delivery is at least once: dedupe on"
        " `summary_id`. A summary that a rollback puts in force again comes again after its"
        " voiding.",
        SUMMARY_TOPIC,
        "The projector publishes the accepted summaries: subscribe here.",
    ),
    "memories": _Channel(
        "Long-term memory",
        "The memory events that a window accepted, with `position` and `recordedtime`: the source"
        " of the memory store. `memory.voided` follows after a rollback or a dropped event,"
        " `conversation.erased` at the end. Kept for ever. Keys are `TENANT/~TAG`; the tag is the"
        " first 32 hex digits of the SHA-256 of `user`, the tenant and the user's id, a line each."
        " Delivery is at least once, and the order says nothing: what supersedes what follows from"
        " the events' own times and positions.",
        MEMORY_TOPIC,
        "The projector publishes the accepted memory events.",
        "Each gateway keeps its memory store up with it.",
    ),
    "snapshots": _Channel(
        "Snapshots",
        f"{_INTERNAL} The latest snapshot of each window. Key-compacted; losing it costs time,"
        " never data.",
        ("snapshot",),
        receive=_OWN,
    ),
    "compactions": _Channel(
        "Compaction requests",
        f"{_INTERNAL} Requests to summarise a span, repeated until its summary is accepted, and to"
        " learn from one, sent once. Kept 7 days.",
        ("compaction.request", "extraction.request"),
        receive=_OWN,
    ),
    "renders": _Channel(
        "Model calls",
        "The ledger of model calls: the digest of what a model was sent. Kept 30 days by default.",
        RENDER_TOPIC,
        "The gateway records a model call.",
    ),
    "control": _Channel(
        "Control",
        f"{_INTERNAL} Tenants, hashed keys, policies, generations and the live one. Key-compacted,"
        " one partition. Keys are `kind/name`; a record without a value removes the entry.",
        (
            "control.generation",
            "control.claim",
            "control.live",
            "control.tenant",
            "control.key",
        ),
        receive=_OWN,
    ),
    "dead-letters": _Channel(
        "Dead letters",
        "Position and cause of each event that could not be applied; the record itself stays in the"
        " log. Kept 28 days. Keys are those of the source.",
        ("dead.letter",),
        "The projector reports what it cannot apply.",
    ),
    "keys": _Channel(
        "Data keys",
        f"{_INTERNAL} The wrapped data key of each conversation of a tenant with `encryption`."
        " Key-compacted; a record without a value erases the key, and so all that it encrypts.",
        ("data.key", "erasure"),
        receive=_OWN,
    ),
}
"""Each topic in the document; ``test_documents`` finds a topic that has none."""


def asyncapi_document(prefix: str = "threadfold") -> Schema:
    """The document for topics whose names begin with ``prefix`` (the setting ``topic_prefix``)."""
    operations: dict[str, Any] = {}
    specs = [spec for spec in SPECS if spec.name in _CHANNELS]
    for spec in specs:
        channel, at = _CHANNELS[spec.name], f"#/channels/{spec.name}"
        for action, summary in (("send", channel.send), ("receive", channel.receive)):
            if summary is not None:
                operations[f"{action}-{spec.name}"] = {
                    "action": action,
                    "channel": {"$ref": at},
                    "summary": summary,
                    "messages": [{"$ref": f"{at}/messages/{name}"} for name in channel.messages],
                }
    named = {name for spec in specs for name in _CHANNELS[spec.name].messages}
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "threadfold topics",
            "version": "1",
            "description": (
                "Conversation events in, summaries out. Keys are `tenant/conversation`, the"
                " partitioner is Kafka's murmur2, values are CloudEvents 1.0 in structured mode."
                " These topics are for the platform's own services, because whoever may read them"
                " reads every tenant. Tenants use the gateway."
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
        "channels": {spec.name: _channel(spec, prefix) for spec in specs},
        "operations": operations,
        "components": {
            "messages": {name: message for name, message in _messages().items() if name in named},
            "schemas": _schemas(),
        },
    }


def _channel(spec: TopicSpec, prefix: str) -> Schema:
    channel, topic = _CHANNELS[spec.name], f"{prefix}.{spec.name}"
    config = {
        name: value.split(",") if name == "cleanup.policy" else int(value)
        for name, value in spec.config.items()
        if name in ("cleanup.policy", "retention.ms", "retention.bytes")
    }
    kafka = {"topic": topic, "topicConfiguration": config, "bindingVersion": _KAFKA}
    return {
        "address": topic,
        "title": channel.title,
        "description": channel.about,
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in channel.messages},
        "bindings": {"kafka": kafka},
    }


_CONVERSATION: Schema = {
    "type": "string",
    "pattern": f"^{NAME_PATTERN}/{LOG_PATTERN}$",
    "description": "`tenant/conversation`, or `tenant/~tag` for a user's memory",
}
_ANY_KEY: Schema = {"type": "string"}


def _key(pattern: str) -> Schema:
    return {"type": "string", "pattern": pattern}


_RECORDS: dict[str, tuple[str, Schema | type[Struct], Schema]] = {
    "snapshot": (
        "A window's latest snapshot, opaque.",
        {"type": "string", "format": "binary"},
        _CONVERSATION,
    ),
    "compaction.request": ("A request to summarise a span.", CompactionRequest, _CONVERSATION),
    "extraction.request": (
        "A request to learn from a span, for the long-term memory.",
        ExtractionRequest,
        _CONVERSATION,
    ),
    "control.generation": (
        "One complete set of windows: its number, its rules and the log's shape.",
        Generation,
        _key("^generation/[0-9]+$"),
    ),
    "control.claim": (
        "A claim to begin the generation of this number: the first one on the topic wins.",
        {"type": "integer"},
        _key("^claim/[0-9]+/[0-9a-f]+$"),
    ),
    "control.live": (
        "The number of the live generation.",
        {"type": "integer"},
        {"type": "string", "const": "generation/live"},
    ),
    "control.tenant": ("A tenant.", Tenant, _key("^tenant/")),
    "control.key": (
        "An API key's tenant and scopes; the record's key has the hash of the secret.",
        ApiKey,
        _key("^key/"),
    ),
    "dead.letter": (
        "The position of a record that could not be applied, and the cause.",
        {"$ref": _SCHEMAS.format(name="DeadLetter")},
        _CONVERSATION,
    ),
    "data.key": ("A conversation's data key, wrapped by a master key.", KeyRecord, _ANY_KEY),
    "erasure": ("The erasure of a conversation, begun or done.", Erasure, _ANY_KEY),
}
"""The messages that are no events: what each is, its payload and its key."""


def _messages() -> dict[str, Schema]:
    return {
        **{kind: _event(kind) for kind in DATA},
        **{name: _record(name, *record) for name, record in _RECORDS.items()},
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


def _record(name: str, about: str, payload: Schema | type[Struct], key: Schema) -> Schema:
    schema = payload if isinstance(payload, dict) else _ref(payload.__name__)
    binary = schema.get("format") == "binary"
    return {
        "name": name,
        "summary": about,
        "contentType": "application/octet-stream" if binary else "application/json",
        "payload": schema,
        "bindings": {"kafka": {"key": key, "bindingVersion": _KAFKA}},
    }


def _schemas() -> dict[str, Schema]:
    made = dict(components(_SCHEMAS))
    made |= {_event_name(kind): envelope(kind, _SCHEMAS) for kind in DATA}
    _, more = msgspec.json.schema_components(
        [payload for _, payload, _ in _RECORDS.values() if not isinstance(payload, dict)],
        ref_template=_SCHEMAS,
    )
    for name, schema in more.items():
        schema["description"] = plain_text(schema.get("description", ""))
        made[name] = schema
    made["DeadLetter"] = {
        "type": "object",
        "description": (
            "Kinds: `record` is no valid event; `poison` parked its conversation;"
            " `waiting` came after such an event. `closed`: an operator closed the letter."
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
