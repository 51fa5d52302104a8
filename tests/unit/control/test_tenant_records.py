"""What the control topic records of tenants and keys: what is read of old records, and what may be
set.
"""

from __future__ import annotations

import time

import msgspec
import pytest

from projections.errors import InvalidKey, InvalidQuota, InvalidSettings, UnusablePolicy
from streams.control.generations import candidate
from streams.control.state import Generation, State
from streams.settings.quotas import (
    ApiKey,
    Quota,
    Tenant,
    check_expiry,
    check_scopes,
    hash_key,
    read_quota,
    shown_key,
)
from streams.settings.settings import Settings
from threadfold.gateway.credentials import check_exposure


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"tenant/ghost", b'{"name":"plain","policy":{"min_messages":9}}'),
        (b"generation/7", b'{"number":1,"partitions":4}'),
    ],
)
def test_a_record_that_names_another_than_its_key_is_refused(key: bytes, value: bytes) -> None:
    state = State()
    state.put(b"tenant/plain", b'{"name":"plain","version":1}')
    state.put(b"generation/1", b'{"number":1,"partitions":4}')
    with pytest.raises(ValueError, match=r"the record of (ghost|7) is of"):
        state.put(key, value)
    assert list(state.tenants) == ["plain"]
    assert list(state.generations) == [1]


def test_records_of_the_first_release_are_still_read() -> None:
    state = State()
    state.put(
        b"tenant/acme",
        b'{"name":"acme","policy":{"min_messages":4},"next_policy":{"min_messages":5}}',
    )
    state.put(b"key/" + hash_key("k").encode(), b'{"tenant":"acme","scopes":["read","admin"]}')
    state.put(b"key/" + hash_key("l").encode(), b'{"tenant":"acme"}')
    assert state.tenants["acme"] == Tenant(
        "acme", {"min_messages": 4}, {"min_messages": 5}, Quota()
    )
    key = state.key_of("k")
    assert key is not None
    assert (key.tenant, key.scopes, key.expired(time.time())) == ("acme", ("read", "admin"), False)
    assert shown_key(hash_key("k"), key, 0.0)["created"] is None
    other = state.key_of("l")
    assert other is not None
    assert other.scopes == ("append", "read", "subscribe")


def test_a_key_in_a_list_shows_twelve_digits_of_its_hash_and_no_more() -> None:
    shown = shown_key(
        hash_key("k"), ApiKey("acme", name="ci", expires_at="2030-01-01T00:00:00Z"), 0.0
    )
    assert shown["id"] == hash_key("k")[:12]
    assert hash_key("k")[12:20] not in str(shown)
    assert shown["expired"] is False


def test_a_key_expires_at_its_moment() -> None:
    key = ApiKey("acme", expires_at="1970-01-01T00:01:00Z")
    assert not key.expired(59.9)
    assert key.expired(60.0)
    assert ApiKey("acme", expires_at="rubbish").expired(0.0), "what cannot be read opens nothing"


@pytest.mark.parametrize(
    ("text", "part"),
    [("tomorrow", "RFC 3339"), ("2030-01-01T00:00:00", "zone"), ("2001-01-01T00:00:00Z", "in the past"), (7, "RFC 3339"), ("9" * 99, "RFC 3339"),
     ("9999-12-31T23:59:59-12:00", "UTC")],
)  # fmt: skip
def test_an_expiry_that_cannot_be_is_refused(text: object, part: str) -> None:
    with pytest.raises(InvalidKey, match=part):
        check_expiry(text, time.time())
    assert check_expiry("2099-01-01T02:00:00+02:00", 0.0) == "2099-01-01T00:00:00Z"


def test_scopes_are_known_ones_named_once() -> None:
    assert check_scopes(["erase", "read", "read"]) == ("read", "erase")
    for wrong, part in (
        (["fly"], "fly is not a scope"),
        ([], "nothing"),
        ("read", "list"),
        ([["read"]], "not a scope"),
    ):
        with pytest.raises(InvalidKey, match=part):
            check_scopes(wrong)


@pytest.mark.parametrize(
    ("values", "part"),
    [({"speed": 1}, "'speed' is unknown"), ({"streams": 1.5}, "streams: expected a whole number"), ({"events_per_second": -1}, "0 "),
     ({"tokens_burst": 0}, "tokens_burst"), ({"requests_per_second": True}, "expected a number"), ([], "object"),
     ({"requests_per_second": float("inf")}, "number"), ({"requests_per_second": "9"}, "number")],
)  # fmt: skip
def test_a_quota_that_cannot_be_is_refused_by_name(values: object, part: str) -> None:
    with pytest.raises(InvalidQuota, match=part):
        read_quota(values)


