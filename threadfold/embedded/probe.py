"""Ask a server over its socket whether it really answers; raw bytes, because clients retry and log
where a probe must not.
"""

from __future__ import annotations

import socket
import struct

TIMEOUT = 2.0  # seconds for one question

# Kafka's Metadata request in its last version before compact encoding; Kafka 2.1 to 4.x know it.
_METADATA, _VERSION = 3, 7
_SASL_HANDSHAKE, _SASL_AUTHENTICATE = (17, 1), (36, 0)


def kafka_cluster(host: str, port: int, login: tuple[str, str] | None = None) -> str | None:
    """Return the cluster id if the Kafka at ``host:port`` has a live broker, None if it does not
    (yet) answer so. ``login``: user and password, for SASL/PLAIN.

    Asks for the metadata of no topic (https://kafka.apache.org/protocol#The_Messages_Metadata):
    brokers are listed in it only once the controller has let them in, which is later than the
    port's opening.
    """
    try:
        with socket.create_connection((host, port), TIMEOUT) as connection:
            connection.settimeout(TIMEOUT)
            if login is not None:
                token = b"\0" + b"\0".join(part.encode() for part in login)
                _ask(connection, *_SASL_HANDSHAKE, struct.pack(">h5s", 5, b"PLAIN"))
                _ask(connection, *_SASL_AUTHENTICATE, struct.pack(">i", len(token)) + token)
            return _cluster_id(_ask(connection, _METADATA, _VERSION, struct.pack(">i?", 0, False)))
    except (OSError, struct.error, UnicodeDecodeError):
        return None  # not listening, not ready, or not Kafka: in each case it does not answer


def _ask(connection: socket.socket, api: int, version: int, body: bytes) -> bytes:
    """The answer to one request, from its correlation id on. A login that is refused closes the
    connection, so that the next request fails.
    """
    request = struct.pack(">hhih", api, version, 1, -1) + body
    connection.sendall(struct.pack(">i", len(request)) + request)
    (size,) = struct.unpack(">i", _read(connection, 4))
    return _read(connection, min(size, 1 << 20))


def _cluster_id(answer: bytes) -> str | None:
    # Correlation id, throttle time in ms, number of brokers.
    _, _, brokers = struct.unpack_from(">iii", answer)
    at = 12
    for _ in range(brokers):
        at += 4  # node id
        at = _after_string(answer, at) + 4  # host, port
        at = _after_string(answer, at)  # rack
    (length,) = struct.unpack_from(">h", answer, at)
    return answer[at + 2 : at + 2 + length].decode() if brokers > 0 and length > 0 else None


def _after_string(answer: bytes, at: int) -> int:
    (length,) = struct.unpack_from(">h", answer, at)
    return at + 2 + max(0, int(length))


def redis_pid(host: str, port: int, password: str = "") -> int | None:
    """Return the process id of the Redis at ``host:port`` if it answers PING with PONG, None if it
    does not (yet).

    A Redis that still loads its data answers LOADING, which is None here.
    """
    try:
        with socket.create_connection((host, port), TIMEOUT) as connection:
            connection.settimeout(TIMEOUT)
            if password:
                connection.sendall(f"AUTH {password}\r\n".encode())
                if _line(connection) != b"+OK":
                    return None
            connection.sendall(b"PING\r\n")
            if _read(connection, 7) != b"+PONG\r\n":
                return None
            connection.sendall(b"INFO server\r\n")
            size = int(_line(connection)[1:])
            for line in _read(connection, size).splitlines():
                if line.startswith(b"process_id:"):
                    return int(line.partition(b":")[2])
    except (OSError, ValueError):
        return None
    return None


def _read(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = connection.recv(size - len(parts))
        if not part:
            raise ConnectionError("the connection ended within an answer")
        parts += part
    return bytes(parts)


def _line(connection: socket.socket) -> bytes:
    line = bytearray()
    while not line.endswith(b"\r\n"):
        line += _read(connection, 1)
    return bytes(line[:-2])
