"""Where Redis is: the addresses that ``THREADFOLD_REDIS`` may hold, read and checked, and shown
without what is secret in them.

One server: ``redis://``, ``rediss://`` (TLS) or ``unix://``, as redis-py reads them. Sentinel:
``redis+sentinel://[user:password@]host:port,host:port/service[/db]``. A cluster:
``redis+cluster://[user:password@]host:port,host:port``, some of its nodes. With ``rediss+`` all of
it is TLS. User and password are those of the servers; what sentinels ask for goes into the query as
``sentinel_username`` and ``sentinel_password``. The rest of the query is redis-py's
(``ssl_ca_certs=…``).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from urllib.parse import parse_qs, quote, urlencode

from redis.asyncio.connection import parse_url

from projections.errors import InvalidSettings

VARIABLE = "THREADFOLD_REDIS"
_ONE = ("redis://", "rediss://", "unix://")
_MANY = re.compile(
    r"(rediss?)\+(sentinel|cluster)://(?:([^/?]*)@)?([^/?@]*)(/[^?]*)?(?:\?(.*))?", re.DOTALL
)
_NODE = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:\[\]/]+):([0-9]{1,5})")
_FORMS = (
    "redis://host:6379/0, redis+sentinel://host:26379,host2:26379/service or"
    " redis+cluster://host:6379,host2:6379 (rediss for TLS, or unix:///path)"
)


class Kind(Enum):
    """Who tells which server keeps a key."""

    ONE = "one"
    SENTINEL = "sentinel"
    CLUSTER = "cluster"


@dataclass(frozen=True, slots=True)
class Address:
    """An address that was read: ``nodes`` are ``host:port`` of sentinels or of some of a cluster's
    nodes, or the one server's URL.
    """

    kind: Kind
    nodes: tuple[str, ...]
    service: str = ""
    scheme: str = "redis"
    credentials: str = ""
    db: int = 0
    query: str = ""
    sentinel_credentials: str = ""

    def url_of(self, place: str) -> str:
        """What redis-py takes for one server at ``host:port``; for an address of one server it is
        that.
        """
        if self.kind is Kind.ONE:
            return place
        return f"{self.scheme}://{self.credentials}{place}/{self.db}{self.query}"

    def sentinel_url(self, place: str) -> str:
        """What redis-py takes for a sentinel at ``host:port``."""
        return f"{self.scheme}://{self.sentinel_credentials}{place}{self.query}"

    def __repr__(self) -> str:
        return f"Address({self.kind.value}, ...)"


def read_address(url: str) -> Address:
    """Read what ``THREADFOLD_REDIS`` holds; nothing is connected.

    Raises:
        InvalidSettings: it is none of the forms; the message does not hold user, password or query.
    """
    many = _MANY.fullmatch(url)
    if many is not None:
        return _many(url, *(part or "" for part in many.groups()))
    if not url.startswith(_ONE):
        raise InvalidSettings(f"{VARIABLE} is {shown(url)!r}: it must be a URL like {_FORMS}")
    path = url.partition("://")[2].partition("?")[0].rpartition("@")[2].partition("/")[2]
    try:
        parse_url(url)
    except ValueError:
        # Its text may hold a part of the password.
        raise InvalidSettings(
            f"{VARIABLE} is {shown(url)!r}: its port or its query is not valid; it must be like"
            f" {_FORMS}"
        ) from None
    if not url.startswith("unix://") and not re.fullmatch(r"[0-9]{0,5}", path):
        raise InvalidSettings(
            f"{VARIABLE} is {shown(url)!r}: the part after the host must be a database number,"
            " like /0"
        )
    return Address(Kind.ONE, (url,))


def _many(
    url: str, scheme: str, kind: str, credentials: str, hosts: str, path: str, query: str
) -> Address:
    if "@" in path or "@" in query:
        raise InvalidSettings(
            f"{VARIABLE}: a / ? or @ in user, password or query has to be percent-encoded, like %2F"
            " %3F %40"
        )
    nodes = tuple(part.strip() for part in hosts.split(",") if part.strip())
    for node in nodes:
        found = _NODE.fullmatch(node)
        if found is None or not 0 < int(found[2]) < 65536:
            raise InvalidSettings(
                f"{VARIABLE} has {node[:60]!r}: it must be host:port, several joined by commas"
            )
    if not nodes:
        raise InvalidSettings(f"{VARIABLE} is {shown(url)!r}: it names no host:port")
    service, _, db = path.strip("/").partition("/")
    if kind == "cluster" and path.strip("/") not in ("", "0"):
        raise InvalidSettings(
            f"{VARIABLE} is {shown(url)!r}: a cluster has only database 0, so nothing may follow"
            " the hosts"
        )
    if kind == "sentinel" and (not service or not re.fullmatch(r"[0-9]{0,5}", db)):
        raise InvalidSettings(
            f"{VARIABLE} is {shown(url)!r}: after the sentinels give the name of the service and"
            " optionally a database number, like redis+sentinel://host:26379/mymaster/0"
        )
    options = parse_qs(query)
    user, password = (options.pop(f"sentinel_{name}", [""])[0] for name in ("username", "password"))
    rest = f"?{urlencode(options, doseq=True)}" if options else ""
    address = Address(
        Kind(kind),
        nodes,
        service if kind == "sentinel" else "",
        scheme,
        f"{credentials}@" if credentials else "",
        int(db or 0) if kind == "sentinel" else 0,
        rest,
        f"{quote(user, safe='')}:{quote(password, safe='')}@" if user or password else "",
    )
    try:
        parse_url(address.url_of(nodes[0]))
    except ValueError:
        raise InvalidSettings(
            f"{VARIABLE} is {shown(url)!r}: its user, password or query is not valid"
        ) from None
    return address


def shown(url: str) -> str:
    """The address as messages may show it: without user, password and query, and not at length."""
    scheme, there, rest = url.rpartition("://")
    at, query = rest.rfind("@"), rest.find("?")
    # Where it is unclear which of the two belongs to a password, nothing is shown.
    place = "…" if 0 <= query < at else rest[at + 1 :].partition("?")[0]
    return f"{scheme}{there}{place}"[:120]
