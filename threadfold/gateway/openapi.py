"""The OpenAPI document, made from the route table: parameters from the handlers' signatures,
schemas from the types of bodies and answers.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from http import HTTPStatus

import msgspec

from threadfold.gateway.answers import (
    AnthropicMessage,
    OpenAIMessage,
    Problem,
    WindowHeld,
    WindowSummary,
)
from threadfold.gateway.declaration import JSON, PROBLEM, Answer, Cost, Route, Schema
from threadfold.gateway.parameters import Parameter
from threadfold.gateway.request import Body
from threadfold.schemas.forms import (
    APPENDED,
    LOG_TYPES,
    WINDOW_TYPES,
    flat,
    logged,
    of_window,
    other,
)
from threadfold.schemas.messages import new_messages
from threadfold.schemas.structs import DATA, POSITION, components, fields_of, plain_text
from threadfold.service.append_body import MAX_ITEMS

_REF = "#/components/schemas/{name}"
_NAMED = (OpenAIMessage, AnthropicMessage, WindowSummary, WindowHeld)
"""What components name and no route does."""
_SECURITY = "HTTPBearer"
_ABOUT = """The window of a conversation, its log, and its events, over HTTP.

The key determines the tenant. Errors are RFC 9457 problem documents. After a 503 on an append it is
unknown whether the events are in the log: repeat the request with the same ids (or the same
`Idempotency-Key`), and they land once. A position is opaque: use it as `after` or `to`.

Each answer has a header `X-Request-Id`, under which the gateway's log has the request: the caller's
own, if it sent one of 1 to 128 of `A-Z a-z 0-9 . _ : / + = @ -`, or the trace id of its
`traceparent`.

