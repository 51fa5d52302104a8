"""Heads of requests: how large one may be and how long it may take, and what is wrong with one that
came whole.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MAX_HEAD = 64 << 10
"""At most so many bytes of a head, or of trailers and chunk extensions; up to a piece more that
comes with them (``threadfold.gateway.arrivals``) is accepted.
"""
MAX_HEADERS = 256
MAX_ESCAPES = 8_192
MAX_PARAMETERS = 256
"""Escapes (``%41``) and parameters of an address: reading them costs far more than their bytes."""
AT_MOST_ONE = (b"origin", b"content-type", b"idempotency-key", b"fencing-token", b"if-match")
"""Headers that come once or not at all. The parser refuses a second ``Content-Length``."""
HEAD_SECONDS = 30.0
"""Seconds from the start of a connection, or the first byte of a head, to the end of the head."""
REFUSED_SECONDS = 5.0
"""The same, for a connection there is no room for."""
REST_OF_LINE = 100
"""Bytes before a request's address, at most."""
_ABSOLUTE = re.compile(rb"(?P<scheme>[^:/?#]*)://(?P<authority>[^/?#]*)")
LONG_ADDRESS = (
    414,
    f"the address has over {MAX_HEAD} bytes, {MAX_ESCAPES} escapes or {MAX_PARAMETERS} parameters",
)


def fault_of_head(
    version: str, headers: Iterable[tuple[bytes, bytes]], url: bytes
) -> tuple[int, str] | None:
    """The status and the words to refuse a request with, or None.

    Args: ``headers`` have their names in lower case; ``version`` of HTTP is ``1.0`` or ``1.1``.
    """
    names = [name for name, _ in headers]
    hosts = names.count(b"host")
    if hosts > 1 or (not hosts and version == "1.1"):
        # RFC 9112, 3.2: two servers on the way could each go by another one.
        return 400, f"the request has {hosts} Host headers: it needs one"
    for once in AT_MOST_ONE:
        if (times := names.count(once)) > 1:
            # Who may call is decided by them (``threadfold.gateway.origins``), or what is done.
            shown = once.decode().title()
            return 400, f"the request has {times} {shown} headers: send at most one"
    escapes, parameters = url.count(b"%"), url.count(b"&")
    if len(url) >= MAX_HEAD or escapes > MAX_ESCAPES or parameters > MAX_PARAMETERS:
        return LONG_ADDRESS
    return fault_of_coding(version, headers)


def fault_of_target(method: bytes, url: bytes) -> tuple[int, str] | None:
    """The status and the words to refuse a request with whose address is no path and names no
    server that may be meant, or None.
    """
    if url == b"*" and method != b"OPTIONS":
        return 400, "the address * is for the method OPTIONS alone: send a path"
    absolute = _ABSOLUTE.match(url)
    if absolute is None:
        return None
    if absolute["scheme"].lower() not in (b"http", b"https"):
        return 400, "the address is of another scheme than http and https: send a path"
    if not absolute["authority"] or b"@" in absolute["authority"]:
        # RFC 9110, 4.2.4: what stands before the @ only looks like the server.
        return 400, "the address needs a host, with no user before it: send a path"
    return None


def in_origin_form(
    url: bytes, headers: Sequence[tuple[bytes, bytes]]
) -> tuple[bytes, Sequence[tuple[bytes, bytes]]]:
    """The address from its path on, and the headers with the host that is meant: that of an address
    in absolute form (``GET http://host/path``), whatever ``Host`` says (RFC 9112, 3.2.2).
    """
    absolute = _ABSOLUTE.match(url)
    if absolute is None:
        return url, headers
    rest = url[absolute.end() :]
    others = [header for header in headers if header[0] != b"host"]
    return (
        rest if rest.startswith(b"/") else b"/" + rest,
        [(b"host", absolute["authority"]), *others],
    )


def fault_of_length(url: bytes) -> tuple[int, str]:
    """The status and the words to refuse a head with that is too long, and may not have ended.

    Args: ``url`` is what has come of the request's address.
    """
    if len(url) > MAX_HEAD - REST_OF_LINE:
        return LONG_ADDRESS
    return 431, f"the request's head is over the limit of {MAX_HEAD} bytes"


def fault_of_coding(version: str, headers: Iterable[tuple[bytes, bytes]]) -> tuple[int, str] | None:
    """The status and the words to refuse a request with whose body is in a transfer coding that
    nobody here decodes, or that its version of HTTP has not, or None.
    """
    for name, value in headers:
        if name != b"transfer-encoding":
            continue
        if version == "1.0":
            # RFC 9112, 6.1: where a server on the way does not know it, the body ends elsewhere.
            return 400, "a request of HTTP/1.0 has no transfer coding: send Content-Length"
        if value.strip().lower() != b"chunked":
            shown = value[:40].decode("latin-1")
            return 501, f"transfer coding {shown!r} is not known: the only one is chunked"
    return None


def announced_length(headers: Iterable[tuple[bytes, bytes]]) -> int:
    """The bytes that a request's body is announced with; 0 where they are not."""
    value = next((value for name, value in headers if name == b"content-length"), b"0")
    return int(value) if value.isdigit() and len(value) < 16 else 0


def without_upgrade(
    method: bytes, url: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]
) -> bytes:
    """The head of a request that asks for an upgrade, without that."""
    lines = [
        b"%s %s HTTP/%s" % (method, url, version.encode()),
        *(b"%s: %s" % header for header in headers if header[0] != b"upgrade"),
    ]
    return b"\r\n".join([*lines, b"", b""])
