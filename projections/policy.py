"""The policy: every key that shapes a window, its default, its check, and the budgets that follow from it.

A policy is layered: deployment, then tenant, then conversation (``conversation.opened``), the narrower winning key by key. The result is
part of what the fold may know, so it has to be in the log or recorded with the generation (``docs/decisions/0004-policy.md``).
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Literal

import msgspec

from projections.errors import InvalidPolicy
from projections.tokens import get_encoding

Encoding = Literal["o200k_base", "cl100k_base"]


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All keys of the contract with their defaults; tokens, characters, bytes and seconds as the names say."""

    encoding: str = "o200k_base"
    model_window: int = 128_000
    reserve_tokens: int = 16_384
    hard_ceiling: float = 0.72
    working_budget: int = 30_000
    keep_recent_tokens: int = 20_000
    min_messages: int = 20
    compaction_ratio: float = 0.75
    compaction: bool = True
    trim_tool_results: bool = True
    soft_trim_chars: int = 3_000
    hard_clear_chars: int = 10_000
    protect_recent: int = 3
    reducers: tuple[dict[str, Any], ...] = ()
    cuts: Literal["stable", "exact"] = "stable"
    low_water: float = 0.5
    spill_chars: int = 100_000
    max_result_bytes: int = 8_388_608
    summarizer: str = "extractive"
    close_summarizer: str | None = None
    summary_max_tokens: int = 1_500
    idle_close_seconds: int = 0
    loop_guard: int = 3
    pinned_max_tokens: int | None = None
    renders: bool = True
    encryption: bool = False
    profile: Literal["bounded", "pruning", "composed", "sliding"] = "bounded"

    @property
    def ceiling(self) -> int:
        """Tokens no render may exceed."""
        return min(int(self.hard_ceiling * self.model_window), self.model_window - self.reserve_tokens)

    @property
    def pinned_limit(self) -> int:
        """Tokens the pinned lane may hold: ``pinned_max_tokens``, or a quarter of the model's window."""
        return self.model_window // 4 if self.pinned_max_tokens is None else self.pinned_max_tokens

    def budget(self, pinned: int) -> int:
        """The effective working budget of the verbatim tail beside a pinned lane of ``pinned`` tokens; at least 1."""
        return max(1, min(self.working_budget, self.ceiling - pinned - self.summary_max_tokens))

    def keep_recent(self, pinned: int) -> int:
        """The effective number of tokens that stay verbatim at a compaction."""
        return min(self.keep_recent_tokens, self.budget(pinned) // 2)


_NON_NEGATIVE = (
    "reserve_tokens",
    "min_messages",
    "soft_trim_chars",
    "hard_clear_chars",
    "protect_recent",
    "spill_chars",
    "idle_close_seconds",
    "loop_guard",
    "keep_recent_tokens",
)
_POSITIVE = ("model_window", "working_budget", "summary_max_tokens", "max_result_bytes")
_SHARES = ["hard_ceiling", "low_water", "compaction_ratio"]


_MOST = 10**12
"""No number of tokens, characters, bytes or seconds is meant beyond it; arithmetic with shares fails on far larger ones."""


def _check(policy: Policy) -> None:
    for name in policy.__struct_fields__:
        if isinstance(getattr(policy, name), int) and getattr(policy, name) > _MOST:
            raise InvalidPolicy(f"policy key {name} is too large: it must be {_MOST} or less")
    for name in _NON_NEGATIVE:
        if getattr(policy, name) < 0:
            raise InvalidPolicy(f"policy key {name} is {getattr(policy, name)}: it must be 0 or more")
    for name in _POSITIVE:
        if getattr(policy, name) < 1:
            raise InvalidPolicy(f"policy key {name} is {getattr(policy, name)}: it must be 1 or more")
    for name in _SHARES:
        if not 0.0 <= getattr(policy, name) <= 1.0:
            raise InvalidPolicy(f"policy key {name} is {getattr(policy, name)}: it must be between 0.0 and 1.0")
    if policy.reserve_tokens >= policy.model_window:
        raise InvalidPolicy(f"policy key reserve_tokens ({policy.reserve_tokens}) must be less than model_window ({policy.model_window})")
    if policy.pinned_max_tokens is not None and not 0 <= policy.pinned_max_tokens <= policy.model_window // 4:
        raise InvalidPolicy(
            f"policy key pinned_max_tokens is {policy.pinned_max_tokens}: "
            f"it must be between 0 and a quarter of model_window ({policy.model_window // 4})"
        )
    if policy.ceiling - policy.summary_max_tokens < 1:
        raise InvalidPolicy(
            f"policy key summary_max_tokens ({policy.summary_max_tokens}) leaves no room under the ceiling "
            f"of {policy.ceiling} tokens (hard_ceiling, model_window, reserve_tokens)"
        )
    get_encoding(policy.encoding)


def make_policy(*layers: dict[str, Any] | None) -> Policy:
    """Merge layers (widest first) over the defaults into a checked policy.

    Raises:
        InvalidPolicy: an unknown key (named), a wrong type (named), or values that contradict each other.
    """
    merged: dict[str, Any] = {}
    for layer in layers:
        merged.update(layer or {})
    known = set(Policy.__struct_fields__)
    for name in merged:
        if name not in known:
            raise InvalidPolicy(f"policy key {name!r} is unknown: the keys are {', '.join(sorted(known))}")
    try:
        policy = msgspec.convert(merged, Policy)
    except msgspec.ValidationError as error:
        raise InvalidPolicy(f"policy: {str(error).replace('`', '')}") from None
    _check(policy)
    return policy


class Rules:
    """The policies a generation was built with: deployment and tenants; conversations bring their own in the log.

    ``deployment`` and ``tenants`` are plain dictionaries of overrides. :meth:`for_conversation` is a pure function of them.
    """

    def __init__(self, deployment: dict[str, Any] | None = None, tenants: dict[str, dict[str, Any]] | None = None) -> None:
        self.deployment = dict(deployment or {})
        self.tenants = {name: dict(layer) for name, layer in (tenants or {}).items()}
        make_policy(self.deployment)
        for layer in self.tenants.values():
            make_policy(self.deployment, layer)
        self._resolve = lru_cache(maxsize=4096)(self._resolve_uncached)

    def learn(self, tenants: dict[str, dict[str, Any]]) -> None:
        """Take in tenants that were recorded later; what is known of a tenant already stays as it is."""
        for name, layer in tenants.items():
            if name not in self.tenants:
                make_policy(self.deployment, layer)
                self.tenants[name] = dict(layer)
                # Policies may have been asked for before the tenant was known.
                self._resolve.cache_clear()

    def for_conversation(self, tenant: str, overrides: dict[str, Any] | None) -> Policy:
        """The policy of one conversation; an override that does not fit is left out whole (the log may hold anything)."""
        return self._resolve(tenant, msgspec.json.encode(overrides, order="deterministic") if overrides else b"")

    def _resolve_uncached(self, tenant: str, overrides: bytes) -> Policy:
        layers = [self.deployment, self.tenants.get(tenant)]
        if overrides:
            try:
                return make_policy(*layers, msgspec.json.decode(overrides))
            except InvalidPolicy:
                # The gateway refuses such an override; another producer's is ignored the same way on every fold.
                return make_policy(*layers)
        return make_policy(*layers)
