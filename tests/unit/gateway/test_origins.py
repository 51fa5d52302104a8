"""What browsers may send: pages of other origins, and all pages to a gateway without keys. The
gateways here are not connected, so what is let in is answered 503 (and 401 with keys).
"""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from projections.errors import InvalidSettings
from streams.settings.settings import Settings
from tests.support.gateway import is_problem
from threadfold.gateway import create_gateway

HOST, PAGE = "127.0.0.1:8080", "https://shop.example"
EVENTS = "/v1/conversations/c/events"
MESSAGE = b'{"type":"message","role":"user","content":"x"}'
JSON = "application/json"
PREFLIGHT = {"Origin": PAGE, "Access-Control-Request-Method": "POST"}


def client(**changes: str) -> httpx.AsyncClient:
    values = {"kafka": "127.0.0.1:1", "redis": "redis://127.0.0.1:1/0", **changes}
    app = create_gateway(Settings.load(env={}, **values))
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url=f"http://{HOST}")


def off(**changes: str) -> httpx.AsyncClient:
    return client(auth="off", **changes)


@pytest.mark.parametrize(
    "host", [HOST, "localhost", "localhost:8080", "app.localhost:1", "[::1]:8080", "127.8.9.1"]
)
async def test_without_keys_loopback_names_are_served(host: str) -> None:
    headers = {"Host": host, "Content-Type": JSON}
    async with off() as http:
        is_problem(await http.post(EVENTS, content=MESSAGE, headers=headers), 503)
        assert (await http.get("/healthz", headers={"Host": host})).status_code == 200


@pytest.mark.parametrize(
    "host",
    [
        "rebound.example",
        "127.0.0.1.rebound.example",
        "localhost.example:8080",
        "10.0.0.1",
        "",
        "[",
        "rebound.example@localhost",
        "localhost/rebound.example",
        "[::1]rebound.example",
        "localhost:8080:1",
    ],
)
async def test_without_keys_any_other_host_is_refused_unless_it_is_configured(host: str) -> None:
    async with off() as http:
        for path in ("/v1/conversations", "/metrics", "/docs", "/v1/nothing"):
            answer = await http.get(path, headers={"Host": host})
            is_problem(answer, 403, "gateway_hosts")
    async with off(gateway_hosts="box, Rebound.example") as http:
        for named in ("rebound.example:8080", "BOX"):
            is_problem(await http.get("/v1/conversations", headers={"Host": named}), 503)
        is_problem(await http.get("/v1/conversations", headers={"Host": "other"}), 403)


async def test_without_keys_a_page_of_another_origin_is_refused_unless_it_is_configured() -> None:
    async with off(cors_origins=PAGE) as http:
        for origin, status in (
            (PAGE, 503),
            (f"http://{HOST}", 503),
            ("http://127.0.0.1:3000", 403),
            ("https://evil.example", 403),
            ("null", 403),
            ("", 403),
        ):
            headers = {"Origin": origin, "Content-Type": JSON}
            answers = [
                await http.get("/v1/conversations", headers=headers),
                await http.post(EVENTS, content=MESSAGE, headers=headers),
            ]
            for answer in answers:
                is_problem(answer, status, *(["cors_origins"] if status == 403 else []))


async def test_without_keys_a_body_must_be_declared_as_json() -> None:
    async with off() as http:
        for kind, status in (
            ("text/plain", 415),
            ("application/x-www-form-urlencoded", 415),
            ("multipart/form-data; boundary=x", 415),
            ("text/json", 415),
            (JSON, 503),
            ("Application/JSON; charset=utf-8", 503),
        ):
            headers = {"Content-Type": kind}
            is_problem(await http.post(EVENTS, content=MESSAGE, headers=headers), status)
        answer = await http.post(EVENTS, content=MESSAGE)
        is_problem(answer, 415, "Content-Type: application/json")
        # A route that takes no body, and one that may be sent without.
        is_problem(await http.post("/v1/conversations/c/close"), 503)
        is_problem(await http.post("/v1/conversations/c/turns"), 503)


async def test_with_keys_host_and_content_type_are_the_callers_business() -> None:
    async with client() as http:
        for headers in ({"Host": "any.example"}, {"Content-Type": "text/plain"}):
            is_problem_401 = await http.post(EVENTS, content=MESSAGE, headers=headers)
            assert is_problem_401.status_code == 401


async def test_preflights_are_answered_without_a_key_for_configured_origins_alone() -> None:
    async with client() as http:
        answer = await http.options(EVENTS, headers=PREFLIGHT)
        assert answer.status_code == 401
        assert "access-control-allow-origin" not in answer.headers
    async with client(cors_origins=f"http://localhost:3000, {PAGE}") as http:
        answer = await http.options(EVENTS, headers=PREFLIGHT)
        assert answer.status_code == 204
        assert answer.headers["access-control-allow-origin"] == PAGE
        assert answer.headers["access-control-allow-credentials"] == "true"
        answer = await http.options(EVENTS, headers={**PREFLIGHT, "Origin": "https://evil.example"})
        is_problem(answer, 403, "cors_origins")
        for headers in ({"Origin": PAGE}, {}):
            answer = await http.options(EVENTS, headers=headers)
            assert answer.status_code == 401, "no preflight"
            assert ("access-control-allow-origin" in answer.headers) == bool(headers)
            assert answer.headers["vary"] == "Origin"


@pytest.mark.parametrize(
    "origins", ["*", "shop.example", "https://shop.example/", "https://*.example", "null"]
)
def test_what_is_no_origin_cannot_be_configured(origins: Any) -> None:
    with pytest.raises(InvalidSettings, match="cors_origins"):
        client(cors_origins=origins)
