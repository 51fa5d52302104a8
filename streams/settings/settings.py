"""Settings of a deployment: environment variables ``THREADFOLD_*`` over a TOML file
(``THREADFOLD_CONFIG``).

They live here and not in ``threadfold/`` because ``faust -A streams.app worker`` has to read them
without the layers above.
"""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import msgspec

from projections.errors import InvalidName, InvalidQuota, InvalidSettings
from projections.events.type_errors import place_and_reason
from projections.names import check_name
from projections.redis.address import read_address
from streams.settings.bounds import BOUNDS
from streams.settings.callables import read_callables
from streams.settings.endpoints import (
    CHEAP,
    EXTRACTIVE,
    EmbeddingsSettings,
    EndpointSettings,
    read_endpoints,
)
from streams.settings.kafka_login import check_addresses, check_kafka_login
from streams.settings.memory_settings import MemorySettings, check_memory
from streams.settings.policy_file import read_policy
from streams.settings.quotas import Quota, read_quota
from streams.settings.secret_files import FILES, read_secrets

PREFIX = "THREADFOLD_"
_CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
_LOG_FORMATS = ("text", "json")
_LOG_LEVELS = ("debug", "info", "warning", "error", "critical")


_NO_SETTINGS = frozenset(
    {
        "CACHE",
        "CONFIG",
        "DEBUG",
        "JAVA",
        "KEY",
        "REDIS_SERVER",
        "SCHEMATHESIS",
        "SHARED",
        "SOAK_MINUTES",
        "SWEEP",
        "URL",
    }
)
"""Variables that other parts, the examples, tests and benchmarks read."""
_RETIRED = frozenset({"compactor_concurrency"})
"""Settings of the release before, which mean nothing any more: they are passed over."""
_ENDPOINTS = {"summarizers": EndpointSettings, "embeddings": EmbeddingsSettings}
"""Settings that are tables of endpoints by name."""
_SERVICE_LINK = re.compile(
    r"(\w+_)?(SERVICE_(HOST|PORT)(_\w+)?=.*|PORT(_[0-9]+_(TCP|UDP|SCTP))?=\w+://.*"
    r"|PORT_[0-9]+_(TCP|UDP|SCTP)_\w+=.*)"
)
"""What Kubernetes sets for a service whose name begins with threadfold: names and values."""


