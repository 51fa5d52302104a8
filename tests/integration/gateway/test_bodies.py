"""Every route that takes a body refuses one that is coded, or is JSON and yet no body of the route."""

from __future__ import annotations

import gc

import pytest

from projections.errors import ThreadfoldError
from tests.support.gateway import Client, is_problem, say
from threadfold.gateway.declaration import Route
from threadfold.gateway.routes import TABLE

BODIES = ["null", "12623263.0", "true", '"text"', "[]", "[null]", "[[]]", '{"": null}']


WITH_BODY = pytest.mark.parametrize(
    "route",
    [route for route in TABLE if route.body is not None],
    ids=lambda route: f"{route.method} {route.path}",
)


def path_of(route: Route) -> str:
    path = route.template
    for name in route.names:
        path = path.replace(f"{{{name}}}", "acme" if name == "tenant" else "odd")
    return path


@pytest.mark.parametrize(
    "route",
    [route for route in TABLE if route.body is not None and route.scope in ("append", "read")],
    ids=lambda route: f"{route.method} {route.path}",
)
async def test_a_coded_body_is_refused_and_its_coding_named(call: Client, route: Route) -> None:
    for coding, named in (("gzip", "gzip"), ("identity, BR", "BR"), ("Identity", "")):
        headers = {"Content-Type": "application/json", "Content-Encoding": coding}
        if "turn_id" in route.names:
            headers["Fencing-Token"] = "1"
        answer = await call(route.method, path_of(route), b"[]", headers=headers)
        if named:
            is_problem(answer, 415, named)
        else:
            assert answer.status_code != 415


@WITH_BODY
async def test_a_body_of_another_form_is_refused_with_a_problem(call: Client, route: Route) -> None:
    for body in BODIES:
        headers = {"Content-Type": "application/json"}
        answer = await call(route.method, path_of(route), body.encode(), headers=headers)
        assert 400 <= answer.status_code < 500, (body, answer.text)
        assert answer.json()["detail"], body


LARGE = 900_000
REFUSED = {
    "a long text": ("memories", b'{"text":"' + b"a" * LARGE + '\U0001f600"}'.encode()),
    "an unknown field": ("conversations/odd/close", b'{"' + b"k" * LARGE + b'":1}'),
    "a long value": ("conversations/odd/rollback", b'{"to":"' + b"k" * LARGE + b'"}'),
    "an unknown field of a message": (
        "conversations/odd/messages",
        b'[{"role":"user","content":"' + b"a" * LARGE + b'","k":1}]',
    ),
    "no JSON": ("memories", b'{"text":"' + b"a" * LARGE + b'\x01"}'),
}


def errors_to_collect() -> list[str]:
    """The errors of ours that only the collector frees, each with all that its frames hold."""
    gc.set_debug(gc.DEBUG_SAVEALL)
    try:
        gc.collect()
        return [str(one)[:60] for one in gc.garbage if isinstance(one, ThreadfoldError)]
    finally:
        gc.set_debug(0)
        gc.garbage.clear()


@pytest.mark.parametrize("why", REFUSED)
async def test_nothing_of_a_refused_body_waits_for_the_collector(call: Client, why: str) -> None:
    route, body = REFUSED[why]
    headers = {"Content-Type": "application/json"}
    gc.collect()
    gc.disable()
    try:
        for _ in range(3):  # what one request leaves may be in use until the next one
            answer = await call("POST", f"/v1/{route}", body, headers=headers)
            assert answer.status_code in (400, 422)
        assert errors_to_collect() == []
    finally:
        gc.enable()


@pytest.mark.parametrize("route", ["close", "compact"])
async def test_a_field_of_a_request_that_needs_no_body_is_refused_by_name(
    call: Client, route: str
) -> None:
    path = f"/v1/conversations/bodiless/{route}"
    await call("POST", "/v1/conversations/bodiless/events?wait=applied", say("hello"))
    for body in (b"", b"{}"):
        taken = await call("POST", path, body, headers={"Content-Type": "application/json"})
        assert taken.status_code == 202, taken.text
    is_problem(
        await call("POST", path, {"reason": "idle"}),
        422,
        "field reason: unknown to the body (it has none)",
    )
