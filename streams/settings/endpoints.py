"""What the settings say about endpoints of models, checked.

[summarizers.cheap]
base_url = "https://models.example.com/v1"
model = "small-1"
key_env = "MODELS_KEY"

[embeddings.small]
base_url = "https://models.example.com/v1"
model = "embed-small-1"
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, ClassVar, Literal, TypeVar
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

MINILM = "minilm"
"""The embeddings that are made in the process itself, where the extra ``embeddings`` is there."""

_NAME = re.compile(r"[A-Za-z0-9_.:-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_KEY = re.compile(r"[\x21-\x7e]{1,4096}")


class ModelSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One OpenAI-compatible endpoint.

    ``key`` is the bearer key itself, ``key_env`` the environment variable that holds it; neither:
    no key is sent. ``timeout``: seconds an attempt may take. ``input_price`` and ``output_price``:
    money for a million tokens, in a currency of your own. ``max_response_bytes``: a longer answer
    is not read on. ``extra``: further members of the request's body, such as ``temperature``.

    What the endpoint takes: ``max_concurrent`` calls at once, of each process;
    ``requests_per_minute`` and ``tokens_per_minute`` (of prompts and answers), of all processes
    together, None: no limit. Work waits its turn for ``max_wait`` seconds at most.
    """

    kind: ClassVar[str] = "model"
    """What errors call such an endpoint."""
    built_in: ClassVar[str] = ""
    """A name that means something else."""
    path: ClassVar[str] = ""
    """Where it is called, behind ``base_url``."""
    owner: ClassVar[str] = ""
    """What its limits' names begin with, so that no two kinds share one."""
    ours: ClassVar[tuple[str, ...]] = ("model",)
    """Members of the body that ``extra`` may not set."""

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
    extra: dict[str, Any] = {}

    def __repr__(self) -> str:
        """Without the key: settings end up in logs."""
        return f"{type(self).__name__}(base_url={self.base_url!r}, model={self.model!r})"

    @classmethod
    def title(cls, name: str) -> str:
        """What errors call the endpoint of that name."""
        return f"{cls.kind} {name!r}"

    @property
    def url(self) -> str:
        """The address that is called."""
        return self.base_url.rstrip("/") + self.path

    def find_key(self, name: str, env: Mapping[str, str]) -> str:
        """The bearer key, empty where none is configured.

        Raises:
            InvalidSettings: ``key_env`` names a variable that is not set, or the key has characters
                that no header can carry.
        """
        key = env.get(self.key_env, "").strip() if self.key_env else self.key
        if self.key_env and not key:
            raise InvalidSettings(
                f"{self.title(name)}: the environment variable {self.key_env} that should hold its"
                " key is not set"
            )
        if key and not _KEY.fullmatch(key):
            raise InvalidSettings(
                f"{self.title(name)}: its key has spaces, line breaks or non-ASCII characters;"
                " check the key"
            )
        return key

    def what_is_wrong(self) -> str | None:
        """Which value cannot be, and why; None for none."""
        return _wrong_address(self) or _wrong_key(self) or _wrong_numbers(self)


class EndpointSettings(ModelSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A chat-completions endpoint that makes summaries.

    ``max_tokens_field``: what the endpoint calls the limit on its answer; newer OpenAI models want
    ``max_completion_tokens``. What has waited its turn for ``max_wait`` seconds is made by the
    extractive summariser.
    """

    kind = "summarizer"
    built_in = EXTRACTIVE
    path = "/chat/completions"
    ours = ("model", "messages", "stream", "n", "max_tokens", "max_completion_tokens")

    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"


class EmbeddingsSettings(ModelSettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """An embeddings endpoint. It is sent ``batch`` texts at once; ``dimensions`` shortens its
    vectors where the model can do that, 0: they are as long as it makes them.
    """

    kind = "embeddings"
    built_in = MINILM
    path = "/embeddings"
    owner = "embeddings:"
    ours = ("model", "input", "dimensions", "encoding_format")

    max_response_bytes: int = 16 << 20
    max_concurrent: int = 4
    batch: int = 64
    dimensions: int = 0

    def what_is_wrong(self) -> str | None:
        if not 1 <= self.batch <= 2_048:
            return f"batch is {self.batch}: it must be 1 to 2048"
        if not 0 <= self.dimensions <= 8_192:
            return f"dimensions is {self.dimensions}: it must be 0 (the model's own) to 8192"
        return ModelSettings.what_is_wrong(self)


Model = TypeVar("Model", bound=ModelSettings)


def read_endpoints(setting: str, kind: type[Model], values: Any) -> dict[str, Model]:
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
                f"setting {setting!r} is not JSON: it must be an object of endpoints by name"
            ) from None
    if not isinstance(values, dict):
        raise InvalidSettings(
            f"setting {setting!r} must be a table of endpoints by name, like [{setting}.cheap]"
        )
    return {name: _read_endpoint(kind, name, value) for name, value in values.items()}


def _read_endpoint(kind: type[Model], name: Any, value: Any) -> Model:
    title = kind.title(str(name)[:70])
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidSettings(f"{title}: a name is 1 to 64 characters of A-Z a-z 0-9 . _ : -")
    if name == kind.built_in:
        raise InvalidSettings(f"{title} is built in: give the endpoint another name")
    if isinstance(value, kind):
        endpoint = value
    else:
        known = kind.__struct_fields__
        for key in value if isinstance(value, dict) else ():
            if key not in known:
                raise InvalidSettings(
                    f"{title}: key {str(key)[:60]!r} is unknown: the keys are {', '.join(known)}"
                )
        try:
            endpoint = msgspec.convert(value, kind, strict=False)
        except msgspec.ValidationError as error:
            raise InvalidSettings(f"{title}: {explain(error, kind, 'the endpoint')}") from None
    if wrong := endpoint.what_is_wrong():
        raise InvalidSettings(f"{title}: {wrong}")
    return endpoint


def _wrong_address(endpoint: ModelSettings) -> str | None:
    base_url = endpoint.base_url
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
            f"base_url has a query or fragment: it must end where {endpoint.path} is put after it"
        )
    return None


def _wrong_key(endpoint: ModelSettings) -> str | None:
    if endpoint.key and endpoint.key_env:
        return "both key and key_env are set: keep one"
    if endpoint.key and not _KEY.fullmatch(endpoint.key):
        return "its key has spaces, line breaks or non-ASCII characters"
    if endpoint.key_env and not _VARIABLE.fullmatch(endpoint.key_env):
        # It may be a key put in the wrong place, so it is not shown.
        return "key_env must be the name of an environment variable, not the key itself"
    return None


def _wrong_numbers(endpoint: ModelSettings) -> str | None:
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
        if key in endpoint.ours:
            return f"extra may not set {key!r}: threadfold sets it"
    return None
