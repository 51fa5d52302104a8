"""The request that is being answered: its id, for every log line that belongs to it.

Work that a request begins and that outlives it (a follower, a pool) inherits its context; so what
is asked here is whether the request is still under way.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from contextvars import ContextVar

ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
"""Request ids that are taken from callers."""
TRACEPARENT = re.compile(rb"[0-9a-f]{2}-([0-9a-f]{32})-[0-9a-f]{16}-[0-9a-f]{2}")


class CurrentRequest:
    """One request: its id, and the ``traceparent`` that came with it; ``tenant`` and
    ``conversation`` are there once they are known, ``over`` once it is answered.
    """

    __slots__ = ("conversation", "id", "over", "tenant", "traceparent")

    def __init__(self, id_: str, traceparent: str | None = None) -> None:
        self.id = id_
        self.traceparent = traceparent
        self.tenant: str | None = None
        self.conversation: str | None = None
        self.over = False

    def fields(self) -> dict[str, str]:
        """What a log line says of it."""
        about = {"tenant": self.tenant, "conversation": self.conversation}
        known = {name: value for name, value in about.items() if value is not None}
        return {"request_id": self.id, **known}


CURRENT: ContextVar[CurrentRequest | None] = ContextVar("threadfold_request", default=None)


def current_request() -> CurrentRequest | None:
    """The request that this runs for, None for what runs for none."""
    request = CURRENT.get()
    return None if request is None or request.over else request


def request_of(headers: Iterable[tuple[bytes, bytes]]) -> CurrentRequest:
    """The request with these headers (names in lower case). Its id is its ``X-Request-Id``, else
    the trace id of its ``traceparent``, as far as they are well formed; else a random one, which
    says nothing of how many there are.
    """
    id_ = trace = traceparent = None
    for name, value in headers:
        if name == b"x-request-id" and id_ is None and ID.fullmatch(value):
            id_ = value.decode()
        elif (
            name == b"traceparent"
            and (found := TRACEPARENT.fullmatch(value))
            and found[1].strip(b"0")
        ):
            trace, traceparent = found[1].decode(), value.decode()
    return CurrentRequest(id_ or trace or os.urandom(8).hex(), traceparent)
