"""What the settings say about a summariser's endpoint, checked.

[summarizers.cheap]
base_url = "https://models.example.com/v1"
model = "small-1"
key_env = "MODELS_KEY"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from projections.errors import InvalidSettings
from projections.events.type_errors import explain

EXTRACTIVE = "extractive"
"""The summariser that always exists: deterministic, offline."""

CHEAP = "cheap"
"""The name that profiles use without asking whether it is configured; where it is not, it means the
extractive one.
"""

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_KEY = re.compile(r"[\x21-\x7e]{1,4096}")
_OURS = ("model", "messages", "stream", "n", "max_tokens", "max_completion_tokens")


class EndpointSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One OpenAI-compatible chat-completions endpoint, called as ``POST
    {base_url}/chat/completions``.

    ``key`` is the bearer key itself, ``key_env`` the environment variable that holds it; neither:
    no key is sent. ``timeout``: seconds an attempt may take. ``input_price`` and ``output_price``:
    money for a million tokens, in a currency of your own. ``max_response_bytes``: a longer answer
    is not read on. ``max_tokens_field``: what the endpoint calls the limit on its answer; newer
    OpenAI models want ``max_completion_tokens``. ``extra``: further members of the request's body,
    such as ``temperature``.

    What the endpoint takes: ``max_concurrent`` calls at once, of each worker;
    ``requests_per_minute`` and ``tokens_per_minute`` (of prompts and answers), of all workers
    together, None: no limit. A summary waits for its turn for ``max_wait`` seconds at most, then
    the extractive summariser makes it.
    """

    base_url: str
    model: str
    key: str = ""
    key_env: str = ""
    timeout: float = 20.0
    input_price: float | None = None
    output_price: float | None = None
    max_response_bytes: int = 1 << 20
    max_concurrent: int = 64
    requests_per_minute: float | None = None
    tokens_per_minute: float | None = None
    max_wait: float = 300.0
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    extra: dict[str, Any] = {}

    def __repr__(self) -> str:
        """Without the key: settings end up in logs."""
        return f"EndpointSettings(base_url={self.base_url!r}, model={self.model!r})"

    @property
    def url(self) -> str:
        """The address that is called."""
        return self.base_url.rstrip("/") + "/chat/completions"

    def find_key(self, name: str, env: Mapping[str, str]) -> str:
        """The bearer key, empty where none is configured.

        Raises:
            InvalidSettings: ``key_env`` names a variable that is not set, or the key has characters
                that no header can carry.
        """
        key = env.get(self.key_env, "").strip() if self.key_env else self.key
        if self.key_env and not key:
            raise InvalidSettings(
                f"summarizer {name!r}: the environment variable {self.key_env} that should hold its"
                " key is not set"
            )
        if key and not _KEY.fullmatch(key):
            raise InvalidSettings(
                f"summarizer {name!r}: its key has blanks, line breaks or characters beyond ASCII;"
                " check what was pasted"
            )
        return key


def read_endpoints(values: Any) -> dict[str, EndpointSettings]:
    """Endpoints by name from what TOML gave (tables), or the environment (a JSON object as text).

    Raises:
        InvalidSettings: not an object of objects, an unknown or missing key, or a value that cannot
            be; the message names both.
    """
    if isinstance(values, str | bytes):
        try:
            values = msgspec.json.decode(values)
        except (msgspec.DecodeError, RecursionError):
            raise InvalidSettings(
                "setting 'summarizers' is not JSON: it must be an object of endpoints by name"
            ) from None
    if not isinstance(values, dict):
        raise InvalidSettings(
            "setting 'summarizers' must be a table of endpoints by name, like [summarizers.cheap]"
        )
    return {name: _read_endpoint(name, value) for name, value in values.items()}


def _read_endpoint(name: Any, value: Any) -> EndpointSettings:
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidSettings(
            f"summarizer {str(name)[:70]!r}: a name is 1 to 64 characters of A-Z a-z 0-9 . _ : -"
        )
    if name == EXTRACTIVE:
        raise InvalidSettings(f"summarizer {name!r} is built in: give the endpoint another name")
    if isinstance(value, EndpointSettings):
        endpoint = value
    else:
        known = EndpointSettings.__struct_fields__
        for key in value if isinstance(value, dict) else ():
            if key not in known:
                raise InvalidSettings(
                    f"summarizer {name!r}: key {str(key)[:60]!r} is unknown: the keys are"
                    f" {', '.join(known)}"
                )
        try:
            endpoint = msgspec.convert(value, EndpointSettings, strict=False)
        except msgspec.ValidationError as error:
            reason = explain(error, EndpointSettings, "the endpoint")
            raise InvalidSettings(f"summarizer {name!r}: {reason}") from None
    wrong = _what_is_wrong(endpoint)
    if wrong:
        raise InvalidSettings(f"summarizer {name!r}: {wrong}")
    return endpoint


def _what_is_wrong(endpoint: EndpointSettings) -> str | None:
    return _wrong_address(endpoint.base_url) or _wrong_key(endpoint) or _wrong_numbers(endpoint)


def _wrong_address(base_url: str) -> str | None:
    try:
        parts = urlsplit(base_url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return "base_url is not an address"
    # The address is not shown before it is known to hold no password.
    if parts.username is not None or parts.password is not None:
        return "base_url holds a user or password: give the key as key_env"
    if parts.scheme not in ("http", "https") or not host or re.search(r"\s", base_url):
        return (
            f"base_url is {base_url[:80]!r}: it must be an address like"
            " https://models.example.com/v1"
        )
    if parts.query or parts.fragment:
        return (
            "base_url has a query or fragment: it must end where /chat/completions is put after it"
        )
    return None


def _wrong_key(endpoint: EndpointSettings) -> str | None:
    if endpoint.key and endpoint.key_env:
        return "both key and key_env are set: keep one"
    if endpoint.key and not _KEY.fullmatch(endpoint.key):
        return "its key has blanks, line breaks or characters beyond ASCII"
    if endpoint.key_env and not _VARIABLE.fullmatch(endpoint.key_env):
        # It may be a key put in the wrong place, so it is not shown.
        return "key_env must be the name of an environment variable, not the key itself"
    return None


def _wrong_numbers(endpoint: EndpointSettings) -> str | None:
    if not endpoint.model.strip() or len(endpoint.model) > 200:
        return "model must be 1 to 200 characters"
    if not 0 < endpoint.timeout <= 3600:
        return f"timeout is {endpoint.timeout}: it must be seconds above 0, at most 3600"
    for field in ("input_price", "output_price"):
        price = getattr(endpoint, field)
        if price is not None and not 0 <= price < 1e9:
            return f"{field} is {price}: it must be 0 or more, for a million tokens"
    for field in ("requests_per_minute", "tokens_per_minute"):
        rate = getattr(endpoint, field)
        if rate is not None and not 0 < rate <= 1e12:
            return f"{field} is {rate}: it must be above 0; leave it out for no limit"
    if not 1 <= endpoint.max_concurrent <= 10_000:
        return f"max_concurrent is {endpoint.max_concurrent}: it must be 1 to 10000"
    if not 0 <= endpoint.max_wait <= 86_400:
        return f"max_wait is {endpoint.max_wait}: it must be seconds, 0 to 86400"
    if not 1024 <= endpoint.max_response_bytes <= 64 << 20:
        return f"max_response_bytes is {endpoint.max_response_bytes}: it must be 1024 to {64 << 20}"
    for key in endpoint.extra:
        if key in _OURS:
            return f"extra may not set {key!r}: threadfold sets it"
    return None
