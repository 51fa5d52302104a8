"""The route table and the parameters of a route, as declared."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import pytest
from msgspec import Meta
from starlette.responses import Response

from projections.errors import InvalidRequest
from threadfold.gateway.declaration import Cost, Route
from threadfold.gateway.parameters import Header, Path, Query
from threadfold.gateway.route_table import RouteTable
from threadfold.gateway.routes import TABLE


@pytest.mark.parametrize(
    ("method", "path", "found", "parts"),
    [
        ("GET", "/healthz", "/healthz", []),
        ("HEAD", "/healthz", "/healthz", []),
        ("POST", "/v1/conversations/c/events", "/v1/conversations/{conversation}/events", ["c"]),
        ("GET", "/v1/conversations/events/context", "/v1/conversations/{conversation}/context", ["events"]),
        ("GET", "/v1/conversations/c/events/3-1", "/v1/conversations/{conversation}/events/{position}", ["c", "3-1"]),
        ("DELETE", "/v1/users/a/b", "/v1/users/{user:path}", ["a/b"]),
        ("DELETE", "/v1/users/", "/v1/users/{user:path}", [""]),
        ("GET", "/schemas/tool.result.json", "/schemas/{name}.json", ["tool.result"]),
        ("GET", "/schemas/.json", "none", []),
        ("GET", "/v1/conversations//context", "none", []),
        ("GET", "/v1/conversations/c/events/", "none", []),
        ("GET", "/v1//parts", "none", []),
        ("GET", "/v1/conversations/c/methods", "none", []),
        ("DELETE", "/v1/conversations/c/events", "/v1/conversations/{conversation}/events", ["c"]),
    ],
)  # fmt: skip
def test_a_path_leads_to_its_route(method: str, path: str, found: str, parts: list[str]) -> None:
    route, values = TABLE.find(method, path)
    assert route.path == found
    assert list(values) == parts


def test_what_no_route_serves_needs_a_key_below_v1_alone_and_has_no_method_of_the_callers() -> None:
    for path, cost in (("/v1/nothing", Cost.REQUEST), ("/nothing", Cost.FREE)):
        route, _ = TABLE.find("GET", path)
        assert (route.path, route.method, route.cost) == ("none", "any", cost)
    route, _ = TABLE.find("MADE-UP", "/v1/events")
    assert (route.path, route.method, route.cost) == ("/v1/events", "any", Cost.REQUEST)


async def none() -> Response:
    """A handler without parameters."""
    return Response()


def test_a_table_refuses_routes_that_contradict_each_other() -> None:
    route = Route("GET", "/v1/x", none)
    with pytest.raises(ValueError, match="declared twice"):
        RouteTable([route, route])
    with pytest.raises(ValueError, match="a key is needed"):
        RouteTable([Route("GET", "/v1/x", none, Cost.FREE)])
    with pytest.raises(TypeError, match="the parts of the path are c"):
        Route("GET", "/v1/{c}", none)


async def handler(
    c: Annotated[str, Path()],
    limit: Annotated[int, Query(), Meta(ge=1, le=9)] = 5,
    wait: Annotated[Literal["applied"] | None, Query()] = None,
    begin: Annotated[str | None, Query(name="from")] = None,
    key: Annotated[str | None, Header("a key", name="X-Key"), Meta(max_length=3)] = None,
) -> Response:
    """A handler with parameters of every kind."""
    return Response(f"{c}{limit}{wait}{begin}{key}")


def read(query: bytes, *headers: tuple[bytes, bytes]) -> dict[str, Any]:
    scope = {"query_string": query, "headers": list(headers)}
    return Route("GET", "/v1/{c}", handler).parameters.read(scope)


def test_parameters_are_read_as_the_handlers_signature_declares_them() -> None:
    assert read(b"") == {}
    assert read(b"limit=3&wait=applied&from=a%20b") == {
        "limit": 3,
        "wait": "applied",
        "begin": "a b",
    }
    assert read(b"limit=4", (b"x-key", b"abc"), (b"host", b"h")) == {
        "limit": 4,
        "key": "abc",
    }


@pytest.mark.parametrize(
    ("query", "value", "named"),
    [
        (b"limit=0", b"", "query parameter limit"),
        (b"limit=x", b"", "query parameter limit"),
        (b"limit=5.0", b"", "query parameter limit: expected a whole number, got '5.0'"),
        (b"limit=5e0", b"", "query parameter limit: expected a whole number, got '5e0'"),
        (b"limit=", b"", "query parameter limit"),
        (b"wait=maybe", b"", "query parameter wait"),
        (b"", b"abcd", "header X-Key"),
        (b"limit=3&limit=4", b"", "query parameter limit: it occurs twice"),
        (b"from=%ff", b"", "the query is not valid UTF-8"),
        (b"from=\xe9", b"", "the query is not valid UTF-8"),
        (b"limit=3&x=4", b"", "query parameter 'x': .* no such parameter .*from, limit, wait"),
        (b"Limit=3", b"", "query parameter 'Limit'"),
        (b"begin=a", b"", "query parameter 'begin'"),
    ],
)
def test_a_wrong_parameter_is_named(query: bytes, value: bytes, named: str) -> None:
    with pytest.raises(InvalidRequest, match=named):
        read(query, *([(b"x-key", value)] if value else []))


@pytest.mark.parametrize("route", list(TABLE), ids=lambda route: f"{route.method} {route.path}")
def test_every_route_refuses_a_parameter_that_it_does_not_declare(route: Route) -> None:
    scope = {"query_string": b"usre=u-7", "headers": []}
    with pytest.raises(InvalidRequest, match="query parameter 'usre': this route has no such"):
        route.parameters.read(scope)


def test_every_route_that_may_have_a_body_declares_it() -> None:
    assert [one.path for one in TABLE if one.method[0] == "P" and one.body is None] == []


def test_a_group_of_parameters_stands_beside_those_of_the_route() -> None:
    route, _ = TABLE.find("POST", "/v1/conversations/c/messages")
    scope = {"query_string": b"format=anthropic&wait=applied", "headers": []}
    found = route.parameters.read(scope)
    assert found["format"] == "anthropic"
    assert found["options"].wait == "applied"
