"""The OpenAPI document: every route is in it, and every example is valid against its schema."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from projections.events import types as events
from projections.fold.apply import apply
from projections.render.fit_to_limit import DoesNotFit
from projections.window.window import Window
from streams.settings.quotas import SCOPES
from streams.settings.settings import Settings
from tests.support.histories import KEY, PARTITION, RULES, make_event, random_log
from threadfold.gateway import create_gateway
from threadfold.gateway.app import Gateway
from threadfold.gateway.declaration import EVENT_STREAM, JSON, PROBLEM
from threadfold.gateway.routes import TABLE
from threadfold.schemas.forms import WINDOW_TYPES
from threadfold.service.documents import FORMATS
from threadfold.service.documents import document as context_of

HIDDEN = {"/", "/console", "/console/{asset}", "/docs", "/docs/{asset}", "/openapi.json"}
PROBED = {"/healthz", "/readyz"}


@pytest.fixture(scope="module")
def app() -> Gateway:
    return create_gateway(Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0"))


@pytest.fixture(scope="module")
def document(app: Gateway) -> dict[str, Any]:
    return app.openapi()


def operations(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, item in document["paths"].items():
        for method, operation in item.items():
            yield f"{method.upper()} {path}", operation


def validator(document: dict[str, Any], schema: dict[str, Any]) -> Draft202012Validator:
    return Draft202012Validator(
        {**schema, "components": document["components"]},
        format_checker=Draft202012Validator.FORMAT_CHECKER,
    )


def test_the_document_has_every_route_of_the_table_but_the_page_itself(
    document: dict[str, Any],
) -> None:
    shown = {name for name, _ in operations(document)}
    assert shown == {f"{route.method} {route.template}" for route in TABLE if not route.hidden}
    assert len(shown) >= 12
    hidden = {(route.method, route.path) for route in TABLE if route.hidden}
    assert hidden == {("GET", path) for path in HIDDEN} | {("HEAD", path) for path in PROBED}


def test_every_route_has_examples_and_says_what_it_does(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        assert operation["summary"], name
        assert any(int(status) < 300 for status in operation["responses"]), name
        assert all(response["description"] for response in operation["responses"].values()), name
        for content in operation.get("requestBody", {}).get("content", {}).values():
            assert content["examples"], name
        named = {p["name"] for p in operation.get("parameters", ()) if "example" in p}
        assert set(re.findall(r"{(\w+)}", name)) <= named, (
            f"{name}: an example for each part of the path"
        )


def test_every_example_is_valid_against_its_schema(document: dict[str, Any]) -> None:
    checked = 0
    for name, operation in operations(document):
        for status, response in operation["responses"].items():
            for media, content in response["content"].items():
                problems = [
                    error.message
                    for error in validator(document, content["schema"]).iter_errors(
                        content["example"]
                    )
                ]
                assert problems == [], f"{name} {status} {media}"
                checked += 1
        for content in operation.get("requestBody", {}).get("content", {}).values():
            for title, example in content["examples"].items():
                problems = [
                    error.message
                    for error in validator(document, content["schema"]).iter_errors(
                        example["value"]
                    )
                ]
                assert problems == [], f"{name} body {title!r}"
                checked += 1
        for parameter in operation.get("parameters", ()):
            if "example" in parameter:
                validator(document, parameter["schema"]).validate(parameter["example"])
    assert checked > 100


def test_every_route_with_a_key_tells_its_scope_and_its_problems(document: dict[str, Any]) -> None:
    for name, operation in operations(document):
        media = {
            kind for response in operation["responses"].values() for kind in response["content"]
        }
        assert media <= {JSON, PROBLEM, EVENT_STREAM, "text/plain", "application/schema+json"}, name
        assert operation["description"], name
        if " /v1/" not in name:
            assert "security" not in operation, name
            continue
        scope, any_key = operation["x-scope"], name.endswith((" /v1/me", " /v1/tokens"))
        assert scope in SCOPES or (any_key and scope is None), name
        assert {"401", "403", "422", "429", "503"} <= operation["responses"].keys(), name
        for status in ("429", "503"):
            assert "Retry-After" in operation["responses"][status]["headers"], name


def test_all_references_lead_somewhere_and_all_components_are_schemas(
    document: dict[str, Any],
) -> None:
    known = document["components"]["schemas"]
    for name, schema in known.items():
        Draft202012Validator.check_schema(schema)
        assert schema, name
    refs = set(re.findall(r"'\$ref': '#/components/schemas/([^']+)'", str(document)))
    assert refs <= known.keys()


def test_the_schemas_refuse_what_the_gateway_refuses(document: dict[str, Any]) -> None:
    check = validator(document, document["components"]["schemas"]["OneOrMoreEvents"])
    message = {"type": "message", "role": "user", "content": "x"}
    assert check.is_valid(message) and check.is_valid([message] * 500)
    for wrong in (
        {"type": "message"},
        {**message, "rolle": 1},
        {**message, "id": ""},
        [],
        [message] * 501,
        {**message, "role": "tool"},
    ):
        assert not check.is_valid(wrong), wrong


def body_of(
    document: dict[str, Any], path: str
) -> tuple[Draft202012Validator, list[dict[str, Any]]]:
    """What checks the body that is posted to a path, and its examples."""
    content = document["paths"][path]["post"]["requestBody"]["content"][JSON]
    examples = [example["value"] for example in content["examples"].values()]
    return validator(document, content["schema"]), examples


def test_a_comparison_is_of_a_policy_or_of_a_generation(document: dict[str, Any]) -> None:
    check, _ = body_of(document, "/v1/generations/compare")
    for right in ({}, {"policy": {}}, {"generation": 1}, {"policy": None, "generation": 1}):
        assert check.is_valid(right), right
    assert not check.is_valid({"policy": {}, "generation": 1})


def test_the_ids_of_recalled_memories_have_their_limits_in_the_document(
    document: dict[str, Any],
) -> None:
    check, (example,) = body_of(document, "/v1/conversations/{conversation}/renders")
    for right in ([], ["a"], ["a" * 256] * 256):
        assert check.is_valid({**example, "recalled": right})
    for wrong in ([""], ["a" * 257], ["a"] * 257):
        assert not check.is_valid({**example, "recalled": wrong}), wrong


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_context_of_each_format_is_what_the_document_says(
    document: dict[str, Any], fmt: str
) -> None:
    context = validator(document, {"$ref": "#/components/schemas/Context"})
    event = validator(document, {"$ref": "#/components/schemas/WindowEvent"})
    backlog = Window(KEY, PARTITION, RULES)
    for i in range(800):
        apply(backlog, i, make_event(events.Message("user", "word " * 40), f"m{i}", 40))
    seen: dict[str, dict[str, Any]] = {}
    for window in (backlog, *(random_log(seed, 120).window for seed in range(12))):
        try:
            found = json.loads(context_of(window, fmt))
        except DoesNotFit:
            continue
        assert [error.message for error in context.iter_errors(found)] == []
        for message in found["messages"] if fmt in ("events", "rendered") else ():
            assert event.is_valid(message), message
            seen[message["type"]] = message
    if fmt != "events":
        return
    assert set(seen) == {*WINDOW_TYPES, "summary", "held"}
    for name in ("text", "summary_id", "position"):
        without = {field: value for field, value in seen["summary"].items() if field != name}
        assert not event.is_valid(without), name


@pytest.mark.parametrize(
    "path", ["/docs", "/docs/swagger-ui-bundle.js", "/console", "/console/console.js"]
)
async def test_who_reads_a_file_of_a_page_holds_no_open_file(
    app: Gateway, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*args: object, **options: object) -> None:
        raise AssertionError("a second descriptor for each client that does not read")

    monkeypatch.setattr("anyio.open_file", refused)
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        answer = await http.get(path)
    assert answer.status_code == 200
    assert int(answer.headers["content-length"]) == len(answer.content) > 100


async def test_the_page_takes_everything_from_the_gateway_itself(app: Gateway) -> None:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as http:
        page = await http.get("/docs")
        assert page.status_code == 200
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert "frame-ancestors 'none'" in page.headers["content-security-policy"]
        assert page.headers["x-content-type-options"] == "nosniff"
        named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
        assert len(named) == 4
        assert not re.search(r"https?:|//", page.text)
        for address in named:
            asset = await http.get(f"/{address}")
            assert asset.status_code == 200, address
            assert len(asset.content) > 50, address
        start = (await http.get("/docs/start.js")).text
        assert not re.search(r"https?:|//", start)
        # What shows an OpenAPI 3.1 document is Swagger UI 5 or later.
        bundle = (await http.get("/docs/swagger-ui-bundle.js")).text
        version = re.search(r'PACKAGE_VERSION:"(\d+)\.', bundle)
        assert version is not None and int(version[1]) >= 5
        css = (await http.get("/docs/swagger-ui.css")).text
        assert not re.search(r"url\(['\"]?(https?:)?//", css)
        assert (await http.get("/docs/nothing.js")).status_code == 404
        assert (await http.get("/openapi.json")).json()["openapi"].startswith("3.1")