Any route answers, with a problem document, what no operation lists: 400 to what is not valid HTTP,
405 to another method, 408 to a head or body that comes too slowly, 414 to a long address, 431 to
long or many headers, and 501 to an unknown transfer coding.
"""
_TAGS = {
    "Appending": "Append events and messages to the log.",
    "Reading": "Read the messages to send to a model, and the events of the log.",
    "Turns": "One run at a time on a conversation.",
    "Streams": "Server-sent events.",
    "Model calls": "Record which messages a model was sent, and render them again.",
    "Erasure": "Delete for good.",
    "End users": "Tokens for end users, and the keys of those that tenants sign themselves.",
    "Tenants": "Administration of tenants, keys, policies and quotas.",
    "Service": "Health and documents. No key is needed.",
}
_PROBLEMS: dict[int, tuple[str, str, str]] = {
    400: (
        "malformed-input",
        "The body is not JSON; the detail names the line and column.",
        "the body is not JSON: expecting ',' delimiter (line 1, column 17)",
    ),
    401: (
        "unauthorized",
        "There is no key or token, or it is unknown, revoked or expired.",
        "no key was given: send the header `Authorization: Bearer KEY`",
    ),
    403: (
        "forbidden",
        "The key lacks the scope.",
        "the key lacks the scope 'append' (it has read)",
    ),
    404: ("unknown-conversation", "It does not exist.", "conversation support-42 is not known"),
    409: (
        "conflict",
        "Another event or turn came first. Nothing was changed.",
        "conversation support-42: other events came after 3-17: nothing was changed; read the"
        " context again",
    ),
    410: (
        "erased",
        "The conversation was erased. This is final.",
        "conversation support-42 was erased",
    ),
    413: (
        "event-too-large",
        "The body or an event is over the limit.",
        "event 1: 9437184 bytes are over the limit of 8388608 bytes for one event",
    ),
    415: (
        "unsupported-media",
        "The body has a content coding. Or, with `auth` off, it is not declared as JSON.",
        "with auth off a body needs the header Content-Type: application/json",
    ),
    422: (
        "invalid-event",
        "The request is invalid; the detail names the event and the field.",
        "event 2: field role: missing",
    ),
    429: (
        "quota-exceeded",
        "A quota of the tenant is used up.",
        "tenant demo has used up its quota requests_per_second (200): try again in 1 s",
    ),
    500: (
        "spill-lost",
        "A piece of a spilled result is missing from the log.",
        "piece 2 of 4 of result 3-17 is not at 3-14 in the log",
    ),
    503: (
        "kafka-unavailable",
        "Kafka or Redis is away, a partition is healing, or the gateway is overloaded. The result"
        " of an append is unknown: repeat it with the same ids.",
        "append: Kafka did not answer within 10 s; the append may have happened: repeat it with"
        " the same ids",
    ),
}
"""For each status of a problem document: the end of its type, its meaning, and an example's detail.
"""


def openapi_document(routes: Iterable[Route]) -> Schema:
    """The document of all routes that are not hidden."""
    shown = [route for route in routes if not route.hidden]
    schemas, parts = _schemas(shown)
    paths: dict[str, Schema] = {}
    for route in shown:
        paths.setdefault(route.template, {})[route.method.lower()] = _operation(route, schemas)
    security = {
        "type": "http",
        "scheme": "bearer",
        "description": (
            "A key that `threadfold tenants add` printed, a token of an end user, or a token of an"
            " issuer that the deployment trusts."
        ),
    }
    used = {route.tag for route in shown}
    return {
        "openapi": "3.1.0",
        "info": {"title": "threadfold", "description": _ABOUT, "version": "1"},
        "paths": paths,
        "components": {"schemas": parts, "securitySchemes": {_SECURITY: security}},
        "tags": [
            {"name": name, "description": about} for name, about in _TAGS.items() if name in used
        ],
    }


def _operation(route: Route, schemas: dict[int, Schema]) -> Schema:
    name = re.sub(r"\W", "_", f"{route.handler.__name__}{route.template}")
    operation: Schema = {
        "tags": [route.tag],
        "summary": route.summary,
        "description": route.description,
        "operationId": f"{name}_{route.method.lower()}",
    }
    if route.cost is not Cost.FREE:
        users = " Also for end users." if route.end_users else ""
        operation["description"] += f"\n\nScope: `{route.scope or 'any'}`.{users}"
        operation |= {"x-scope": route.scope, "security": [{_SECURITY: []}]}
        if route.end_users:
            operation["x-end-users"] = True
    if route.parameters.shown:
        operation["parameters"] = [_parameter(one) for one in route.parameters.shown]
    if route.body is not None:
        examples = {name: {"value": value} for name, value in route.body.examples.items()}
        content = {JSON: {"schema": schemas[id(route.body)], "examples": examples}}
        operation["requestBody"] = {"required": route.body.required, "content": content}
    responses: dict[int, Schema] = {status: _problem(status) for status in route.all_problems}
    for status, answer in route.answers.items():
        content = {answer.media: {"schema": schemas[id(answer)], "example": answer.example}}
        responses[status] = {"description": answer.about, "content": content}
    operation["responses"] = {str(status): responses[status] for status in sorted(responses)}
    return operation


def _parameter(parameter: Parameter) -> Schema:
    schema = msgspec.json.schema(parameter.type)
    if parameter.default is not None:
        schema["default"] = parameter.default
    shown: Schema = {
        "name": parameter.name,
        "in": parameter.place,
        "required": parameter.required,
        "schema": schema,
    }
    if parameter.description:
        shown["description"] = parameter.description
    if parameter.example is not None:
        shown["example"] = parameter.example
    return shown


def _problem(status: int) -> Schema:
    """The response object of a problem's status."""
    kind, about, detail = _PROBLEMS[status]
    example = {
        "type": f"urn:threadfold:problem:{kind}",
        "title": kind.replace("-", " ").capitalize(),
        "status": status,
        "detail": detail,
    }
    response: Schema = {
        "description": about,
        "content": {PROBLEM: {"schema": _ref("Problem"), "example": example}},
    }
    if status in (HTTPStatus.TOO_MANY_REQUESTS, HTTPStatus.SERVICE_UNAVAILABLE):
        seconds = {"type": "integer", "minimum": 0}
        retry = {"description": "seconds", "schema": seconds, "required": True}
        response["headers"] = {"Retry-After": retry}
    if status == HTTPStatus.UNAUTHORIZED:
        response["headers"] = {"WWW-Authenticate": {"schema": {"type": "string"}, "required": True}}
    return response


# -- schemas


def _ref(name: str) -> Schema:
    return {"$ref": _REF.format(name=name)}


