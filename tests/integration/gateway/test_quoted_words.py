"""A refusal is one clear line: it quotes what a caller sent, and shows no more than its start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import httpx
import pytest

from tests.support.gateway import PROBLEM, Client, say
from tests.support.gateway_process import SCOPES
from threadfold.gateway.app import Gateway

LONG = "y" * 400
WORDS = {
    "line breaks": "\n\rX",
    "long": LONG,
    "long with line breaks": "\n\rX" + LONG,
    "long with control codes": "\x1b[2J\x85\u202e" + LONG,
}
SHOWN = 100
"""Characters of a caller's text in a row that a refusal may show at most."""
LONGEST = 1000
"""Characters of a refusal: some list all that is allowed."""
JSON = "application/json"
PARTS = {"path": "url", "query": "params", "header": "headers"}
OPERATIONS = [
    (method.upper(), path, operation)
    for path, item in Gateway.openapi()["paths"].items()
    for method, operation in item.items()
]


def spoilt(value: Any, word: str) -> Iterator[Any]:
    """Copies of a body: each has the word in the place of one value, or as one more field."""
    if isinstance(value, dict):
        yield {**value, word: 1}
        for name, item in value.items():
            yield from ({**value, name: other} for other in spoilt(item, word))
    elif isinstance(value, list):
        for i, item in enumerate(value):
            yield from ([*value[:i], other, *value[i + 1 :]] for other in spoilt(item, word))
    yield word


def requests_of(path: str, operation: dict[str, Any], word: str) -> Iterator[dict[str, Any]]:
    """Requests as the examples have them, but for one place of each, which has the word."""
    parameters = operation.get("parameters", [])
    content = operation.get("requestBody", {}).get("content", {}).get(JSON, {})
    bodies = [example["value"] for example in content.get("examples", {}).values()]
    whole: dict[str, Any] = {part: {} for part in PARTS.values()}
    for parameter in parameters:
        if parameter.get("required"):
            whole[PARTS[parameter["in"]]][parameter["name"]] = str(parameter["example"])
    changes: list[dict[str, Any]] = [{"params": {**whole["params"], word: "1"}}]
    for parameter in parameters:
        part = PARTS[parameter["in"]]
        text = word.encode(errors="replace") if part == "headers" else word
        changes.append({part: {**whole[part], parameter["name"]: text}})
    changes += [{"json": other} for body in bodies for other in spoilt(body, word)]
    for change in changes:
        request = {**whole, "json": next(iter(bodies), None), **change}
        names = {name: quote(text, safe="") for name, text in request["url"].items()}
        yield {**request, "url": path.format(**names)}


async def answer_to(call: Client, method: str, request: dict[str, Any]) -> httpx.Response | None:
    """The answer; None if it is a stream, which does not end."""
    try:
        async with asyncio.timeout(5):
            return await call.http.request(method, **request)
    except TimeoutError:
        return None


@pytest.mark.parametrize("word", WORDS.values(), ids=WORDS)
async def test_every_refusal_quotes_what_the_caller_sent_and_cuts_it(
    call: Client, word: str
) -> None:
    call.keys["all"] = await call.backend.control.add_key("acme", SCOPES)
    path = "/v1/conversations/support-42/events?wait=applied"
    (await call("POST", path, say("hello"))).raise_for_status()
    refused, unclear = 0, set()
    for method, path, operation in OPERATIONS:
        for request in requests_of(path, operation, word):
            request["headers"]["Authorization"] = f"Bearer {call.keys['all']}"
            answer = await answer_to(call, method, request)
            if answer is None or answer.headers["content-type"] != PROBLEM:
                continue
            assert answer.status_code < 500, (method, path, answer.text)
            refused += 1
            detail = answer.json()["detail"]
            if not detail.isprintable() or "y" * SHOWN in detail or len(detail) > LONGEST:
                unclear.add(f"{method} {path}: {detail[:200]!r}, {len(detail)} characters")
    assert refused > 4 * len(OPERATIONS)
    assert not unclear, "\n".join(sorted(unclear))
