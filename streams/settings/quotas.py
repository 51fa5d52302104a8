"""What the control topic records of tenants: their policies and quotas, and the keys that open the
gateway to them.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any

import msgspec

from projections.errors import InvalidKey, InvalidQuota
from projections.events.times import rfc3339
from projections.names import one_line

SCOPES = ("append", "read", "subscribe", "tokens", "admin", "erase")
DEFAULT_SCOPES = ("append", "read", "subscribe")
RATES = ("requests_per_second", "events_per_second", "tokens_per_minute", "rollbacks_per_minute")
BURSTS = ("requests_burst", "events_burst", "tokens_burst", "rollbacks_burst")
COUNTS = ("concurrent_requests", "streams", "body_bytes")
DAILY = ("summary_tokens_per_day", "summary_cost_per_day")
WEIGHT = "summary_weight"
_MOST = 1e12


class Quota(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """What a tenant may use. None: what the settings ``quota_*`` say; 0: no limit.

    Rates are requests and events per second, tokens and rollbacks per minute. A burst is the
    seconds of its rate that may be used at once after a pause. Rates hold over all gateways
    together (``threadfold.quotas``), ``concurrent_requests`` and ``streams`` in each. The body of
    one request may have ``body_bytes``.

    ``summary_tokens_per_day`` and ``summary_cost_per_day`` are what summaries by models may use in
    a day of UTC, over all workers (``streams.compaction.summarizers.budgets``). Of several tenants
    that wait for summaries, one of ``summary_weight`` 2 is served twice as often as one of 1; a
    weight is never 0.
    """

    requests_per_second: float | None = None
    events_per_second: float | None = None
    tokens_per_minute: float | None = None
    requests_burst: float | None = None
    events_burst: float | None = None
    tokens_burst: float | None = None
    concurrent_requests: int | None = None
    streams: int | None = None
    body_bytes: int | None = None
    rollbacks_per_minute: float | None = None
    rollbacks_burst: float | None = None
    summary_tokens_per_day: float | None = None
    summary_cost_per_day: float | None = None
    summary_weight: float | None = None

    def over(self, wider: Quota) -> Quota:
        """This quota, with the wider one's values where it has none."""
        mine, theirs = msgspec.structs.asdict(self), msgspec.structs.asdict(wider)
        return Quota(
            **{name: theirs[name] if value is None else value for name, value in mine.items()}
        )


NO_QUOTA = Quota()


def bounds_of(name: str) -> tuple[float, float]:
    """The least and the most that a quota's number may be."""
    if name in BURSTS:
        return 0.1, 86_400
    return (0.01, 100) if name == WEIGHT else (0, _MOST)


def read_quota(values: object, onto: Quota = NO_QUOTA) -> Quota:
    """A checked quota: ``values`` (names to numbers, null takes a name back to the default) over
    ``onto``.

    Raises:
        InvalidQuota: not an object, or a name or number that cannot be; the message names it.
    """
    if not isinstance(values, Mapping):
        raise InvalidQuota("quota: expected an object of names and numbers")
    for name, value in values.items():
        if name not in Quota.__struct_fields__:
            raise InvalidQuota(
                f"quota {str(name)[:60]!r} is unknown: the quotas are"
                f" {', '.join(Quota.__struct_fields__)}"
            )
        if value is None:
            continue
        whole = name in COUNTS
        if (
            isinstance(value, bool)
            or not isinstance(value, int | float)
            or not math.isfinite(value)
            or (whole and value != int(value))
        ):
            raise InvalidQuota(
                f"quota {name}: expected {'a whole number' if whole else 'a number'} or null"
            )
        least, most = bounds_of(name)
        if not least <= value <= most:
            raise InvalidQuota(
                f"quota {name} is {value}: it must be {f'{least:g}' if least else '0 (no limit)'}"
                f" to {most:g}"
            )
    # As it will be read back: rates are fractions. To JSON Schema 1.0 is a whole number.
    numbers = {
        name: value if value is None else int(value) if name in COUNTS else float(value)
        for name, value in values.items()
    }
    return msgspec.structs.replace(onto, **numbers)


