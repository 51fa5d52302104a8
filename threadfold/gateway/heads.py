"""Heads of requests: how large one may be, and what is wrong with one that came whole."""

from __future__ import annotations

from collections.abc import Iterable

MAX_HEAD = 64 << 10
"""At most so many bytes of a head, or of trailers and chunk extensions. A head that comes whole in
one read of the socket (256 KiB at most) is accepted.
"""
MAX_HEADERS = 256
MAX_ESCAPES = 8_192
MAX_PARAMETERS = 256
"""Escapes (``%41``) and parameters of an address: reading them costs far more than their bytes."""


def fault_of_head(
    version: str, headers: Iterable[tuple[bytes, bytes]], url: bytes
) -> tuple[int, str] | None:
    """The status and the words to refuse a request with, or None.

    Args: ``headers`` have their names in lower case; ``version`` of HTTP is ``1.0`` or ``1.1``.
    """
    hosts = sum(name == b"host" for name, _ in headers)
    if hosts > 1 or (not hosts and version == "1.1"):
        # RFC 9112, 3.2: two servers on the way could each go by another one.
        return 400, f"the request has {hosts} Host headers: it needs one"
    escapes, parameters = url.count(b"%"), url.count(b"&")
    if len(url) >= MAX_HEAD or escapes > MAX_ESCAPES or parameters > MAX_PARAMETERS:
        most = f"{MAX_HEAD} bytes, {MAX_ESCAPES} escapes or {MAX_PARAMETERS} parameters"
        return 414, f"the address has over {most}"
    return None