def _schemas(routes: list[Route]) -> tuple[dict[int, Schema], dict[str, Schema]]:
    """The schema of each body and answer, by its identity, and all components by name in order."""
    declared: list[Body | Answer] = [
        *(route.body for route in routes if route.body is not None),
        *(answer for route in routes for answer in route.answers.values()),
    ]
    typed = [one for one in declared if not isinstance(one.type, dict)]
    types = [one.type for one in typed]
    made, parts = msgspec.json.schema_components([*types, Problem, *_NAMED], ref_template=_REF)
    schemas = {id(one): one.type for one in declared if isinstance(one.type, dict)}
    schemas |= {id(one): schema for one, schema in zip(typed, made, strict=False)}
    for part in parts.values():
        if "description" in part:
            part["description"] = plain_text(part["description"])
    events = _events()
    for name in parts.keys() & events.keys():
        if parts[name] != events[name]:
            raise TypeError(f"two schemas are named {name}: give the route's type another name")
    return schemas, dict(sorted((parts | events).items()))


@lru_cache(maxsize=1)
def _events() -> dict[str, Schema]:
    """The components of events: as they are appended, and as they are read back."""
    made: dict[str, Schema] = dict(components(_REF, discriminators=True))
    names = {kind: "".join(part.capitalize() for part in kind.split(".")) for kind in DATA}
    parts = dict(made)
    made |= {f"New{names[kind]}": flat(kind, parts) for kind in APPENDED}
    made |= {f"Logged{names[kind]}": logged(kind, parts) for kind in LOG_TYPES}
    made["NewOther"] = other()
    made["NewEvent"] = {
        "description": (
            "An event to append: `type` and the fields of this type. The gateway adds `id` and"
            " `time` if they are missing."
        ),
        "oneOf": [_ref(f"New{names[kind]}") for kind in APPENDED] + [_ref("NewOther")],
    }
    made["LoggedEvent"] = _logged_event(names)
    called, required = fields_of("model.called", parts)
    del called["generation"]
    made["NewModelCall"] = {
        "type": "object",
        "properties": called,
        "required": required,
        "additionalProperties": False,
    }
    of_several = {"allOf": [_ref("NewEvent"), {"required": ["conversation"]}]}
    made |= new_messages(parts)
    made["OneOrMoreEvents"] = _one_or_list(_ref("NewEvent"))
    made["OneOrMoreEventsOfSeveral"] = _one_or_list(of_several)
    made["OneOrMoreMessages"] = _one_or_list(_ref("NewOpenAIMessage"), _ref("NewAnthropicMessage"))
    made |= {f"Window{names[kind]}": of_window(kind, parts) for kind in WINDOW_TYPES}
    made["WindowEvent"] = {
        "description": (
            "What a window holds, as a flat object: an event, the active summary, or a run of"
            " events that only the log still holds."
        ),
        "oneOf": [
            *(_ref(f"Window{names[kind]}") for kind in WINDOW_TYPES),
            *(_ref(struct.__name__) for struct in (WindowSummary, WindowHeld)),
        ],
    }
    rendered = ("OpenAIMessage", "AnthropicMessage", "WindowEvent")
    made["RenderedMessage"] = {"anyOf": [_ref(name) for name in rendered]}
    return made


def _one_or_list(*items: Schema) -> Schema:
    """An item, or a list of items of the same kind."""
    lists = [
        {"type": "array", "items": item, "minItems": 1, "maxItems": MAX_ITEMS} for item in items
    ]
    return {"anyOf": [*items, *lists]}


def _logged_event(names: dict[str, str]) -> Schema:
    """An event as it is read back: the common fields, and for each known type its own."""
    text, count = {"type": "string"}, {"type": "integer", "minimum": 0}
    page = ("offset", "limit", "characters")
    return {
        "description": (
            "An event of the log as a flat object: `type` without prefix and version, and the"
            " fields of this type."
        ),
        "type": "object",
        "properties": {
            "id": text,
            "type": text,
            "time": {"anyOf": [text, {"type": "null"}]},
            "position": POSITION,
            "traceparent": text,
            "page": {
                "description": "the part of the text that is in `content`",
                "type": "object",
                "properties": dict.fromkeys(page, count),
                "required": list(page),
            },
        },
        "required": ["id", "type", "time", "position"],
        "allOf": [
            {"if": {"properties": {"type": {"const": kind}}}, "then": _ref(f"Logged{names[kind]}")}
            for kind in LOG_TYPES
        ],
    }
