"""The parameters of a route, from its handler's signature: what the OpenAPI document shows of them,
and how they are read from a request.

``limit: Annotated[int, Query("events of the page"), Meta(ge=1)] = 50`` is a parameter of the query.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Annotated, Any, get_args, get_origin, get_type_hints
from urllib.parse import parse_qsl

import msgspec
from starlette.types import Scope

from projections.errors import InvalidRequest
from projections.events.type_errors import explain

_CACHED = 256
"""Query strings remembered for each route, and the length up to which one is."""


@dataclass(frozen=True, slots=True)
class Place:
    """Marks an argument as a parameter; ``name`` is its public name, if not the argument's."""

    description: str = ""
    example: Any = None
    name: str = ""


class Path(Place):
    """Marks a part of the path."""


class Query(Place):
    """Marks a parameter of the query."""


class Header(Place):
    """Marks a header."""


class ParameterGroup:
    """The base of a dataclass whose fields are parameters: a handler has them as one argument."""


@dataclass(frozen=True, slots=True)
class HeaderGroup:
    """Marks an argument made of several headers: ``read`` gets those that the request has, by their
    names in lower case.
    """

    names: tuple[str, ...]
    read: Callable[[Mapping[str, str]], Any]
    shown: tuple[Parameter, ...] = ()


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter: its public name, where it stands (``path``, ``query``, ``header``) and its
    type.
    """

    name: str
    place: str
    type: Any
    argument: str = ""
    required: bool = False
    default: Any = None
    description: str = ""
    example: Any = None

    def convert(self, text: str) -> Any:
        """The value; raises :class:`InvalidRequest`, which names the parameter."""
        try:
            if self.type is str:
                return text
            # Not strictly, a time may be a number, too.
            time = datetime in get_args(self.type)
            value = msgspec.convert(text, self.type, strict=time)
            # msgspec takes 5.0 for a whole number; in a body it is none.
            if type(value) is int and not text.removeprefix("-").isdecimal():
                raise msgspec.ValidationError("Expected `int`, got `float`")
            return value
        except msgspec.ValidationError as error:
            where = "header" if self.place == "header" else f"{self.place} parameter"
            named = f"{where} {self.name}"
            raise InvalidRequest(explain(error, self.type, named, given=text)) from None


class Parameters:
    """All parameters of one handler."""

    def __init__(self, handler: Callable[..., Any], path: tuple[str, ...]) -> None:
        """Args: ``path`` names the parts of the route's path.

        Raises:
            TypeError: the signature and the path do not fit.
        """
        self.shown: list[Parameter] = []
        self._groups: dict[str, HeaderGroup] = {}
        self._nested: dict[str, tuple[type[ParameterGroup], Parameters]] = {}
        own: list[Parameter] = []
        hints = get_type_hints(handler, include_extras=True)
        for argument, given in inspect.signature(handler).parameters.items():
            hint = hints[argument]
            if isinstance(hint, type) and issubclass(hint, ParameterGroup):
                self._nested[argument] = hint, Parameters(hint, ())
                self.shown += self._nested[argument][1].shown
            if get_origin(hint) is not Annotated:
                continue
            for marker in get_args(hint)[1:]:
                if isinstance(marker, HeaderGroup):
                    self._groups[argument] = marker
                    self.shown += marker.shown
                elif isinstance(marker, Place):
                    own.append(_parameter(argument, hint, marker, given.default))
                    self.shown.append(own[-1])
        if {p.argument for p in own if p.place == "path"} != set(path):
            raise TypeError(f"{handler.__name__}: the parts of the path are {', '.join(path)}")
        self._query = {p.name: p for p in own if p.place == "query"}
        self._headers = {p.name.lower(): p for p in own if p.place == "header"}
        self._required = [p for p in own if p.required and p.place != "path"]
        groups = [name for group in self._groups.values() for name in group.names]
        self._known = frozenset(name.encode() for name in (*self._headers, *groups))
        self._query_names = frozenset(p.name for p in self.shown if p.place == "query")
        self._remembered = lru_cache(_CACHED)(self._pairs)

    def read(self, scope: Scope) -> dict[str, Any]:
        """The arguments that a request gives; those it does not give keep their defaults.

        Raises:
            InvalidRequest: a parameter of the query is not declared or comes twice, one is not of
                its type, or a required one is missing.
        """
        query: bytes = scope["query_string"]
        if not query:
            return self._read({}, scope)
        pairs = self._remembered(query) if len(query) <= _CACHED else self._pairs(query)
        return self._read(pairs, scope)

    def _read(self, query: Mapping[str, str], scope: Scope) -> dict[str, Any]:
        found = {p.argument: p.convert(query[n]) for n, p in self._query.items() if n in query}
        # Nearly no request has such a header: one look at all names is cheaper than one for each.
        if self._known and not self._known.isdisjoint([name for name, _ in scope["headers"]]):
            found.update(self._of_headers(scope["headers"]))
        for argument, (group, parameters) in self._nested.items():
            if given := parameters._read(query, scope):
                found[argument] = group(**given)
        for parameter in self._required:
            if parameter.argument not in found:
                raise InvalidRequest(
                    f"{parameter.place} {parameter.name}: missing: {parameter.description}"
                )
        return found

    def _pairs(self, query: bytes) -> Mapping[str, str]:
        """The parameters of a query string; a misspelt one must not be taken for one left out."""
        known = self._query_names
        pairs: dict[str, str] = {}
        try:
            given = parse_qsl(query.decode(), keep_blank_values=True, errors="strict")
        except UnicodeDecodeError:
            raise InvalidRequest("the query is not valid UTF-8, percent-encoded or not") from None
        for name, value in given:
            if name not in known:
                there = f"it has {', '.join(sorted(known))}" if known else "it has none"
                raise InvalidRequest(
                    f"query parameter {name[:60]!r}: this route has no such parameter ({there})"
                )
            if name in pairs:
                raise InvalidRequest(f"query parameter {name}: it occurs twice: give it once")
            pairs[name] = value
        return pairs

    def _of_headers(self, headers: list[tuple[bytes, bytes]]) -> dict[str, Any]:
        given: dict[str, str] = {}
        for name, value in headers:
            if name in self._known:
                given.setdefault(name.decode("latin-1"), value.decode("latin-1"))
        found = {p.argument: p.convert(given[n]) for n, p in self._headers.items() if n in given}
        for argument, group in self._groups.items():
            found[argument] = group.read({n: v for n, v in given.items() if n in group.names})
        return found


def _parameter(argument: str, hint: Any, marker: Place, default: Any) -> Parameter:
    base, *metadata = get_args(hint)
    inner = [kind for kind in get_args(base) if kind is not type(None)]
    if type(None) in get_args(base):
        base = inner[0]
    metas = [meta for meta in metadata if isinstance(meta, msgspec.Meta)]
    return Parameter(
        marker.name or argument,
        type(marker).__name__.lower(),
        Annotated[base, *metas] if metas else base,
        argument,
        default is inspect.Parameter.empty,
        None if default is inspect.Parameter.empty else default,
        marker.description,
        marker.example,
    )