def test_a_whole_number_may_be_written_with_a_fraction_of_nothing() -> None:
    streams = read_quota({"streams": 7.0}).streams
    assert streams == 7 and isinstance(streams, int)


def test_a_quota_changes_number_by_number_and_stands_over_the_default() -> None:
    first = read_quota({"requests_per_second": 5, "streams": 0})
    second = read_quota({"requests_per_second": None, "events_per_second": 7}, first)
    assert second == Quota(events_per_second=7, streams=0)
    assert second.over(Quota(requests_per_second=9, streams=3)) == Quota(
        requests_per_second=9, events_per_second=7, streams=0
    )
    assert msgspec.json.decode(msgspec.json.encode(second), type=Quota) == second


def test_the_policy_in_force_is_the_live_generations() -> None:
    state = State()
    state.generations, state.live = {1: Generation(1, 4, {}, {"acme": {"min_messages": 4}})}, 1
    assert state.policy_of(Tenant("acme", {"min_messages": 9})) == {"min_messages": 4}
    assert state.policy_of(Tenant("late", {"min_messages": 9})) == {"min_messages": 9}


def test_a_generation_that_was_live_is_retired() -> None:
    state = State()
    old, now, new = (
        Generation(n, 4, live_at="2026-01-01T00:00:00Z" if n == 2 else None) for n in (1, 2, 3)
    )
    state.generations, state.live = {1: old, 2: now, 3: new}, 2
    assert [state.stage_of(one) for one in (old, now, new)] == ["retired", "live", "ready"]
    state.live = 1
    assert [state.stage_of(one) for one in (old, now, new)] == ["live", "retired", "ready"]
    assert state.stage_of(Generation(4, 4, state="building")) == "building"


def test_a_tenant_is_encrypted_by_the_policy_in_force() -> None:
    state = State()
    assert not state.encrypted("acme")
    state.generations, state.live = {1: Generation(1, 4, {}, {"acme": {"encryption": True}})}, 1
    assert state.encrypted("acme") and not state.encrypted("other")


def test_a_policy_of_a_newer_release_is_its_tenants_trouble_alone() -> None:
    state = State()
    state.generations, state.live = {1: Generation(1, 4, {}, {"built": {"tomorrow": 1}})}, 1
    state.put(b"tenant/built", b'{"name":"built"}')
    state.put(b"tenant/newer", b'{"name":"newer","policy":{"tomorrow":1,"encryption":true}}')
    state.put(b"tenant/acme", b'{"name":"acme","policy":{"min_messages":4}}')
    rules = state.rules(state.live_generation)
    assert rules.for_conversation("acme", None).min_messages == 4
    assert rules.missing_callables() == []
    for tenant in ("newer", "built"):
        with pytest.raises(UnusablePolicy, match=rf"tenant {tenant} .*'tomorrow' is unknown"):
            rules.for_conversation(tenant, None)
        assert "'tomorrow' is unknown" in (state.policy_error(tenant) or "")
    assert (state.policy_error("acme"), state.policy_error("nobody")) == (None, None)
    assert [state.encrypted(name) for name in ("newer", "built", "acme")] == [True, False, False]
    with pytest.raises(UnusablePolicy, match="tenant built"):
        candidate(state, {"min_messages": 9})


@pytest.mark.parametrize(
    ("values", "part"),
    [({"auth": "maybe"}, "on or off"), ({"auth_tenant": "a b"}, "auth_tenant"), ({"jwt_keys": "f"}, "jwt_issuer"),
     ({"quota_streams": -1}, "streams"), ({"quota_events_burst": 0}, "events_burst")],
)  # fmt: skip
def test_settings_of_access_are_checked(values: dict[str, object], part: str) -> None:
    with pytest.raises(InvalidSettings, match=part):
        Settings.load(env={}, **values)


def test_without_auth_it_listens_on_loopback_only() -> None:
    for host in ("0.0.0.0", "10.0.0.1", "::", "gateway.example"):
        with pytest.raises(InvalidSettings, match="loopback only"):
            check_exposure(Settings.load(env={}, auth="off", gateway_host=host))
        check_exposure(Settings.load(env={}, gateway_host=host))
    for host in ("127.0.0.1", "127.1.2.3", "::1", "localhost"):
        check_exposure(Settings.load(env={}, auth="off", gateway_host=host))
