"""How a route is declared: once, beside its handler.

The declaration holds the method, the path, the scope that a key needs, the cost, and the types of
the body and the answers. The route table, admission, metrics and the OpenAPI document read it. The
parameters come from the handler's signature.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, get_type_hints

from threadfold.gateway.access import Caller
from threadfold.gateway.examples import example_of
from threadfold.gateway.parameters import Parameters
from threadfold.gateway.request import Body, Request
from threadfold.schemas.structs import plain_text

JSON = "application/json"
PROBLEM = "application/problem+json"
EVENT_STREAM = "text/event-stream"
Handler = Callable[..., Awaitable[Any]]
Schema = dict[str, Any]


class Cost(Enum):
    """What admission checks and charges for a request."""

    FREE = "free"
    """Needs no key; not limited."""
    REQUEST = "request"
    """Needs a key; costs a request, and counts among the requests under way."""
    APPEND = "append"
    """Like a request; needs events and tokens in the quota, and charges an estimate while it is
    under way.
    """
    PARTIAL = "partial"
    """Like a request; needs events and tokens in the quota, but charges none until text is
    appended.
    """
    STREAM = "stream"
    """Costs a request, and counts only among the open streams."""
    ADMINISTRATION = "administration"
    """Like a request; costs nothing for a key with the scope `admin`."""

    @property
    def appends(self) -> bool:
        """Whether it needs events and tokens in the quota."""
        return self is Cost.APPEND or self is Cost.PARTIAL


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer that is no problem document.

    Args:
        type: a msgspec type, or a schema.
        about: what it means; empty: what the type's docstring says.
        example: one example; None: made from the type, which is a struct then.
    """

    type: Any
    about: str = ""
    example: Any = None
    media: str = JSON

    def __post_init__(self) -> None:
        if not self.about:
            object.__setattr__(self, "about", plain_text(self.type.__doc__))
        if self.example is None:
            object.__setattr__(self, "example", example_of(self.type))


@dataclass(frozen=True, slots=True)
class Route:
    """One route. Its handler returns a response, or the document of its first answer.

    ``scope`` None: any key will do, or none if ``cost`` is free. ``end_users``: tokens of end users
    open it, too, below a conversation for its owner alone; a list of theirs is their handler's to
    narrow (``Caller.end_user``). ``problems`` are the statuses of its problem documents that do not
    follow from its cost, scope, path and body. ``hidden`` routes are not in the OpenAPI document. A
    document that may be ``large`` is encoded beside others' requests. A route that ``refuses``
    stands for what no route serves: its handler has no parameters.
    """

    method: str
    path: str
    handler: Handler
    cost: Cost = Cost.REQUEST
    scope: str | None = None
    end_users: bool = False
    tag: str = ""
    summary: str = ""
    answers: Mapping[int, Answer] = field(default_factory=dict)
    body: Body | None = None
    problems: tuple[int, ...] = ()
    hidden: bool = False
    large: bool = False
    refuses: bool = False
    parameters: Parameters = field(init=False)
    injected: frozenset[str] = field(init=False)
    names: tuple[str, ...] = field(init=False)
    status: int = field(init=False)
    streams: bool = field(init=False)
    """Whether its answer is a stream, which has no end of its own."""

    def __post_init__(self) -> None:
        names = () if self.refuses else tuple(re.findall(r"{(\w+)", self.path))
        hints = get_type_hints(self.handler, include_extras=True)
        kinds = {Request: "request", Caller: "caller"}
        injected = {kinds[hint]: name for name, hint in hints.items() if hint in kinds}
        if any(kind != name for kind, name in injected.items()):
            raise TypeError(f"{self.path}: name the parameters request and caller")
        if self.body is not None:
            injected["body"] = "body"
        object.__setattr__(self, "status", next(iter(self.answers), 200))
        object.__setattr__(self, "streams", self.cost is Cost.STREAM)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "injected", frozenset(injected))
        object.__setattr__(self, "parameters", Parameters(self.handler, names))

    @property
    def template(self) -> str:
        """The path as the OpenAPI document has it."""
        return self.path.replace(":path}", "}")

    @property
    def description(self) -> str:
        """What the handler's docstring says."""
        return inspect.getdoc(self.handler) or self.summary

    @property
    def all_problems(self) -> tuple[int, ...]:
        """The status of every problem document it may answer, in order."""
        found = {422, *self.problems}
        if self.cost is not Cost.FREE:
            found |= {401, 403, 429, 503}
        if self.cost is Cost.APPEND:
            found |= {400, 409, 410}
        if self.body is not None:
            found |= {400, 413, 415}
        if "conversation" in self.names and self.scope != "erase":
            found.add(410)
        appended_to = self.names == ("conversation",) and self.scope == "append"
        if self.names and (self.end_users or not appended_to):
            found.add(404)
        return tuple(sorted(found - set(self.answers)))


class Routes(list[Route]):
    """The routes of one subject; ``tag`` is its heading in the OpenAPI document."""

    def __init__(self, tag: str) -> None:
        super().__init__()
        self.tag = tag

    def add(
        self,
        method: str,
        path: str,
        summary: str = "",
        answers: Any = None,
        *,
        status: int = 200,
        **declared: Any,
    ) -> Callable[[Handler], Handler]:
        """Declare the route that the decorated function handles.

        Args:
            answers: one :class:`Answer`, or its type alone; or several by their statuses.
            status: the status of the one answer.
            declared: other arguments of :class:`Route`.
        """
        if answers is not None and not isinstance(answers, Mapping):
            one = answers if isinstance(answers, Answer) else Answer(answers)
            answers = {status: one}

        def declare(handler: Handler) -> Handler:
            more = {"tag": self.tag, "summary": summary, "answers": answers or {}, **declared}
            self.append(Route(method, path, handler, **more))
            return handler

        return declare
