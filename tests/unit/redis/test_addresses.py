"""Addresses of Redis: what THREADFOLD_REDIS may hold, what it must not show, and over which masters
partitions spread.
"""

from __future__ import annotations

from collections import Counter

import pytest
from redis.crc import key_slot

from projections.errors import InvalidSettings
from projections.redis.address import Address, Kind, read_address, shown
from streams.settings.settings import Settings
from tests.support.redis_cluster import RANGES


@pytest.mark.parametrize(
    "url",
    [
        "redis://h:6379/0",
        "rediss://u:p@h:6380/3?ssl_cert_reqs=none",
        "unix:///run/r.sock?db=2",
        "redis://[::1]:7/0",
    ],
)
def test_one_server_is_what_redis_py_takes(url: str) -> None:
    address = read_address(url)
    assert address == Address(Kind.ONE, (url,)) and address.url_of(url) == url


def test_sentinels_and_clusters_are_read_with_everything_that_belongs_to_them() -> None:
    one = read_address(
        "redis+sentinel://user:p%40ss@a:1,b:2,[::1]:3/main/4?socket_keepalive=yes&sentinel_password=x%2Fy"
    )
    assert (one.kind, one.nodes, one.service, one.db) == (
        Kind.SENTINEL,
        ("a:1", "b:2", "[::1]:3"),
        "main",
        4,
    )
    assert one.url_of("m:9") == "redis://user:p%40ss@m:9/4?socket_keepalive=yes"
    assert one.sentinel_url("a:1") == "redis://:x%2Fy@a:1?socket_keepalive=yes"
    assert read_address("redis+sentinel://a:1/main").db == 0
    many = read_address("rediss+cluster://a:1, b:2?ssl_ca_certs=/etc/ca.pem")
    assert (many.kind, many.nodes, many.url_of("c:3")) == (
        Kind.CLUSTER,
        ("a:1", "b:2"),
        "rediss://c:3/0?ssl_ca_certs=%2Fetc%2Fca.pem",
    )


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("http://u:secret@h:1", "must be a URL like"),
        ("redis://u:secret@h:port/0", "its port or its query is not valid"),
        ("redis://u:secret@h:1/zero", "a database number"),
        ("redis://u:secret@h:1/0?socket_timeout=soon", "query is not valid"),
        ("redis+sentinel://u:secret@h:1", "give the name of the service"),
        ("redis+sentinel://u:secret@h:1/main/zero", "a database number"),
        ("redis+sentinel://u:secret@h/main", "'h': it must be host:port"),
        ("redis+sentinel://u:secret@h:99999/main", "'h:99999': it must be host:port"),
        ("redis+cluster://u:secret@", "names no host:port"),
        ("redis+cluster://u:secret@h:1/2", "only database 0"),
        ("redis+cluster://u:se/secret@h:1", "percent-encoded"),
        ("redis+cluster://u:se?secret@h:1", "percent-encoded"),
        ("redis+cluster://u:secret@h:1?socket_timeout=soon", "query is not valid"),
        ("redis+nothing://u:secret@h:1", "must be a URL like"),
    ],
)
def test_what_is_no_address_is_one_sentence_without_the_password(url: str, said: str) -> None:
    with pytest.raises(InvalidSettings, match="THREADFOLD_REDIS") as raised:
        Settings.load(env={}, kafka="h:1", redis=url).require()
    assert said in str(raised.value)
    assert "secret" not in str(raised.value) and "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("url", "public"),
    [
        ("redis://u:secret@h:1/0?password=secret", "redis://h:1/0"),
        ("redis://u:se@cret@h:1/0", "redis://h:1/0"),
        ("redis://u:se?secret@h:1/0", "redis://…"),
        ("redis://h:1/0?password=a@secret", "redis://…"),
        ("redis+cluster://u:secret@a:1,b:2", "redis+cluster://a:1,b:2"),
        ("u:secret@foo", "foo"),
    ],
)
def test_what_is_shown_of_an_address_holds_no_secret(url: str, public: str) -> None:
    assert shown(url) == public


def test_partitions_spread_over_the_masters_of_a_cluster() -> None:
    """The slot of a tag is its CRC16: sixteen partitions land on three masters about as evenly as
    chance has it, in every generation.
    """
    for generation in range(1, 101):
        slots = [
            key_slot(f"threadfold:{{{generation}:{partition}}}:state".encode())
            for partition in range(16)
        ]
        assert slots == [
            key_slot(f"{generation}:{partition}".encode()) for partition in range(16)
        ], "the tag alone decides"
        shares = Counter(
            next(i for i, (first, last) in enumerate(RANGES) if first <= slot <= last)
            for slot in slots
        )
        assert len(shares) == 3 and min(shares.values()) >= 2 and max(shares.values()) <= 10, (
            generation,
            shares,
        )
    many = Counter(
        next(
            i
            for i, (first, last) in enumerate(RANGES)
            if first <= key_slot(f"1:{partition}".encode()) <= last
        )
        for partition in range(256)
    )
    assert max(many.values()) <= 1.25 * 256 / 3
