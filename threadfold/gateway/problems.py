"""Problem documents (RFC 9457): every error an HTTP caller sees, made from the error's own class
and sentence.
"""

from __future__ import annotations

import logging
import re
from http import HTTPStatus
from typing import Any

import msgspec
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from projections.errors import InvalidRequest, QuotaExceeded, ThreadfoldError, Unauthorized

logger = logging.getLogger(__name__)
RETRY_AFTER = 1
"""Seconds a caller is asked to wait after a 503: healing and reconnecting take about that long when
all is well.
"""
_TYPE = "urn:threadfold:problem:"


class NotConnected(ThreadfoldError):
    """The gateway runs, but could not connect to Kafka yet; it keeps trying."""

    problem = 503


class Stopping(ThreadfoldError):
    """The gateway ends, and the request was not done in time."""

    problem = 503


def problem(status: int, name: str, detail: str, headers: dict[str, str] | None = None) -> Response:
    """A problem response. ``name`` is a class name like ``InvalidEvent``; it gives ``type`` (kebab
    case) and ``title``.
    """
    words = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).lower()
    body = {
        "type": _TYPE + words.replace(" ", "-"),
        "title": words.capitalize(),
        "status": status,
        "detail": detail,
    }
    headers = dict(headers or {})
    if status == HTTPStatus.SERVICE_UNAVAILABLE:
        headers.setdefault("Retry-After", str(RETRY_AFTER))
    return Response(msgspec.json.encode(body), status, headers, "application/problem+json")


def of_error(error: ThreadfoldError) -> Response:
    """The problem of one of threadfold's own errors; its message is shown as it is."""
    headers = {}
    if isinstance(error, Unauthorized):
        headers["WWW-Authenticate"] = 'Bearer realm="threadfold"'
    if isinstance(error, QuotaExceeded):
        headers["Retry-After"] = str(error.retry_after)
    if error.problem >= 500:
        logger.warning("%s: %s", type(error).__name__, error)
    return problem(error.problem, type(error).__name__, str(error), headers)


def cut_off() -> Response:
    """The problem of a request that was still under way when the gateway's time to end was over."""
    return of_error(
        Stopping(
            "the gateway stops, and this was not done in time: what it appends may be in, repeat it"
            " with the same ids"
        )
    )


def disconnected() -> Response:
    """The problem of a request that ended before its body did; nobody is there to read it."""
    return problem(400, "Disconnected", "the request ended before its body did")


def unforeseen(error: Exception) -> Response:
    """The problem of an error that was not foreseen: it says nothing of itself but its class."""
    return problem(
        500,
        "InternalError",
        f"an error that was not foreseen ({type(error).__name__}): the gateway's log has it",
    )


def install(app: FastAPI) -> None:
    """Make the application answer every error with a problem document; what was not foreseen is
    logged and says nothing of itself.
    """

    async def own(_: Request, error: Exception) -> Response:
        assert isinstance(error, ThreadfoldError)
        return of_error(error)

    async def http(_: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        phrase = HTTPStatus(error.status_code).phrase
        details = {
            404: "there is no such route: see /docs",
            405: "this route does not take that method: see /docs",
        }
        name = phrase.title().replace(" ", "")
        return problem(
            error.status_code,
            name,
            details.get(error.status_code, str(error.detail)),
            dict(error.headers or {}),
        )

    async def validation(_: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return of_error(InvalidRequest("; ".join(_parameter(item) for item in error.errors())))

    async def left(_: Request, error: Exception) -> Response:
        return disconnected()

    async def unknown(_: Request, error: Exception) -> Response:
        return unforeseen(error)

    app.add_exception_handler(ThreadfoldError, own)
    app.add_exception_handler(HTTPException, http)
    app.add_exception_handler(RequestValidationError, validation)
    app.add_exception_handler(ClientDisconnect, left)
    app.add_exception_handler(Exception, unknown)


def _parameter(item: dict[str, Any]) -> str:
    place, *names = item["loc"]
    return (
        f"{place} parameter {'.'.join(map(str, names))}:"
        f" {str(item['msg'])[:1].lower()}{str(item['msg'])[1:]}"
    )
