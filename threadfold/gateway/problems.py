"""Problem documents (RFC 9457): every error an HTTP caller sees, made from the error's own class
and sentence.
"""

from __future__ import annotations

import logging
import re
from http import HTTPStatus

import msgspec
from starlette.responses import Response

from projections.errors import (
    QuotaExceeded,
    ThreadfoldError,
    Unauthorized,
    UnderMaintenance,
    WaitTimedOut,
)
from streams.runtime.current_request import current_request
from streams.runtime.throttle_logs import ThrottledLogs

logger = logging.getLogger(__name__)
keyless_log = logging.getLogger(f"{__name__}.keyless")
"""Logs the errors of requests without a key, each once in a while."""
keyless_log.addFilter(ThrottledLogs(by_form=False))
RETRY_AFTER = 1
"""Seconds a caller is asked to wait after a 503: healing and reconnecting take about that long when
all is well.
"""
_PLACES = re.compile(r" (?:at [a-z0-9+]+://\S+|at \S+:[0-9]+\S*|connecting to [^\s)]+)")
"""Addresses of servers in an error's sentence."""
_TYPE = "urn:threadfold:problem:"


class NotConnected(ThreadfoldError):
    """The gateway runs, but could not connect to Kafka yet; it keeps trying."""

    problem = 503


class Stopping(ThreadfoldError):
    """The gateway stops before the request is done."""

    problem = 503


class NotFound(ThreadfoldError):
    """No route has this path."""

    problem = 404


class MethodNotAllowed(ThreadfoldError):
    """The route does not have this method; ``allowed`` lists those it has."""

    problem = 405

    def __init__(self, message: str, allowed: str) -> None:
        super().__init__(message)
        self.allowed = allowed


class UnknownSchema(ThreadfoldError):
    """There is no JSON Schema of that name."""

    problem = 404


def problem(status: int, name: str, detail: str, headers: dict[str, str] | None = None) -> Response:
    """A problem response. ``name`` is a class name like ``InvalidEvent``; it gives ``type`` (kebab
    case) and ``title``.
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    body = {
        "type": _TYPE + words.replace(" ", "-"),
        "title": words.capitalize(),
        "status": status,
        # A sentence may quote what a caller sent: half of a surrogate pair has no bytes.
        "detail": detail.encode(errors="backslashreplace").decode(),
    }
    headers = dict(headers or {})
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.setdefault("Retry-After", str(RETRY_AFTER))
    return Response(msgspec.json.encode(body), status, headers, "application/problem+json")


def last_answer(status: int, detail: str) -> bytes:
    """A problem as the last answer of a connection, in bytes."""
    known = HTTPStatus(status)
    name = known.phrase.title().replace(" ", "")
    answer = problem(status, name, detail, {"Connection": "close"})
    lines = [
        f"HTTP/1.1 {status} {known.phrase}".encode(),
        *(header + b": " + value for header, value in answer.raw_headers),
    ]
    return b"\r\n".join([*lines, b"", bytes(answer.body)])


def problem_of(error: ThreadfoldError) -> Response:
    """The problem of one of threadfold's own errors: the status of its class, and its message."""
    headers = {}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = 'Bearer realm="threadfold"'
        # Nobody without a key keeps a connection, or has a body read.
        headers["Connection"] = "close"
    elif isinstance(error, QuotaExceeded | UnderMaintenance | WaitTimedOut):
        headers["Retry-After"] = str(error.retry_after)
    elif isinstance(error, MethodNotAllowed):
        headers["Allow"] = error.allowed
    text = str(error)
    if error.problem >= 500:
        current = current_request()
        if current is None or current.tenant is None:
            # Whoever has no key could fill the disk with lines.
            keyless_log.warning("%s: %s", type(error).__name__, text)
        else:
            logger.warning("%s: %s%s", type(error).__name__, text, of_request())
        # Where the deployment's servers are is for its operators, who have the log.
        text = _PLACES.sub("", text)
    return problem(error.problem, type(error).__name__, text, headers)


def cut_off() -> Response:
    """The problem of a request that was not done when the gateway's time to stop was over."""
    return problem_of(
        Stopping(
            "the gateway is stopping and did not finish this request: its events may be in the log,"
            " so repeat it with the same ids"
        )
    )


def disconnected() -> Response:
    """The problem of a request whose client left; nobody is there to read it."""
    return problem(400, "Disconnected", "the client left before it was answered")


def unforeseen(error: Exception) -> Response:
    """The problem of an unforeseen error: it shows the error's class, and nothing else of it but
    where the log has it.
    """
    return problem(
        500,
        "InternalError",
        f"an unexpected error ({type(error).__name__}): the gateway's log has it{of_request()}",
    )


def of_request() -> str:
    """How errors and log lines end that name the request; empty outside of one."""
    request = current_request()
    return "" if request is None else f", request {request.id}"
