"""Schemathesis over the whole API: a real gateway and worker, every operation, good and bad input.

What the document calls valid is accepted, and what it calls invalid is refused. No answer may be a
server error, of another status, content type or form than the document says, or an error that is no
problem document. 503 is one the document knows, for a stack that is away or
heals; this one is neither, so here it is a failure like any other.

``THREADFOLD_SCHEMATHESIS=full`` draws many examples of each operation, a number as many; otherwise it
is a minute's worth, always the same.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import hypothesis
import pytest
import requests
import schemathesis
from hypothesis import HealthCheck
from jsonschema import Draft202012Validator
from schemathesis import Case
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    negative_data_rejection,
    positive_data_acceptance,
    response_headers_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from urllib3.util import Retry

from projections.names import POSITION_PATTERN
from streams.settings.settings import Settings
from tests.support.gateway_process import Served, serving
from threadfold.embedded.stack import EmbeddedStack
from threadfold.gateway import create_gateway
from threadfold.gateway.declaration import EVENT_STREAM, PROBLEM
from threadfold.gateway.heads import MAX_ESCAPES
from threadfold.gateway.routes import TABLE

EXAMPLES_RENDER = "AAAAAwAAAAAAAAARkDcrvJ9jZJbB"
ASKED = os.environ.get("THREADFOLD_SCHEMATHESIS", "")
FULL = ASKED == "full" or ASKED.isdecimal()
EXAMPLES = int(ASKED) if ASKED.isdecimal() else 300 if FULL else 12
POSITION = re.compile(POSITION_PATTERN)
LONGEST_URL = 60_000
"""Characters; the HTTP parser refuses an address of 64 KiB before the application sees it, with 400
and no problem document.
"""
LEAST_LIMIT = min(route.body.limit for route in TABLE if route.body is not None)
"""Bytes of a body that each route takes."""
BEYOND_FORM = re.compile(
    "|".join(
        (
            "this route appends to .* only",  # the body depends on the path
            "is not one of conversation",  # positions and cursors are known to whom they were given
            "cursor .* (is not one of|is none)|the cursor",
            "this time is in the past|it is before t_valid_from",
            r"key \d+ .*cannot check a signature|an id that no other key",  # is it a key at all?
            "the window cannot be rendered",
            "is not in the log|the log ends before|(parks|belongs to) no conversation|only waits, until",
            "after removing private text, nothing is left to save|nothing of it is left that may be",
            "conversation .* has (no|another) (user|channel)",  # whose it is
            "expected a 0 or 1 for each of the",  # positions, which are a field beside it
            "printable characters",
            "an integer is over 64 bits|nested (more than|too deeply)",  # in free-form values
            r"expected a whole number( or null)?, got a decimal number",  # 1.0 is an integer to JSON Schema
            "policy key .* (must be less than|leaves no room|a quarter of model_window)",
            "policy key (summarizer|reducers): .* (this deployment's)",
        )
    ),
    re.IGNORECASE,
)
"""What a schema cannot say: rules between a request's parts, and what depends on what is stored."""
CHECKS = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_headers_conformance,
    response_schema_conformance,
    positive_data_acceptance,
    negative_data_rejection,
]
pytestmark = [pytest.mark.long, pytest.mark.timeout(3600 if FULL else 240)]
"""Seconds for one operation."""

DOCUMENT = create_gateway(
    Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
).openapi()
STREAMS = {
    (method.upper(), path)
    for path, item in DOCUMENT["paths"].items()
    for method, operation in item.items()
    if EVENT_STREAM in operation["responses"].get("200", {}).get("content", {})
}
OPENAI_MESSAGES = Draft202012Validator(
    {
        "anyOf": [
            {"$ref": "#/components/schemas/NewOpenAIMessage"},
            {"type": "array", "items": {"$ref": "#/components/schemas/NewOpenAIMessage"}},
        ],
        "components": DOCUMENT["components"],
    }
)
schema = schemathesis.openapi.from_dict(DOCUMENT)
schema.config.generation.update(with_security_parameters=False)
drawn = hypothesis.settings(
    max_examples=EXAMPLES,
    deadline=None,
    derandomize=not FULL,
    database=None,
    suppress_health_check=list(HealthCheck),
    phases=[hypothesis.Phase.explicit, hypothesis.Phase.generate, hypothesis.Phase.shrink],
)


