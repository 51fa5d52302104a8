"""The examples of the OpenAPI document, sent to a real gateway: each is answered as the document
says.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import re
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from jsonschema import Draft202012Validator

from streams.settings.settings import Settings
from tests.support.gateway_process import Served, serving
from tests.support.raw_records import put_raw
from threadfold.embedded.stack import EmbeddedStack
from threadfold.gateway import create_gateway
from threadfold.gateway.declaration import EVENT_STREAM, JSON
from threadfold.gateway.examples import CONVERSATION

POSITION = "3-17"
"""What the examples say for a position; here it is replaced by one that the log has."""


def document() -> dict[str, Any]:
    return create_gateway(
        Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    ).openapi()


DOCUMENT = document()
LAST = ("DELETE", "/rollback", "/close")
NAMES = sorted(
    (
        f"{method.upper()} {path}"
        for path, item in DOCUMENT["paths"].items()
        for method, operation in item.items()
        if JSON
        in {kind for response in operation["responses"].values() for kind in response["content"]}
        or EVENT_STREAM in operation["responses"].get("200", {}).get("content", {})
        or path.startswith("/v1/")
    ),
    # What takes things away comes after what needs them.
    key=lambda name: any(name.startswith(last) or name.endswith(last) for last in LAST),
)


class World:
    """What the examples need to be there, and the values that stand for theirs."""

    def __init__(self, served: Served) -> None:
        self.http = httpx.Client(
            base_url=served.url, headers=served.headers, timeout=20, trust_env=False
        )
        self.values: dict[str, Any] = {}
        self.numbers = itertools.count(2)
        self.tenant = served.tenant
        self.settings = served.settings

    def prepare(self) -> None:
        said = [{"type": "message", "role": "user", "content": f"line {i}"} for i in range(60)]
        answer = self.http.post(f"/v1/conversations/{CONVERSATION}/events?wait=applied", json=said)
        answer.raise_for_status()
        position = answer.json()["position"]
        self.values |= {"position": position, "after": position, "at": position}
        history = self.http.get(f"/v1/conversations/{CONVERSATION}/history").json()
        self.values["before"] = history["next_before"]
        context = self.http.get(f"/v1/conversations/{CONVERSATION}/context").json()
        called = {
            "model": "m",
            "format": "openai",
            **{name: context[name] for name in ("render_digest", "position", "tokens")},
        }
        self.values["render_id"] = self.http.post(
            f"/v1/conversations/{CONVERSATION}/renders", json=called
        ).json()["id"]

        opened = {"type": "conversation.opened", "user": "u-7", "channel": "web"}
        self.http.post(
            "/v1/conversations/of-u-7/events?wait=applied", json=opened
        ).raise_for_status()
        nord = self.http.post("/v1/tenants", json={"name": "nord"}).raise_for_status().json()
        self.http.post(
            f"/v1/conversations/{CONVERSATION}/events?wait=applied",
            json=said[:2],
            headers={"Authorization": f"Bearer {nord['key']}"},
        ).raise_for_status()

    def ready(self, name: str) -> None:
        """Make what one request of an operation uses up: an active turn, a memory, a key to
        revoke, a dead letter.
        """
        self.values["position"] = self.values["at"]
        self.values.pop("conversation", None)
        if "/generations" in name:
            self.rest()
        if "{number}" in name:
            policy = {"working_budget": 9_000 + next(self.numbers)}
            self.values["number"] = str(self.build(policy))
            self.rest()
        elif "{turn_id}" in name:
            turn = {"turn_id": f"t-{next(self.numbers)}", "policy": "interrupt"}
            begun = self.http.post(f"/v1/conversations/{CONVERSATION}/turns", json=turn).json()
            self.values |= {"turn_id": turn["turn_id"], "Fencing-Token": begun["fencing_token"]}
        elif "{memory_id}" in name:
            kind, body = (
                ("skills", {"intent": "Return a parcel", "doc_markdown": "Ask first."})
                if "/skills/" in name
                else ("memories", {"text": "Drinks green tea."})
            )
            # Its user and channel are those of the examples.
            self.values["conversation"] = body["conversation"] = "of-u-7"
            saved = self.http.post(f"/v1/{kind}?wait=applied", json=body)
            self.values["memory_id"] = saved.json()["memories"][0]["id"]
        elif name.endswith("/drop"):
            # A record that is nobody's event: no conversation of this stack is parked.
            (sent,) = asyncio.run(put_raw(self.settings, "events", (0, b"nobody", b"{}")))
            self.values["position"] = f"0-{sent.offset}"
        elif "{key}" in name:
            self.values["key"] = self.http.post("/v1/tenants/nord/keys", json={}).json()["id"]

    def build(self, policy: dict[str, Any]) -> int:
        """Begin to build a generation, once one that is being dropped, and is not listed any more,
        is gone.
        """
        deadline = time.monotonic() + 120
        while True:
            answer = self.http.post("/v1/generations", json={"policy": policy})
            if answer.status_code != 409 or time.monotonic() > deadline:
                return int(answer.raise_for_status().json()["generation"])
            time.sleep(0.05)

    def rest(self) -> None:
        """Wait until the gateway works on no generation: it works on one at a time."""

        def tasks() -> list[dict[str, Any]]:
            listed = self.http.get("/v1/generations").json()["generations"]
            return [one["task"] for one in listed if one["task"] is not None]

        deadline = time.monotonic() + 120
        while any(task["ended"] is None for task in tasks()):
            assert time.monotonic() < deadline, tasks()
            time.sleep(0.05)
        assert [task for task in tasks() if task["error"]] == []

    def real(self, value: Any) -> Any:
        """A body with the log's own position where the example has one, and a tenant that is
        new.
        """
        if isinstance(value, dict) and value.get("name") == "nord":
            value = {**value, "name": f"nord-{next(self.numbers)}"}
        if isinstance(value, dict):
            return {name: self.real(item) for name, item in value.items()}
        if isinstance(value, list):
            return [self.real(item) for item in value]
        return self.values["position"] if value == POSITION else value


@pytest.fixture(scope="module")
def world(stack: EmbeddedStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with serving(stack, tmp_path_factory.mktemp("examples"), "demo") as served:
        made = World(served)
        made.prepare()
        with contextlib.closing(made.http):
            yield made


def check(name: str, operation: dict[str, Any], answer: httpx.Response) -> None:
    media = answer.headers["content-type"].partition(";")[0]
    content = operation["responses"][str(answer.status_code)]["content"]
    assert media in content, name
    schema = {**content[media]["schema"], "components": DOCUMENT["components"]}
    problems = [
        f"{error.json_path}: {error.message}"
        for error in Draft202012Validator(schema).iter_errors(
            answer.json() if media.endswith("json") else answer.text
        )
    ]
    assert problems == [], name


def requests_of(name: str, operation: dict[str, Any], world: World) -> Iterator[dict[str, Any]]:
    """The requests the examples make: each body with what must be given, then with all
    parameters.
    """
    content = operation.get("requestBody", {}).get("content", {})
    bodies = [one["value"] for of in content.values() for one in of["examples"].values()] or [None]
    examples = {p["name"]: p["example"] for p in operation.get("parameters", ()) if "example" in p}
    parameters = [
        p
        for p in operation.get("parameters", ())
        if p["in"] in ("query", "header") and p["name"] in examples
    ]
    required = [p for p in parameters if p.get("required")]
    for body in bodies:
        for chosen in (required, parameters):
            world.ready(name)
            # A memory's timeline counts records with the names that cursors have elsewhere.
            real = {n: v for n, v in world.values.items() if isinstance(v, type(examples.get(n)))}
            given = {**examples, **real}
            path = re.sub(r"{(\w+)}", lambda match: str(given[match[1]]), name.split(" ", 1)[1])  # noqa: B023 (used at once)
            request: dict[str, Any] = {
                "url": path,
                "params": {p["name"]: given[p["name"]] for p in chosen if p["in"] == "query"},
            }
            request["headers"] = {
                p["name"]: str(world.real(given[p["name"]])) for p in chosen if p["in"] == "header"
            }
            if body is not None:
                request["content"] = json.dumps(world.real(body))
            yield request


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_answered_as_the_document_says(name: str, world: World) -> None:
    method, path = name.split(" ", 1)
    operation = DOCUMENT["paths"][path][method.lower()]
    for request in requests_of(name, operation, world):
        if EVENT_STREAM in operation["responses"].get("200", {}).get("content", {}):
            with world.http.stream(method, **request) as answer:
                assert answer.status_code == 200, (answer.read(), request)
                assert answer.headers["content-type"].startswith(EVENT_STREAM)
                assert next(answer.iter_lines()).startswith("retry:"), name
            continue
        answer = world.http.request(method, **request)
        assert answer.is_success, (name, request, answer.text)
        if answer.status_code != 204:
            check(name, operation, answer)


def body_of(name: str) -> dict[str, Any]:
    """The first example of what an operation takes."""
    method, path = name.split(" ", 1)
    content = DOCUMENT["paths"][path][method.lower()]["requestBody"]["content"]
    value: dict[str, Any] = next(iter(content[JSON]["examples"].values()))["value"]
    return value


def test_what_the_example_saves_the_example_of_a_search_finds_by_its_words(world: World) -> None:
    saved, searched = body_of("POST /v1/memories"), body_of("POST /v1/memories/search")
    assert saved["user"] == searched["user"]
    # Another person than the examples', whom an example erases.
    person = {"user": "u-not-erased"}
    world.http.post("/v1/memories?wait=applied", json=saved | person).raise_for_status()
    answer = world.http.post("/v1/memories/search", json=searched | person)
    assert "vectors" in answer.json()["away"]
    assert saved["text"] in [one["text"] for one in answer.json()["results"]]


def test_the_examples_cover_every_route_with_a_key() -> None:
    told = {name for name in NAMES if " /v1/" in name}
    routes = {
        f"{method.upper()} {path}"
        for path, item in DOCUMENT["paths"].items()
        for method in item
        if path.startswith("/v1/")
    }
    assert told == routes
    assert len(told) >= 10
