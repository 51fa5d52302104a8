"""The generated documents: they are the committed ones, they are valid, and they take what the code
takes.
"""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import httpx
import pytest
from jsonschema import Draft7Validator, Draft202012Validator

from projections.events.codec import DATA_TYPES, full_type
from projections.events.validation import make_record
from projections.names import Key
from streams.log.topics import SPECS
from streams.settings.settings import Settings
from threadfold.gateway import create_gateway
from threadfold.schemas.documents import documents, texts
from threadfold.schemas.forms import APPENDED
from threadfold.schemas.structs import DATA

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "docs" / "schemas"
KEY = Key("acme", "c")
SPAN = {"from": "3-0", "to": "3-4", "count": 5, "positions": [0, 1, 1, 1, 1], "digest": "ab" * 32}
FLATS: dict[str, dict[str, Any]] = {
    "conversation.opened": {
        "policy": {"min_messages": 4},
        "user": "u",
        "tools": [{"name": "t"}],
        "metadata": {"a": [1]},
    },
    "message": {
        "role": "assistant",
        "content": [
            {"type": "text", "text": "x"},
            {"type": "reasoning", "text": "y", "signature": "z"},
        ],
        "tool_calls": [{"id": "c1", "name": "t", "arguments": "{}"}],
        "usage": {"input_tokens": 3},
    },
    "tool.result": {"tool_call_id": "c1", "content": None, "is_error": True, "pinned": True},
    "suspension": {"suspension_id": "s", "kind": "approval", "expires_at": "2026-01-31T12:00:00Z"},
    "resolution": {"suspension_id": "s", "outcome": "approved", "content": "yes"},
    "rollback": {"to": "3-0"},
    "session.closed": {"reason": "explicit", "after": "3-1"},
    "turn.started": {"turn_id": "t", "lease": {"token": 1}},
    "turn.ended": {"turn_id": "t"},
    "compaction.requested": {},
    "loop.detected": {"tool": "t", "arguments_sha256": "ab" * 32, "count": 3},
    "summary": {
        "summary_id": "s",
        "text": "x",
        "tokens": 1,
        "span": SPAN,
        "previous": None,
        "reason": "budget",
        "summarizer": "extractive",
        "trust": "user",
        "tokens_before": 9,
        "tokens_after": 2,
        "policy": "p",
    },
}


def schema(name: str) -> Draft202012Validator:
    return Draft202012Validator(
        json.loads(texts()[f"{name}.json"]), format_checker=Draft202012Validator.FORMAT_CHECKER
    )


def test_the_committed_documents_are_what_the_code_generates() -> None:
    committed = {path.name: path.read_text(encoding="utf-8") for path in FOLDER.glob("*.json")}
    assert sorted(committed) == sorted(texts())
    changed = [name for name, text in texts().items() if committed[name] != text]
    assert changed == [], "run `threadfold schemas --dir docs/schemas` and commit the result"


def test_every_type_of_the_log_and_the_other_topics_has_a_schema() -> None:
    names = {name.removesuffix(".json") for name in documents()}
    assert set(DATA_TYPES) | {"summary.voided", "memory.voided", "model.called"} == set(DATA)
    assert names == {"asyncapi", *DATA, *(f"{kind}.flat" for kind in APPENDED)}
    for name in names - {"asyncapi"}:
        Draft202012Validator.check_schema(documents()[f"{name}.json"])


@pytest.mark.parametrize("kind", sorted(APPENDED))
def test_what_intake_takes_and_writes_is_valid(kind: str) -> None:
    flat = {"type": kind, **FLATS[kind]}
    schema(f"{kind}.flat").validate(flat)
    record = make_record(KEY, flat, where="event 1", now="2026-01-31T12:00:00Z", new_id="e1")
    schema(kind).validate(json.loads(record.value))


@pytest.mark.parametrize("kind", sorted(APPENDED))
def test_an_unknown_field_and_a_missing_one_are_invalid(kind: str) -> None:
    flat = {"type": kind, **FLATS[kind]}
    assert not schema(f"{kind}.flat").is_valid({**flat, "nonsense": 1})
    required = json.loads(texts()[f"{kind}.flat.json"])["required"]
    for field in required:
        assert not schema(f"{kind}.flat").is_valid(
            {name: value for name, value in flat.items() if name != field}
        )


def asyncapi_errors(document: dict[str, Any]) -> list[str]:
    """What AsyncAPI's own JSON Schema of 3.0.0 says (github.com/asyncapi/spec-json-schemas,
    Apache-2.0; npm @asyncapi/specs 6.11.1).
    """
    path = ROOT / "tests" / "support" / "asyncapi-3.0.0.json.gz"
    return [
        error.json_path
        for error in Draft7Validator(json.loads(gzip.decompress(path.read_bytes()))).iter_errors(
            document
        )
    ]


def test_the_asyncapi_document_is_valid_and_the_check_can_fail() -> None:
    document = documents()["asyncapi.json"]
    assert asyncapi_errors(document) == []
    assert asyncapi_errors({**document, "channels": {"events": {"adress": "x"}}}) != []
    assert (
        asyncapi_errors(
            {
                **document,
                "operations": {
                    "x": {"action": "publish", "channel": {"$ref": "#/channels/events"}}
                },
            }
        )
        != []
    )


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    document = documents()["asyncapi.json"]

    def walk(item: Any) -> None:
        if isinstance(item, dict):
            target = item.get("$ref")
            if isinstance(target, str):
                place: Any = document
                for part in target.removeprefix("#/").split("/"):
                    place = place[part]
            for value in item.values():
                walk(value)
        elif isinstance(item, list):
            for value in item:
                walk(value)

    walk(document)


def test_every_topic_is_a_channel_with_its_retention() -> None:
    channels = documents()["asyncapi.json"]["channels"]
    assert set(channels) == {spec.name for spec in SPECS}
    for spec in SPECS:
        kept = channels[spec.name]["bindings"]["kafka"]["topicConfiguration"]
        assert channels[spec.name]["address"] == f"threadfold.{spec.name}"
        assert kept["cleanup.policy"] == spec.config["cleanup.policy"].split(",")
        if "retention.ms" in spec.config:
            assert kept["retention.ms"] == int(spec.config["retention.ms"])
    assert set(channels["summaries"]["messages"]) == {
        "summary",
        "summary.voided",
        "conversation.erased",
    }


async def test_the_gateway_serves_them_without_a_key() -> None:
    app = create_gateway(Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0"))
    async with httpx.AsyncClient(
        transport=httpx.ASGITransport(app), base_url="http://gateway"
    ) as http:
        assert (await http.get("/asyncapi.json")).json() == documents()["asyncapi.json"]
        for kind in DATA:
            answer = await http.get(f"/schemas/{kind}.json")
            assert answer.status_code == 200
            assert full_type(kind) == answer.json()["title"]
        assert (await http.get("/schemas/message.flat.json")).json()[
            "additionalProperties"
        ] is False
        missing = await http.get("/schemas/nothing.json")
        assert missing.status_code == 404
        assert missing.headers["content-type"] == "application/problem+json"