class Api:
    """The gateway, a connection to it, and a position that its log has."""

    def __init__(self, served: Served) -> None:
        self.served = served
        self.session = requests.Session()
        self.session.trust_env = False
        # The server ends connections that were idle for a while, which a request may meet.
        again = requests.adapters.HTTPAdapter(
            max_retries=Retry(total=1, allowed_methods=None, status=0)
        )
        self.session.mount("http://", again)
        self.conversation = "fuzzed"
        said = [{"type": "message", "role": "user", "content": f"line {i}"} for i in range(5)]
        url = f"{served.url}/v1/conversations/{self.conversation}/events?wait=applied"
        self.position = self.session.post(
            url, json=said, headers=served.headers, timeout=20
        ).json()["position"]
        called = {
            "model": "m",
            "render_digest": "ab" * 32,
            "position": self.position,
            "format": "openai",
            "tokens": 1,
        }
        url = f"{served.url}/v1/conversations/{self.conversation}/renders"
        self.render = self.session.post(
            url, json=called, headers=served.headers, timeout=20
        ).json()["id"]

    def place(self, case: Case) -> None:
        """Put what is there where an example stands; and no position that is not yet there, because
        that is rightly waited for.
        """
        known = {"3-17": self.position, EXAMPLES_RENDER: self.render}
        wait = case.body.get("wait") if isinstance(case.body, dict) else None
        if isinstance(wait, int | float) and not isinstance(wait, bool) and 0 < wait <= 30:
            case.body["wait"] = (
                wait / 100
            )  # a turn that waits for another one rightly takes as long as it was told to
        if is_positive(case) and case.headers and "If-Match" in case.headers:
            # Schemathesis fills this header with any entity tag, whatever its schema says.
            case.headers["If-Match"] = self.position
            case.headers.pop("If-None-Match", None)  # they exclude each other
        if case.path.endswith("/messages") and is_positive(case):
            # The document has one schema for both formats.
            form = "openai" if OPENAI_MESSAGES.is_valid(case.body) else "anthropic"
            case.query = {**(case.query or {}), "format": form}
        elif case.path.endswith("/messages") and (case.query or {}).get("unknown") == "ignore":
            del case.query["unknown"]  # it takes what the schema refuses
        after = POSITION.fullmatch(str((case.query or {}).get("after", "")))
        if after is not None and int(after[1]) < self.served.settings.partitions:
            case.query["after"] = "3-17"
        for values in (case.query, case.path_parameters, case.body):
            if not isinstance(values, dict):
                continue
            for name, value in list(values.items()):
                if isinstance(value, str) and value in known:
                    values[name] = known[value]
                    if "{conversation}" in case.path:
                        case.path_parameters["conversation"] = self.conversation


@pytest.fixture(scope="module")
def api(stack: EmbeddedStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Api]:
    with serving(stack, tmp_path_factory.mktemp("schemathesis"), "fuzz") as served:
        made = Api(served)
        yield made
        made.session.close()
        unforeseen = [line for line in served.said["gateway"] if "Traceback" in line]
        assert unforeseen == [], served.said["gateway"][-40:]


def is_positive(case: Case) -> bool:
    """Whether the request is valid by the document."""
    return case.meta is not None and case.meta.generation.mode.is_positive


def is_beyond_form(response: Any) -> bool:
    """Whether the request was refused for what no schema can say."""
    return response.status_code == 422 and BEYOND_FORM.search(response.json()["detail"]) is not None


def is_refused_for_its_address(response: Any) -> bool:
    """Whether the server refused the address before the application saw it. 431: a long header came
    with a long one, and the head as a whole is over its limit.
    """
    url = response.request.url or ""
    if len(url) > LONGEST_URL:
        assert response.status_code in (400, 414, 431)
        return True
    assert (response.status_code == 414) == (url.count("%") > MAX_ESCAPES)
    return url.count("%") > MAX_ESCAPES


