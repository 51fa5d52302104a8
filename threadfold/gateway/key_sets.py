"""The public keys of signed tokens: a JWKS document from a file or a URL. It is cached, and fetched
again if it lacks a key that a token names, or a key did not sign what names it.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import msgspec
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from projections.errors import InvalidSettings, KeySetUnavailable
from projections.names import quoted
from streams.runtime.tasks import end_tasks

logger = logging.getLogger(__name__)
REFETCH = 10.0
"""At least so many seconds between two fetches, whichever keys tokens name."""
FRESH = 600.0
"""Seconds after which the set is fetched again in any case, so that a withdrawn key stops working.
"""
TIMEOUT = 5.0
MAX_BYTES = 1 << 20
"""At most so many seconds for one fetch, and so many bytes of a document."""
_KINDS = frozenset({"RSA", "EC", "OKP"})
_SECRET = frozenset({"d", "p", "q", "dp", "dq", "qi"})
"""The fields of private keys."""


def is_url(source: str) -> bool:
    """Whether a source is a URL; else it is the path of a file."""
    return source.startswith(("http://", "https://"))


def check_source(source: str) -> None:
    """Check that a source's file exists. A URL is not checked: it may be away for a while.

    Raises:
        InvalidSettings: there is no such file.
    """
    if source and not is_url(source) and not Path(source).is_file():
        raise InvalidSettings(
            f"setting 'jwt_keys': there is no file {source}: give the path of a JWKS document, or"
            " its URL"
        )


class SigningKey(NamedTuple):
    """A public key: its kind (RSA, EC, OKP), its algorithm if the set names one, the key itself,
    and its entry of the set.
    """

    kind: str
    algorithm: str | None
    key: Any
    entry: dict[str, Any]


class KeySet:
    """The public keys of one source, by key id. For one event loop; there is one fetch at a time.

    If a set cannot be fetched again, the last one stays in use. One without keys withdraws all.
    """

    def __init__(self, source: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Args: ``source`` is the path of a file, or an ``http(s)://`` URL."""
        self.source = source
        self.version = 0
        """It grows with each set that differs from the previous one."""
        self._clock = clock
        self._keys: dict[str | None, list[SigningKey]] = {}
        self._raw: bytes | None = None
        self._fetched = self._tried = float("-inf")
        self._failure = ""
        self._lock = asyncio.Lock()
        self._background: asyncio.Task[None] | None = None

    async def find(self, kid: str | None) -> list[SigningKey]:
        """The keys of an id; all keys for None; an empty list if the source has none.

        Raises:
            KeySetUnavailable: the key is not known, and the source cannot be fetched now.
        """
        found = self._known(kid)
        if found:
            self.keep_fresh()
            return found
        async with self._lock:
            found = self._known(kid)
            if not found and self._may_fetch():
                await self._fetch()
                found = self._known(kid)
        if not found and self._failure:
            raise KeySetUnavailable(f"the key set {self.source} cannot be fetched: {self._failure}")
        return found

    def at_hand(self, kid: str | None) -> list[SigningKey] | None:
        """What :meth:`find` returns, or an empty list where it raises; None if it has to wait for a
        fetch.
        """
        found = self._known(kid)
        waits = not found and (self._lock.locked() or self._may_fetch())
        return None if waits else found

    async def renew(self, version: int) -> bool:
        """Fetch the set again if it is still the one of ``version`` and the last try is long enough
        ago; returns whether it is another one now.
        """
        async with self._lock:
            if self.version == version and self._may_fetch():
                await self._fetch()
        return self.version != version

    def has(self, key: SigningKey) -> bool:
        """Whether a key is still in the set, as far as is known."""
        return any(one.entry == key.entry for keys in self._keys.values() for one in keys)

    def keep_fresh(self) -> None:
        """Fetch the set again in the background if it is old. Nobody waits for it."""
        if self._clock() - max(self._fetched, self._tried) > FRESH and self._background is None:
            self._background = asyncio.create_task(self._refresh(), name="key-set")

    async def close(self) -> None:
        """Cancel a fetch that is under way."""
        await end_tasks([self._background])

    def _may_fetch(self) -> bool:
        """Whether the last try is long enough ago to look for an unknown key."""
        return self._clock() - self._tried >= REFETCH

    def _known(self, kid: str | None) -> list[SigningKey]:
        if kid is None:
            return [key for keys in self._keys.values() for key in keys]
        return self._keys.get(kid, [])

    async def _refresh(self) -> None:
        try:
            async with self._lock:
                await self._fetch()
        finally:
            self._background = None

    async def _fetch(self) -> None:
        self._tried = self._clock()
        try:
            async with asyncio.timeout(TIMEOUT):
                raw = await (
                    self._download() if is_url(self.source) else asyncio.to_thread(self._read)
                )
            keys = _keys_of(raw) if raw != self._raw else self._keys
            if not keys and self._raw is None:
                raise ValueError("it has no public key (RSA, EC or OKP) for signatures")
        except (aiohttp.ClientError, OSError, ValueError, RecursionError) as error:
            self._failure = _reason(error)
            logger.warning("the key set %s cannot be fetched: %s", self.source, self._failure)
            return
        if raw != self._raw:
            self.version += 1
            if not keys:
                logger.warning("the key set %s has no key any more: no token is valid", self.source)
        self._keys, self._raw, self._failure, self._fetched = keys, raw, "", self._clock()

    async def _download(self) -> bytes:
        async with (
            aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=TIMEOUT)) as session,
            session.get(
                self.source, allow_redirects=False, headers={"Accept": "application/json"}
            ) as response,
        ):
            if response.status != 200:
                raise ValueError(f"it answered {response.status}")
            raw = bytearray()
            async for chunk in response.content.iter_chunked(1 << 16):
                raw += chunk
                if len(raw) > MAX_BYTES:
                    raise ValueError(f"it is over {MAX_BYTES} bytes")
            return bytes(raw)

    def _read(self) -> bytes:
        with Path(self.source).open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise ValueError(f"it is over {MAX_BYTES} bytes")
        return raw


