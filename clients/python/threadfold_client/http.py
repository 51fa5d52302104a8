"""Calls over HTTP: one pool of connections that are kept alive."""

from __future__ import annotations

import os
import ssl
from collections.abc import AsyncIterator
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import httpx
import msgspec

from threadfold_client.calls import Call
from threadfold_client.errors import (
    MAYBE,
    ClientClosed,
    ClientError,
    Fault,
    Invalid,
    Unavailable,
    of_response,
    unusable,
)
from threadfold_client.sse import ServerSent, SseParser, StreamTooLong

CONNECT = 5.0
"""Seconds to connect, and to wait for a free connection of the pool."""
SILENCE = 45.0
"""Seconds without a byte after which a stream counts as broken: three heart-beats of 15 s."""
MAX_CONNECTIONS = 100


@cache
def _tls(file: str | None, folder: str | None) -> ssl.SSLContext:
    """What all clients of a process use to check certificates: to load the known authorities takes
    a twentieth of a second. The arguments are what httpx reads from the environment.
    """
    del file, folder
    return httpx.create_ssl_context()


def _check(url: object, key: object) -> None:
    """Raise :class:`Invalid` for an address or a key with which no call can be sent."""
    try:
        place = urlsplit(url if isinstance(url, str) else "")
        valid = place.scheme in ("http", "https") and bool(place.hostname) and place.port != 0
    except ValueError:  # also of a port that is too large
        valid = False
    if not valid:
        raise Invalid(f"url is {url!r}: expected the gateway's address, like http://localhost:8080")
    if key is not None and not (isinstance(key, str) and key.isascii() and key.isprintable()):
        raise Invalid("key has other characters than those of a key or token: check it")


class HttpTransport:
    """A gateway at ``url``, as the tenant of ``key``.

    Args:
        timeout: seconds an answer may take; a call that waits for the fold takes up to 10.
        transport: another way for httpx to send, like an ASGI application.
    """

    def __init__(
        self,
        url: str,
        key: str | None,
        *,
        timeout: float,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        _check(url, key)
        self.url = url.rstrip("/")
        headers = {
            "User-Agent": "threadfold-client",
            **({"Authorization": f"Bearer {key}"} if key else {}),
        }
        places = [os.environ.get(name) for name in ("SSL_CERT_FILE", "SSL_CERT_DIR")]
        self._http = httpx.AsyncClient(
            verify=_tls(*places),
            headers=headers,
            timeout=httpx.Timeout(timeout, connect=CONNECT, pool=CONNECT),
            limits=httpx.Limits(max_connections=None, max_keepalive_connections=MAX_CONNECTIONS),
            transport=transport,
            follow_redirects=False,
        )
        self._closed = False

    async def request(self, call: Call) -> bytes:
        """One request; raises the :class:`ClientError` its problem document means."""
        request = self._request(call)
        try:
            response = await self._http.send(request)
        except httpx.LocalProtocolError as error:
            raise unsendable(call, error) from None
        except httpx.HTTPError as error:
            raise self._broken(call, error) from None
        if 300 <= response.status_code < 400:
            raise unusable(call.method, f"is {response.status_code}, as of another server")
        if response.status_code >= 400:
            raise _refused(call, response)
        return response.content

    async def stream(self, call: Call) -> AsyncIterator[ServerSent]:
        """The events of one connection, until it ends; raises :class:`Unavailable` when it
        breaks.
        """
        parser = SseParser()
        request = self._request(call, accept="text/event-stream")
        request.extensions["timeout"] = httpx.Timeout(SILENCE, connect=CONNECT).as_dict()
        try:
            response = await self._http.send(request, stream=True)
            try:
                if response.status_code >= 300:
                    await response.aread()
                    raise _refused(call, response)
                kind = response.headers.get("content-type", "")
                if not kind.startswith("text/event-stream"):
                    raise Fault(
                        f"{self.url}{call.path} answered {kind or 'no type'} instead of a stream of"
                        " events",
                        status=response.status_code,
                    )
                async for chunk in response.aiter_bytes():
                    before = parser.last_id
                    for event in parser.feed(chunk):
                        yield event
                    if parser.last_id is not None and parser.last_id != before:
                        # A block of nothing but an id: where to resume before the first event.
                        yield ServerSent("", parser.last_id, "")
            finally:
                await response.aclose()
        except httpx.LocalProtocolError as error:
            raise unsendable(call, error) from None
        except httpx.HTTPError as error:
            raise self._broken(call, error) from None
        except StreamTooLong as error:
            raise Fault(str(error)) from None

    async def close(self) -> None:
        """Close all connections."""
        self._closed = True
        await self._http.aclose()

    def _request(self, call: Call, accept: str = "application/json") -> httpx.Request:
        if self._closed:
            raise ClientClosed("the client is closed: make another one")
        headers: dict[str, str] = {"Accept": accept, **call.headers}
        content = None
        if call.body is not None:
            content, headers["Content-Type"] = encoded(call.body), "application/json"
        try:
            return self._http.build_request(
                call.method,
                f"{self.url}/v1{call.path}",
                params=dict(call.query),
                content=content,
                headers=headers,
            )
        except (httpx.InvalidURL, UnicodeEncodeError, ValueError) as error:
            raise unsendable(call, error) from None

    def _broken(self, call: Call, error: httpx.HTTPError) -> ClientError:
        if (refused := _of_certificate(error)) is not None:
            return Fault(f"{self.url}: its certificate is not accepted: {refused.verify_message}")
        # A read does nothing, and without a connection it is certain that nothing was done.
        unknown = call.method != "GET" and not isinstance(
            error, httpx.ConnectError | httpx.ConnectTimeout | httpx.PoolTimeout
        )
        what = (
            "did not answer in time"
            if isinstance(error, httpx.TimeoutException)
            else "could not be reached or broke off"
        )
        words = f" ({error})" if str(error) else f" ({type(error).__name__})"
        return Unavailable(f"{self.url} {what}{words}{MAYBE if unknown else ''}", unknown=unknown)


def _of_certificate(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """The failed check of the server's certificate that is behind an error, None if none is."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def _refused(call: Call, response: httpx.Response) -> ClientError:
    error = of_response(response.status_code, response.content, response.headers.get("retry-after"))
    error.unknown = error.unknown and call.method != "GET"
    return error


def unsendable(call: Call, error: Exception) -> Invalid:
    """The error of a call that no attempt can send, like a header with a line break."""
    return Invalid(f"{call.method} {call.path} cannot be sent: {error}")


def encoded(body: Any) -> bytes:
    """A body as JSON; raises :class:`Invalid` if it cannot be written."""
    try:
        return msgspec.json.encode(body)
    except (TypeError, OverflowError, UnicodeEncodeError, RecursionError) as error:
        raise Invalid(f"the body cannot be written as JSON: {error}") from None
