"""The errors of the client: one class for each kind of problem document, over every transport."""

from __future__ import annotations

from http import HTTPStatus
from typing import Any

import msgspec


class ClientError(Exception):
    """A call that failed.

    ``status`` is the HTTP status (0 where no answer came), ``type`` the problem's short name like
    ``invalid-event``, ``title`` and ``detail`` its texts, ``retry_after`` the seconds the service
    asked to wait, or None. ``unknown`` is true if the call may have taken effect: repeat it with
    the same ids.
    """

    def __init__(
        self,
        detail: str,
        *,
        status: int = 0,
        type: str = "",  # noqa: A002 (the problem document's name)
        title: str = "",
        retry_after: float | None = None,
        unknown: bool = False,
    ) -> None:
        super().__init__(detail)
        self.detail = detail
        self.status = status
        self.type = type
        self.title = title
        self.retry_after = retry_after
        self.unknown = unknown


class Malformed(ClientError):
    """400: the request is not understood at all."""


class Unauthenticated(ClientError):
    """401: no key, or one that is unknown, expired or revoked."""


class NotAllowed(ClientError):
    """403: the key lacks the scope."""


class NotFound(ClientError):
    """404: no such conversation, turn or record of this tenant."""


class Conflict(ClientError):
    """409: something else came first: an event after the expected position, another turn, the end
    of the turn of a fencing token.

    ``unknown`` is true if an earlier attempt of the same call got no answer: then what came first
    may be that attempt.
    """


class Gone(ClientError):
    """410: the conversation was erased; this is final."""


class TooLarge(ClientError):
    """413: the body or an event is over the limit."""


class Invalid(ClientError):
    """422: an event, a name, a position or a parameter is not one that is allowed; the detail names
    it.
    """


class RateLimited(ClientError):
    """429: the tenant's quota is used up for ``retry_after`` seconds; nothing was done."""


class Unavailable(ClientError):
    """503, a broken connection, no answer in time, or one that cannot be used: cut, not JSON,
    another form, a redirect. Of an append it is ``unknown`` whether it landed: repeat it with the
    same ids.
    """


class Fault(ClientError):
    """Any other answer: a fault of the service, or of something between it and the client."""


class ClientClosed(ClientError):
    """The client was closed."""


BY_STATUS: dict[int, type[ClientError]] = {
    400: Malformed,
    401: Unauthenticated,
    403: NotAllowed,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    410: Gone,
    412: Conflict,
    413: TooLarge,
    422: Invalid,
    429: RateLimited,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}
NOTHING_DONE = frozenset({"overloaded", "not-connected"})
"""The problem types of a 5xx after which nothing was done."""
MAYBE = "; unknown whether it took effect: repeat it with the same ids"
"""How the sentence of an error ends whose call may have taken effect."""
_URN = "urn:threadfold:problem:"


def of_response(status: int, body: bytes, retry_after: str | None) -> ClientError:
    """The error that an answer with a status from 400 means."""
    document = _document(body)
    phrase = next((known.phrase for known in HTTPStatus if known == status), "no known status")
    kind = str(document.get("type") or "").removeprefix(_URN)
    detail = (
        document.get("detail") or f"the service answered {status} ({phrase}) without saying why"
    )
    return BY_STATUS.get(status, Fault)(
        str(detail),
        status=status,
        type=kind,
        title=str(document.get("title") or phrase),
        retry_after=_seconds(retry_after),
        unknown=status >= 500 and kind not in NOTHING_DONE,
    )


def unusable(method: str, what: str) -> Unavailable:
    """The error of an answer that says no more than none would: a read does nothing, but anything
    else may have taken effect.
    """
    unknown = method != "GET"
    return Unavailable(f"the service's answer {what}{MAYBE if unknown else ''}", unknown=unknown)


def _document(body: bytes) -> dict[str, Any]:
    try:
        found = msgspec.json.decode(body)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return {}  # a proxy's page: the status has to do
    return found if isinstance(found, dict) else {}


def _seconds(header: str | None) -> float | None:
    """Retry-After in seconds; threadfold does not send the form with a date, which is ignored."""
    try:
        return max(0.0, float(header)) if header else None
    except ValueError:
        return None