def _keys_of(raw: bytes) -> dict[str | None, list[SigningKey]]:
    """The public keys for signatures in a document; raises ValueError if it is no key set."""
    document = msgspec.json.decode(raw)
    listed = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(listed, list):
        raise ValueError("it is no key set: an object with a list `keys` was expected")
    return keys_by_id(listed)


def keys_by_id(entries: Iterable[Any]) -> dict[str | None, list[SigningKey]]:
    """The keys that can check a signature among the entries of a JWKS document."""
    found: dict[str | None, list[SigningKey]] = {}
    for entry in entries:
        key = signing_key(entry)
        if key is not None:
            kid = entry.get("kid")
            found.setdefault(kid if isinstance(kid, str) else None, []).append(key)
    return found


def signing_key(entry: Any) -> SigningKey | None:
    """The public key of an entry (JWK), None if it cannot check a signature."""
    # With a shared secret (oct) from a published set, everybody could sign.
    if not isinstance(entry, dict) or str(entry.get("kty")) not in _KINDS:
        return None
    if entry.get("use", "sig") != "sig":
        return None
    try:
        made = PyJWK({name: entry[name] for name in entry.keys() - _SECRET})
    # PyJWT has no keys for the algorithm "none", and raises NotImplementedError without a text.
    except (PyJWTError, ValueError, TypeError, KeyError, NotImplementedError) as error:
        logger.warning(
            "a key of the key set cannot be used and is ignored: %s",
            quoted(str(error) or f"its algorithm is {entry.get('alg')}", 160),
        )
        return None
    return SigningKey(entry["kty"], entry.get("alg"), made.key, entry)


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return f"no answer within {TIMEOUT:g} s"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__