class Settings(MemorySettings, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Everything a service of threadfold is configured with; each field is ``THREADFOLD_<NAME>``
    in the environment.

    ``kafka`` is a list of ``host:port`` joined by commas; how its clients log in, and TLS:
    ``streams.settings.kafka_login``. Any of ``streams.settings.secret_files.SECRETS`` may stand in
    a file, named by the same setting with ``_file`` behind it.

    ``redis`` is a URL of one server, of sentinels or of a cluster
    (``projections.redis.address``). ``partitions``, ``replication`` and
    ``min_isr`` are used when topics are created; a replication of 0 is 3, or as many as there are
    brokers, and a min ISR of 0 follows from it. Sizes are bytes, times seconds. ``snapshot_events``
    is after how many events of a partition its changed windows are written as snapshots; 0: never.
    A partition halts when the fold fails on more than ``max_poison_share`` of its last 1,000 events
    (20 at least); 1: never. Conversations of which nothing came for ``hibernate_after`` seconds
    leave Redis but for a stub (``streams.recovery.hibernation``); 0: never, nor without snapshots.

    ``compactor_processes`` is how many processes of a worker make summaries; 0: one a core.
    ``summarizers`` are endpoints by name, tables ``[summarizers.NAME]`` in the file or one JSON
    object in the environment (which then replaces the file's). For each summary:
    ``summary_time_cap`` seconds in all, ``summary_input_tokens`` of the span read,
    ``summary_attempts`` calls of an endpoint, ``summary_output_tokens`` asked of it at most in one.
    After ``summary_breaker_failures`` failures in a row an endpoint is left alone for
    ``summary_breaker_seconds``. ``callables`` are the functions that policies may name, as ``NAME =
    "package.module:function"`` (``streams.settings.callables``).

    ``embeddings`` are endpoints that make vectors, as ``summarizers`` are. They, and the rest of
    the long-term memory: ``streams.settings.memory_settings``.

    ``master_keys`` (``id:base64,id2:base64``, the first is the current one) or ``master_keys_file``
    (one a line) wrap the data keys of encrypted conversations (``streams.encryption.master_keys``);
    within ``key_compaction_lag`` seconds of an erasure the broker begins to drop its keys.

    A worker that has something to do, does nothing of it and does not say why ends after
    ``watchdog_seconds`` (``streams.runtime.watchdog``; 0: it never does so). It serves its metrics
    at ``metrics_host`` and ``metrics_port``; 0: it does not.

    ``gateway_certificate`` and ``gateway_private_key`` are PEM files with which the gateway speaks
    TLS (``threadfold.gateway.tls``). ``cors_origins`` and ``gateway_hosts`` are lists joined by
    commas (``threadfold.gateway.origins``). ``token_secret`` is part of what signs the tokens of
    end users; those of ``accepted_token_secrets``, joined by commas, count as well.
    ``user_requests_per_second``, ``user_concurrent_requests`` and ``user_streams`` are one user's
    share in a gateway; 0: no limit. A context that misses events which have been in the log for
    more than ``stale_after`` seconds says so (``"stale"``); 0: never. ``public_codec`` compresses
    what is written to the topic of summaries, which clients of any kind read.

    A stream is silent for ``stream_heartbeat`` seconds at most. Assistant text in progress of which
    nothing more came for ``partial_timeout`` seconds is kept as an interrupted message
    (``threadfold.streaming``).
    """

    def __repr__(self) -> str:
        return f"Settings(kafka={self.kafka!r}, topic_prefix={self.topic_prefix!r}, ...)"

    redis: str = ""
    topic_prefix: str = "threadfold"
    group: str = "threadfold.projector"
    partitions: int = 16
    replication: int = 0
    min_isr: int = 0
    public_codec: str = "gzip"
    policy: str = ""
    max_event_bytes: int = 8 << 20
    append_timeout: float = 15.0
    batch_events: int = 8_000
    batch_bytes: int = 4 << 20
    cached_windows: int = 4096
    master_keys: str = ""
    master_keys_file: str = ""
    key_compaction_lag: int = 86_400
    compress: bool = False
    read_cache_bytes: int = 64 << 20
    stale_after: float = 10.0
    snapshot_events: int = 5_000
    accept_truncated_log: bool = False
    max_poison_share: float = 0.1
    hibernate_after: float = 3_600.0
    compactor_processes: int = 0
    summary_time_cap: float = 30.0
    summary_input_tokens: int = 100_000
    summary_attempts: int = 3
    summary_output_tokens: int = 4_000
    summary_breaker_failures: int = 5
    summary_breaker_seconds: float = 60.0
    callables: dict[str, str] = msgspec.field(default_factory=dict)
    session_timeout: float = 10.0
    watchdog_seconds: float = 300.0
    stream_heartbeat: float = 10.0
    partial_timeout: float = 30.0
    log_level: str = "info"
    log_format: str = "text"
    metrics_host: str = "127.0.0.1"
    metrics_port: int = 0
    gateway_host: str = "127.0.0.1"
    gateway_port: int = 8080
    connections_per_address: int = 0
    gateway_certificate: str = ""
    gateway_private_key: str = ""
    gateway_url: str = ""
    auth: str = "on"
    auth_tenant: str = "default"
    jwt_issuer: str = ""
    jwt_audience: str = ""
    jwt_keys: str = ""
    jwt_tenant_claim: str = "tenant"
    jwt_scopes_claim: str = "scope"
    jwt_admin: bool = False
    token_secret: str = ""
    accepted_token_secrets: str = ""
    cors_origins: str = ""
    gateway_hosts: str = ""
    user_requests_per_second: float = 10.0
    user_concurrent_requests: int = 20
    user_streams: int = 10
    quota_requests_per_second: float = 0.0
    quota_events_per_second: float = 0.0
    quota_tokens_per_minute: float = 0.0
    quota_requests_burst: float = 2.0
    quota_events_burst: float = 2.0
    quota_tokens_burst: float = 10.0
    quota_concurrent_requests: int = 0
    quota_streams: int = 0
    quota_body_bytes: int = 0
    quota_rollbacks_per_minute: float = 0.0
    quota_rollbacks_burst: float = 60.0
    quota_summary_tokens_per_day: float = 0.0
    quota_summary_cost_per_day: float = 0.0
    quota_summary_weight: float = 1.0

    @classmethod
    def load(
        cls, env: Mapping[str, str] | None = None, config: Path | None = None, **overrides: Any
    ) -> Settings:
        """Read file, environment and overrides (the later wins).

        Raises:
            InvalidSettings: the file is missing or not TOML, or a setting is unknown or of a wrong
                type; the message names it.
        """
        values: dict[str, Any] = {}
        for _, layer in cls.layers(env, config):
            values |= layer
        values.update({name: value for name, value in overrides.items() if value is not None})
        for name in _RETIRED:
            values.pop(name, None)
        for name in values:
            if name not in cls.__struct_fields__:
                raise InvalidSettings(
                    f"setting {name!r} is unknown: the settings are"
                    f" {', '.join(cls.__struct_fields__)}"
                )
        for name, kind in _ENDPOINTS.items():
            if name in values:
                values[name] = read_endpoints(name, kind, values[name])
        if "callables" in values:
            values["callables"] = read_callables(values["callables"])
        try:
            settings = msgspec.convert(values, cls, strict=False)
        except msgspec.ValidationError as error:
            where, reason = place_and_reason(error, cls, "the settings")
            named = (
                f"setting {where!r} ({PREFIX}{where.upper()})"
                if where in cls.__struct_fields__
                else f"settings at {where}"
            )
            raise InvalidSettings(f"{named}: {reason}") from None
        return settings._checked()

    @classmethod
    def layers(
        cls, env: Mapping[str, str] | None = None, config: Path | None = None
    ) -> list[tuple[str, dict[str, Any]]]:
        """What is set, as it was read, and where: the file, then the environment, which wins.
        Raises InvalidSettings as :meth:`load` does.
        """
        env = os.environ if env is None else env
        path = config or (Path(env[PREFIX + "CONFIG"]) if env.get(PREFIX + "CONFIG") else None)
        names = (*cls.__struct_fields__, *FILES)
        found = [(str(path), read_secrets(_read_toml(path)))] if path else []
        given = {name: env[variable_of(name)] for name in names if env.get(variable_of(name))}
        _refuse_unknown(env, names)
        return [*found, ("environment", read_secrets(given))]

    def _checked(self) -> Settings:
        """These settings, when every number is one to work with (the caps on a summary leave room
        for one) and the log level is known.
        """
        if self.log_level.lower() not in _LOG_LEVELS:
            raise InvalidSettings(
                f"setting 'log_level' is {self.log_level[:60]!r}: it must be one of"
                f" {', '.join(_LOG_LEVELS)}"
            )
        for name, known in (("public_codec", _CODECS), ("log_format", _LOG_FORMATS)):
            if (value := getattr(self, name)) not in known:
                raise InvalidSettings(
                    f"setting {name!r} is {value[:60]!r}: it must be one of {', '.join(known)}"
                )
        for name, (least, most) in BOUNDS.items():
            if not least <= getattr(self, name) <= most:
                raise InvalidSettings(
                    f"setting {name!r} is {getattr(self, name)}: it must be {least} to {most}"
                )
        check_memory(self)
        self._check_addresses()
        self._check_access()
        return self

    def _check_access(self) -> None:
        if self.auth not in ("on", "off"):
            raise InvalidSettings(f"setting 'auth' is {self.auth[:60]!r}: it must be on or off")
        try:
            check_name("setting 'auth_tenant':", self.auth_tenant)
            self.quota()
        except (InvalidName, InvalidQuota) as error:
            raise InvalidSettings(f"settings: {error}") from None
        if any(0 < len(secret) < 32 for secret in self.token_secrets):
            raise InvalidSettings(
                "setting 'token_secret': expected 32 characters or more, also of each of"
                " 'accepted_token_secrets'"
            )
        for together in (
            ("jwt_issuer", "jwt_audience", "jwt_keys"),
            ("kafka_user", "kafka_password"),
            ("kafka_certificate", "kafka_private_key"),
            ("gateway_certificate", "gateway_private_key"),
        ):
            missing = [name for name in together if not getattr(self, name)]
            if 0 < len(missing) < len(together):
                raise InvalidSettings(
                    f"setting {missing[0]!r} is missing: {', '.join(together)} are needed together"
                )
        check_kafka_login(self)

    @property
    def token_secrets(self) -> list[str]:
        """What tokens of end users may be made with; the first makes new ones."""
        others = re.split(r"[,\s]+", self.accepted_token_secrets)
        return [self.token_secret, *filter(None, others)]

    def quota(self) -> Quota:
        """The quota of tenants that have none of their own; raises :class:`InvalidQuota`."""
        return read_quota(
            {name: getattr(self, f"quota_{name}") for name in Quota.__struct_fields__}
        )

    def require(self) -> Settings:
        """These settings, when they name a Kafka and a Redis.

        Raises:
            InvalidSettings: one of the addresses is missing.
        """
        for name, example in (("kafka", "127.0.0.1:9092"), ("redis", "redis://127.0.0.1:6379/0")):
            if not getattr(self, name):
                raise InvalidSettings(
                    f"no address of {name.capitalize()} is configured: set {PREFIX}{name.upper()}"
                    f" (like {example}), or name a running stack's folder with --data DIR;"
                    " `threadfold up` starts one"
                )
        self._check_addresses()
        return self

    def _check_addresses(self) -> None:
        """Check the addresses that are given; raises :class:`InvalidSettings`."""
        if self.redis:
            read_address(self.redis)
        if self.kafka:
            check_addresses(self.kafka)

    @property
    def summarizer_names(self) -> frozenset[str]:
        """The summarizers a policy may name: the endpoints configured, ``extractive``, and
        ``cheap``, which stands for ``extractive`` where no endpoint has that name.
        """
        return frozenset((EXTRACTIVE, CHEAP, *self.summarizers))

    @property
    def compactor_group(self) -> str:
        """The consumer group that reads compaction requests."""
        return f"{self.group}.agents"

    def topic(self, name: str) -> str:
        """The full name of a topic: ``events`` → ``threadfold.events``."""
        return f"{self.topic_prefix}.{name}"

    def deployment_policy(self) -> dict[str, Any]:
        """The overrides in the deployment's policy file, checked; empty without one."""
        return read_policy(Path(self.policy)) if self.policy else {}


def variable_of(name: str) -> str:
    """The environment variable of a setting."""
    return PREFIX + name.upper()


def _refuse_unknown(env: Mapping[str, str], known: tuple[str, ...]) -> None:
    """Raise :class:`InvalidSettings` for a variable ``THREADFOLD_*`` that nothing reads: a misspelt
    setting must not be one that was left out.
    """
    for variable, value in sorted(env.items()):
        name = variable[len(PREFIX) :]
        if not variable.upper().startswith(PREFIX):
            continue
        if variable.startswith(PREFIX) and (
            (name.isupper() and name.lower() in known)
            or name in _NO_SETTINGS
            or name.lower() in _RETIRED
            or _SERVICE_LINK.fullmatch(f"{name}={value}")
        ):
            continue
        near = get_close_matches(name.lower(), known, 1)
        hint = f"did you mean {PREFIX}{near[0].upper()}?" if near else "unset it"
        raise InvalidSettings(f"{variable} is no setting of threadfold: {hint}")


def _read_toml(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text())
    except OSError as error:
        raise InvalidSettings(
            f"the configuration {path} cannot be read: {error.strerror}"
        ) from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidSettings(f"the configuration {path} is not TOML: {error}") from None
