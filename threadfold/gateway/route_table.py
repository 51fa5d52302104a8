"""The route table: from a method and a path to the route that serves it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from starlette.responses import Response

from projections.errors import ThreadfoldError
from threadfold.gateway.declaration import Cost, Route
from threadfold.gateway.problems import MethodNotAllowed, NotFound, problem_of

KEYED = "/v1/"
"""Below this path everything needs a key, even what no route has."""
_PARTS, _REST, _METHODS = "/parts", "/rest", "/methods"
"""Keys of a node: the nodes below it for parts of any value, by what such a part ends with; the
node for all the rest of a path; the routes that end there, by method. No part of a path is such a
key.
"""
_Node = dict[str, Any]


class RouteTable:
    """Routes by path and method.

    Raises:
        ValueError: two routes have one method and path, or one below ``KEYED`` needs no key.
    """

    def __init__(self, routes: Iterable[Route]) -> None:
        self._routes = list(routes)
        self._tree: _Node = {}
        for route in self._routes:
            if route.path.startswith(KEYED) == (route.cost is Cost.FREE):
                raise ValueError(
                    f"{route.method} {route.path}: a key is needed below {KEYED} alone"
                )
            node = self._tree
            for part in route.path[1:].split("/"):
                if not part.startswith("{"):
                    node = node.setdefault(part, {})
                elif part.endswith(":path}"):
                    node = node.setdefault(_REST, {})
                else:
                    suffix = part.partition("}")[2]
                    node = node.setdefault(_PARTS, {}).setdefault(suffix, {})
            methods = node.setdefault(_METHODS, {})
            if route.method in methods:
                raise ValueError(f"{route.method} {route.path} is declared twice")
            methods[route.method] = route
        error = NotFound("there is no such route: see /docs")
        self._unknown = {cost: _refusing("none", cost, error) for cost in (Cost.FREE, Cost.REQUEST)}
        self._other_methods: dict[str, Route] = {}

    def __iter__(self) -> Iterator[Route]:
        return iter(self._routes)

    def find(self, method: str, path: str) -> tuple[Route, Sequence[str]]:
        """The route and the values of its path's parts; what no route has is a route that answers
        404 or 405.
        """
        node, parts = self._tree, path[1:].split("/")
        values: list[str] = []
        for i, part in enumerate(parts):
            below = node.get(part)
            if below is None:
                below, value = _below(node, part)
                values.append(value)
            if below is None:
                below = node.get(_REST)
                if below is None:
                    return self._no_route(path)
                values[-1] = "/".join(parts[i:])
                node = below
                break
            node = below
        methods: dict[str, Route] | None = node.get(_METHODS)
        if methods is None:
            return self._no_route(path)
        return methods.get(method) or self._other_method(methods), values

    def _no_route(self, path: str) -> tuple[Route, Sequence[str]]:
        return self._unknown[Cost.REQUEST if path.startswith(KEYED) else Cost.FREE], ()

    def _other_method(self, methods: dict[str, Route]) -> Route:
        one = next(iter(methods.values()))
        found = self._other_methods.get(one.path)
        if found is None:
            text = "this route does not take that method: see /docs"
            error = MethodNotAllowed(text, ", ".join(sorted(methods)))
            cost = Cost.FREE if one.cost is Cost.FREE else Cost.REQUEST
            found = self._other_methods[one.path] = _refusing(one.path, cost, error)
        return found


def _below(node: _Node, part: str) -> tuple[_Node | None, str]:
    """The node for a part of any value, and that value."""
    for suffix, below in node.get(_PARTS, {}).items():
        if part.endswith(suffix) and len(part) > len(suffix):
            return below, part.removesuffix(suffix)
    return None, ""


def _refusing(path: str, cost: Cost, error: ThreadfoldError) -> Route:
    """A route that only answers with an error. Its method is ``any``: callers can make up any
    number of methods, and metrics count by it.
    """

    async def refuse() -> Response:
        return problem_of(error)

    return Route("any", path, refuse, cost, refuses=True)