class Tenant(msgspec.Struct, omit_defaults=True):
    """A tenant. ``next_policy`` waits for the next generation; ``policy`` is what it was first
    recorded with.

    ``version`` counts its records: of two records with the same version the first counts.
    """

    name: str
    policy: dict[str, Any] = {}
    next_policy: dict[str, Any] | None = None
    quota: Quota = NO_QUOTA
    version: int = 0

    def after(self, known: Tenant | None) -> Tenant:
        """This tenant as the record that comes next after ``known``."""
        return msgspec.structs.replace(self, version=1 if known is None else known.version + 1)


class ApiKey(msgspec.Struct, omit_defaults=True):
    """What a key opens; the key itself is stored nowhere, only its SHA-256. Times are RFC 3339; ""
    in records of the first release.
    """

    tenant: str
    scopes: tuple[str, ...] = DEFAULT_SCOPES
    name: str = ""
    created: str = ""
    expires_at: str = ""

    def expired(self, now: float) -> bool:
        """Whether it opens nothing any more at that Unix time."""
        return bool(self.expires_at) and now >= moment(self.expires_at)


class TokenKeys(msgspec.Struct):
    """The public keys (JWK) of the tokens that a tenant signs for its end users."""

    keys: list[dict[str, Any]]


def hash_key(key: str) -> str:
    """An API key as the control topic stores it (keys are 256 random bits, so a plain SHA-256
    cannot be searched).
    """
    return hashlib.sha256(key.encode("utf-8", "surrogatepass")).hexdigest()


def key_id(hashed: str) -> str:
    """What a key is called in lists: the first 12 digits of its hash."""
    return hashed[:12]


def shown_key(hashed: str, key: ApiKey, now: float) -> dict[str, Any]:
    """A key as lists show it: id, name, scopes, when it was made and ends, and whether it has
    ended; nothing that opens anything.
    """
    return {
        "id": key_id(hashed),
        "name": key.name or None,
        "scopes": list(key.scopes),
        "created": key.created or None,
        "expires_at": key.expires_at or None,
        "expired": key.expired(now),
    }


@lru_cache(maxsize=4096)
def moment(text: str) -> float:
    """The Unix time of an RFC 3339 time; what is not one never comes (such a record was not written
    by us).
    """
    try:
        return datetime.fromisoformat(text).timestamp()
    except ValueError:
        return -math.inf


def check_scopes(scopes: object) -> tuple[str, ...]:
    """The scopes without repeats, in their usual order.

    Raises:
        InvalidKey: none, not a list, or one that is unknown; the message names it.
    """
    if isinstance(scopes, str) or not isinstance(scopes, Sequence):
        raise InvalidKey(f"scopes: expected a list of {', '.join(SCOPES)}")
    unknown = [one_line(scope) for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        shown = ", ".join(unknown[:5]) or "nothing"
        raise InvalidKey(f"{shown} is not a scope: the scopes are {', '.join(SCOPES)}")
    return tuple(scope for scope in SCOPES if scope in scopes)


def check_expiry(text: object, now: float) -> str:
    """The time as RFC 3339 in UTC; "" for None, which is never.

    Raises:
        InvalidKey: it is no such time, or one that has passed.
    """
    if text is None:
        return ""
    found = None
    if isinstance(text, str) and len(text) <= 64:
        try:
            found = datetime.fromisoformat(text)
        except ValueError:
            found = None
    if found is None or found.tzinfo is None:
        raise InvalidKey(
            f"expires_at is {str(text)[:60]!r}: expected an RFC 3339 time with its zone, like"
            " 2030-01-31T00:00:00Z"
        )
    try:
        past = found.timestamp() <= now
        shown = rfc3339(found)
    except (OverflowError, ValueError):
        raise InvalidKey(f"expires_at is {text!r}: this time does not exist in UTC") from None
    if past:
        raise InvalidKey(f"expires_at is {text}: this time is in the past")
    return shown


def check_key_name(name: object) -> str:
    """The name, "" for None; raises InvalidKey for what is not 1 to 100 printable characters."""
    if name is None:
        return ""
    if not isinstance(name, str) or not 1 <= len(name) <= 100 or not name.isprintable():
        raise InvalidKey("name of the key: expected 1 to 100 printable characters")
    return name