def left_out(case: Case) -> bool:
    """Whether a short run passes this one over: a list of events has some 2,800 boundary cases, of
    which it sends every sixth.
    """
    many = case.method == "POST" and case.path.endswith("/events")
    return (
        ASKED != "full"
        and many
        and case.meta is not None
        and case.meta.phase.name.name == "COVERAGE"
        and crc32(repr(case.body).encode()) % 6 > 0
    )


def is_problem(response: Any) -> None:
    """What is no success is a problem document that says what and where."""
    if response.status_code < 400:
        return
    assert (
        response.headers["content-type"][0] == PROBLEM
        if isinstance(response.headers["content-type"], list)
        else True
    )
    document = response.json()
    assert set(document) >= {"type", "title", "status", "detail"}, document
    assert document["status"] == response.status_code
    assert len(document["detail"]) > 10, document


@schema.exclude(
    lambda context: (context.operation.method.upper(), context.operation.path) in STREAMS
).parametrize()
@drawn
def test_every_operation_answers_as_its_document_says(case: Case, api: Api) -> None:
    if left_out(case):
        return
    api.place(case)
    response = case.call(
        base_url=api.served.url, session=api.session, headers=api.served.headers, timeout=30
    )
    if is_refused_for_its_address(response):
        return
    checks = CHECKS
    if response.status_code == 413:
        assert len(response.request.body or b"") > LEAST_LIMIT
        # Nothing of it was read.
        both = positive_data_acceptance, negative_data_rejection
        checks = [check for check in CHECKS if check not in both]
    elif is_beyond_form(response) or response.status_code == 410:  # an earlier one erased it
        checks = [check for check in CHECKS if check is not positive_data_acceptance]
    case.validate_response(response, checks=checks)
    is_problem(response)


if STREAMS:

    @schema.include(
        lambda context: (context.operation.method.upper(), context.operation.path) in STREAMS
    ).parametrize()
    @drawn
    def test_every_stream_begins_or_is_refused_as_its_document_says(case: Case, api: Api) -> None:
        """A stream has no end, so of one that begins only the head is read."""
        api.place(case)
        request = case.as_transport_kwargs(base_url=api.served.url, headers=api.served.headers)
        with api.session.request(**request, stream=True, timeout=30) as response:
            if is_refused_for_its_address(response):
                return
            responses = case.operation.definition.raw["responses"]
            assert response.status_code < 500, response.text
            assert str(response.status_code) in responses or response.status_code == 405
            if is_positive(case):
                assert response.status_code != 422 or is_beyond_form(response), response.text
            if response.status_code == 200:
                assert response.headers["content-type"].startswith(EVENT_STREAM)
            else:
                is_problem(response)


def test_without_a_key_or_with_another_ones_nothing_is_done(api: Api) -> None:
    for path, item in DOCUMENT["paths"].items():
        for method, operation in item.items():
            if "security" not in operation:
                continue
            address = f"{api.served.url}{path.format_map(Anything())}"
            for headers in (
                {},
                {"Authorization": "Bearer tf_nobody"},
                {"Authorization": "Basic dGY6dGY="},
            ):
                with api.session.request(
                    method, address, headers=headers, timeout=20, stream=True
                ) as response:
                    assert response.status_code == 401, (method, path)
                    assert response.headers["www-authenticate"].startswith("Bearer")
                    is_problem(response)


class Anything(dict[str, str]):
    """A value for every part of a path."""

    def __missing__(self, name: str) -> str:
        return "1-1"


def test_the_committed_position_of_the_examples_is_the_one_that_is_replaced() -> None:
    context = DOCUMENT["paths"]["/v1/conversations/{conversation}/context"]["get"]
    assert [p["example"] for p in context["parameters"] if p["name"] == "after"] == ["3-17"]
    assert Path(__file__).name == "test_schemathesis.py"
