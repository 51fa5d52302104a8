"""The OpenAPI document: what the framework knows of the routes' parameters, completed from the
table of operations.
"""

from __future__ import annotations

from typing import Any

from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from threadfold.gateway.openapi.components import all_components
from threadfold.gateway.openapi.operation import Operation, Schema, problem_response
from threadfold.gateway.openapi.table import TABLE
from threadfold.schemas.structs import NAME

_ABOUT = """The window of a conversation, its log, and what is said in it, over HTTP.

The tenant is the key's, never the caller's word. Errors are RFC 9457 problem documents. An append
that was answered 503 is *unknown*: repeat it with the same ids (or the same `Idempotency-Key`),
and it lands once. A position is opaque, and good for `after` and `to`.
"""
_TAGS = {
    "Appending": "What was said, into the log.",
    "Reading": "What a model is sent, and what the log holds.",
    "Turns": "One run at a time on a conversation.",
    "Streams": "What happens, as it happens.",
    "Model calls": "What models were sent, and whether it can be shown again.",
    "Erasure": "What is taken out for good.",
    "Tenants": "Administration.",
    "Service": "Health and documents; no key is needed.",
}
_SECURITY = "HTTPBearer"
_NAMES = ("conversation", "tenant")


def install(app: FastAPI) -> None:
    """Make ``app.openapi()`` give the completed document; it is made once, when it is first asked
    for.
    """

    def openapi() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = openapi_document(app)
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign]


def openapi_document(app: FastAPI) -> Schema:
    """The document of the application's own routes."""
    document = get_openapi(
        title="threadfold", version=app.version, description=_ABOUT, routes=app.routes
    )
    used_tags = set()
    for path, item in document["paths"].items():
        for method, operation in item.items():
            known = TABLE.get((method.upper(), path))
            if known is not None:
                _complete(operation, known)
                used_tags.add(known.tag)
    document["tags"] = [
        {"name": name, "description": about} for name, about in _TAGS.items() if name in used_tags
    ]
    security = document.get("components", {}).get("securitySchemes", {})
    security[_SECURITY] = {
        "type": "http",
        "scheme": "bearer",
        "description": (
            "A key, as `threadfold tenants add` printed it, or a token of an issuer that the"
            " deployment trusts."
        ),
    }
    document["components"] = {"schemas": all_components(), "securitySchemes": security}
    return document


def _complete(operation: Schema, known: Operation) -> None:
    operation["tags"] = [known.tag]
    operation["summary"] = known.summary
    about = known.about or operation.get("description", known.summary)
    operation["description"] = (
        about if known.scope is None else f"{about}\n\nScope: `{known.scope}`."
    )
    operation.pop("security", None)
    operation.pop("requestBody", None)
    if known.scope is not None:
        operation["security"] = [{_SECURITY: []}]
        operation["x-scope"] = known.scope
    if known.body is not None:
        examples = {name: {"value": value} for name, value in known.body.examples.items()}
        content = {"application/json": {"schema": known.body.schema, "examples": examples}}
        operation["requestBody"] = {"required": known.body.required, "content": content}
    for parameter in operation.get("parameters", ()):
        if parameter["name"] in known.parameters:
            parameter["example"] = known.parameters[parameter["name"]]
        parameter["schema"].pop("title", None)
        if parameter["in"] == "path" and parameter["name"] in _NAMES:
            parameter["schema"] = NAME
    responses: dict[str, Schema] = {}
    for status, answer in known.answers.items():
        content = {answer.media: {"schema": answer.schema, "example": answer.example}}
        responses[str(status)] = {"description": answer.about, "content": content}
    responses |= {str(status): problem_response(status) for status in known.all_problems}
    operation["responses"] = dict(sorted(responses.items()))
