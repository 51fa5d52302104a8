"""Bodies that are JSON and yet no body of their route are refused by every route that takes one."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from streams.settings.settings import Settings
from tests.support.gateway import Client, serving
from threadfold.gateway.declaration import Route
from threadfold.gateway.routes import TABLE

BODIES = ["null", "12623263.0", "true", '"text"', "[]", "[null]", "[[]]", '{"": null}']


@pytest.fixture(scope="module")
async def call(settings: Settings) -> AsyncIterator[Client]:
    async with serving(settings) as client:
        yield client


@pytest.mark.parametrize(
    "route",
    [route for route in TABLE if route.body is not None],
    ids=lambda route: f"{route.method} {route.path}",
)
async def test_a_body_of_another_form_is_refused_with_a_problem(call: Client, route: Route) -> None:
    path = route.template
    for name in route.names:
        path = path.replace(f"{{{name}}}", "acme" if name == "tenant" else "odd")
    for body in BODIES:
        headers = {"Content-Type": "application/json"}
        answer = await call(route.method, path, body.encode(), headers=headers)
        assert 400 <= answer.status_code < 500, (body, answer.text)
        assert answer.json()["detail"], body
