"""A client's first message of a TLS handshake, before there is any TLS: whether it is whole.

TLS takes 70 KB for each connection and touches more, so it begins only with a client that means it.
"""

from __future__ import annotations

HANDSHAKE, MAJOR, HEADER, LARGEST_RECORD = 22, 3, 5, 1 << 14
"""The type of a handshake's record, the first byte of all versions, the bytes of a record's header,
of which the last two are the length of what follows, and the largest length (RFC 8446, 5.1).
"""
CLIENT_HELLO, HEAD = 1, 4
"""The type of a client's first message, and the bytes of a message's head, of which the last three
are the length of what follows (RFC 8446, 4).
"""
MOST = 16 << 10
"""Bytes within which a first message must be whole, its records' headers included. Usual ones have
300 to 2,000.
"""

RECORDS = 32
"""Records within which it must be whole: usual ones have one or two, and each takes time."""


class NoHello(Exception):
    """What came does not begin a handshake."""


class ClientHello:
    """Follows the first bytes of a client. Each record is looked at once."""

    def __init__(self) -> None:
        self._next = 0
        self._head = b""
        self._bytes = 0
        self._records = 0

    def is_whole(self, came: bytes) -> bool:
        """Whether the message is there; ``came`` is all that came until now.

        Raises:
            NoHello: it will never be.
        """
        while len(came) > self._next:
            length = _length(came[self._next : self._next + HEADER])
            end = self._next + HEADER + length
            if length == 0 or len(came) < end:
                break
            said = came[self._next + HEADER : end]
            self._next, self._bytes = end, self._bytes + len(said)
            self._records += 1
            self._head += said[: HEAD - len(self._head)]
            if self._head[0] != CLIENT_HELLO:
                raise NoHello
            if len(self._head) == HEAD and self._bytes >= HEAD + int.from_bytes(self._head[1:]):
                return True
            if self._records == RECORDS:
                raise NoHello
        if len(came) > MOST:
            raise NoHello
        return False


def _length(header: bytes) -> int:
    """The length of a record; 0: its header is not whole yet."""
    length = int.from_bytes(header[3:]) if len(header) == HEADER else 0
    if header[0] != HANDSHAKE or header[1:2] not in (b"", bytes([MAJOR])):
        raise NoHello
    if len(header) == HEADER and not 0 < length <= LARGEST_RECORD:
        raise NoHello
    return length
