"""A served gateway, what was said at it, and a browser: one for the tests of a file."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator

import httpx
import pytest

from streams.settings.quotas import DEFAULT_SCOPES
from tests.support.browser import programs, running_browser
from tests.support.console_traffic import append, approval, await_summary, record_call, talk
from tests.support.console_world import World
from tests.support.gateway_process import serving
from tests.support.tokens import AUDIENCE, ISSUER, Signer, key_set
from threadfold.embedded.stack import EmbeddedStack


@pytest.fixture(scope="module")
def world(stack: EmbeddedStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    programs()
    signer, keys = Signer("console"), tmp_path_factory.mktemp("keys") / "set.json"
    keys.write_bytes(key_set(signer))
    trusted = {"jwt_issuer": ISSUER, "jwt_audience": AUDIENCE, "jwt_keys": str(keys)}
    with contextlib.ExitStack() as running:
        served = running.enter_context(
            serving(
                stack,
                tmp_path_factory.mktemp("console"),
                "acme",
                accept_truncated_log=True,
                **trusted,
            )
        )
        acme = running.enter_context(
            httpx.Client(base_url=served.url, headers=served.headers, timeout=60, trust_env=False)
        )
        rival = acme.post("/v1/tenants", json={"name": "rival", "scopes": list(DEFAULT_SCOPES)})
        append(acme, "journey", talk(12))
        record_call(acme, "journey")
        append(acme, "journey", approval())
        append(acme, "answered", [*talk(1), *approval("pay-2")])
        memory = {"text": "Prefers a seat at the window.", "user": "u-7", "conversation": "journey"}
        acme.post("/v1/memories?wait=applied", json=memory).raise_for_status()
        await_summary(acme, "journey")
        browser = running.enter_context(running_browser(tmp_path_factory.mktemp("browser")))
        yield World(
            served.url, acme, served.key, rival.json()["key"], browser, served.settings, signer
        )
