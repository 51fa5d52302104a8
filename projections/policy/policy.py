"""The policy: every key that shapes a window, its default, its check, and the budgets that follow
from it.

A policy is layered: deployment, then tenant, then conversation (``conversation.opened``), the
narrower winning key by key. The result is part of what the fold may know, so it has to be in the
log or recorded with the generation (decision 0004).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Literal

import msgspec

from projections.errors import InvalidPolicy, UnusablePolicy
from projections.events.encodings import get_encoding
from projections.events.type_errors import place_and_reason
from projections.names import Key, quoted
from projections.policy.key_bounds import MOST, MOST_REDUCERS, NON_NEGATIVE, POSITIVE, SHARES
from projections.policy.limits import ALLOW, MAXIMA, Limits
from projections.policy.profiles import (
    CALLABLE,
    CompactResults,
    Limiting,
    Reducer,
    Shortening,
    Summarize,
    merged,
)
from projections.policy.recall_weights import RecallWeights

Callables = Mapping[str, Callable[[str, str, str], str]]
"""Replacements for tool results by name: ``(tool_name, call_id, result_text)`` to the text that
stands in its place; pure functions.
"""
Failures = dict[Key, dict[str, str]]
"""What callables could not do in a fold, by conversation and callable."""
NOT_REGISTERED = "is not registered"
"""What a callable could not do that a process lacks."""


class Policy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """All keys of the contract with their defaults; tokens, characters, bytes and seconds as the
    names say.
    """

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
    reducers: tuple[Reducer, ...] = ()
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
    memory_auto: Literal["off", "sessions", "summaries"] = "off"
    wm_max_tokens: int = 128_000
    recall_weights: RecallWeights = RecallWeights()
    profile: Literal["bounded", "pruning", "composed", "sliding"] = "bounded"

    @property
    def ceiling(self) -> int:
        """Tokens no render may exceed."""
        return min(
            int(self.hard_ceiling * self.model_window), self.model_window - self.reserve_tokens
        )

    @property
    def pinned_limit(self) -> int:
        """Tokens the pinned lane may hold: ``pinned_max_tokens``, or a quarter of the model's
        window.
        """
        return self.model_window // 4 if self.pinned_max_tokens is None else self.pinned_max_tokens

    @property
    def pays(self) -> bool:
        """Whether summaries are asked for: ``compaction``, and in profile ``composed`` only where
        ``summarize`` is listed.
        """
        return self.compaction and (
            self.profile != "composed" or any(isinstance(r, Summarize) for r in self.reducers)
        )

    @property
    def counted(self) -> bool:
        """Whether a reducer limits turns or messages."""
        return any(isinstance(r, Limiting) for r in self.reducers)

    @property
    def shortens(self) -> bool:
        """Whether tool results are shortened: a cut can save tokens without a summary."""
        return self.trim_tool_results or any(isinstance(r, Shortening) for r in self.reducers)

    @property
    def spared(self) -> int:
        """How many of the newest results in sight shortenings leave alone, at most."""
        spared = [r.keep_last_n for r in self.reducers if isinstance(r, CompactResults)]
        return max([self.protect_recent if self.trim_tool_results else 0, *spared])

    def budget(self, pinned: int) -> int:
        """The effective working budget of the verbatim tail beside a pinned lane of ``pinned``
        tokens; at least 1.
        """
        return max(1, min(self.working_budget, self.ceiling - pinned - self.summary_max_tokens))

    def keep_recent(self, pinned: int) -> int:
        """The effective number of tokens that stay verbatim at a compaction."""
        return min(self.keep_recent_tokens, self.budget(pinned) // 2)


def _check(policy: Policy) -> None:
    for name in policy.__struct_fields__:
        if isinstance(getattr(policy, name), int) and getattr(policy, name) > MOST:
            raise InvalidPolicy(f"policy key {name} is too large: it must be {MOST} or less")
    for name in NON_NEGATIVE:
        if getattr(policy, name) < 0:
            raise InvalidPolicy(
                f"policy key {name} is {getattr(policy, name)}: it must be 0 or more"
            )
    for name in POSITIVE:
        if getattr(policy, name) < 1:
            raise InvalidPolicy(
                f"policy key {name} is {getattr(policy, name)}: it must be 1 or more"
            )
    for name in SHARES:
        if not 0.0 <= getattr(policy, name) <= 1.0:
            raise InvalidPolicy(
                f"policy key {name} is {getattr(policy, name)}: it must be between 0.0 and 1.0"
            )
    if policy.reserve_tokens >= policy.model_window:
        raise InvalidPolicy(
            f"policy key reserve_tokens ({policy.reserve_tokens}) must be less than model_window"
            f" ({policy.model_window})"
        )
    if (
        policy.pinned_max_tokens is not None
        and not 0 <= policy.pinned_max_tokens <= policy.model_window // 4
    ):
        raise InvalidPolicy(
            f"policy key pinned_max_tokens is {policy.pinned_max_tokens}: "
            f"it must be between 0 and a quarter of model_window ({policy.model_window // 4})"
        )
    if policy.ceiling - policy.summary_max_tokens < 1:
        raise InvalidPolicy(
            f"policy key summary_max_tokens ({policy.summary_max_tokens}) leaves no room under the"
            f" ceiling of {policy.ceiling} tokens (hard_ceiling, model_window, reserve_tokens)"
        )
    get_encoding(policy.encoding)


def make_policy(*layers: dict[str, Any] | None) -> Policy:
    """Merge layers (widest first) over the defaults into a checked policy; a layer's profile sets
    the keys it names (``profiles``).

    Raises:
        InvalidPolicy: an unknown key (named), a wrong type (named), or values that contradict each
            other.
    """
    values = merged(layers)
    known = set(Policy.__struct_fields__)
    for name in values:
        if name not in known:
            raise InvalidPolicy(
                f"policy key {quoted(name)} is unknown: the keys are {', '.join(sorted(known))}"
            )
    try:
        policy = msgspec.convert(values, Policy)
    except msgspec.ValidationError as error:
        place, reason = place_and_reason(error, Policy, "policy")
        raise InvalidPolicy(f"policy key {place}: {reason}") from None
    _check(policy)
    return policy


def _by_name_only(tool_name: str, call_id: str, text: str) -> str:
    raise NotImplementedError("callables are registered in the process that folds")


class Rules:
    """The policies a generation was built with: deployment and tenants; conversations bring their
    own in the log.

    ``deployment`` and ``tenants`` are plain dictionaries of overrides; the deployment's may also
    hold ``allow``, a list of the keys that tenants and conversations may set (default: all, but
    ``encryption`` for tenants alone), and ``maxima``, the largest number of some keys.
    :meth:`for_conversation` is a pure function of them. ``callables`` are the replacements that
    policies may name, ``summarizers`` the summarisers (None: any).
    """

    def __init__(
        self,
        deployment: dict[str, Any] | None = None,
        tenants: dict[str, dict[str, Any]] | None = None,
        callables: Callables | None = None,
        summarizers: frozenset[str] | None = None,
    ) -> None:
        self.deployment = dict(deployment or {})
        self.callables: Callables = dict(callables or {})
        self._failures: Failures | None = None
        self._summarizers = summarizers
        self._own = {
            name: value for name, value in self.deployment.items() if name not in (ALLOW, MAXIMA)
        }
        self._limits = Limits(self.deployment, frozenset(Policy.__struct_fields__))
        make_policy(self._own)
        self.tenants: dict[str, dict[str, Any]] = {}
        self.unusable: dict[str, UnusablePolicy] = {}
        """Tenants whose policy does not hold here, as one of a newer release; and why."""
        self._resolve = lru_cache(maxsize=4096)(self._resolve_uncached)
        self.learn(tenants or {})

    def watched(self, failures: Failures) -> Rules:
        """The same rules, under which a fold notes what callables cannot do."""
        rules = Rules(self.deployment, self.tenants, self.callables, self._summarizers)
        rules._failures = failures
        return rules

    def note_failure(self, key: Key, name: str, why: str) -> None:
        """Note what a callable could not do in the fold of a conversation."""
        if self._failures is not None:
            self._failures.setdefault(key, {})[name] = why

    def missing_callables(self) -> list[str]:
        """Callables that policies of the deployment and its tenants name and nobody registered."""
        layers = [self.tenants[name] for name in self.tenants.keys() - self.unusable.keys()]
        policies = (make_policy(self._own, layer) for layer in ({}, *layers))
        named = {name for policy in policies for name in callables_of(policy)}
        return sorted(named - self.callables.keys())

    def alone(self, tenant: str) -> Rules:
        """The same rules with one tenant only: little to send to another process."""
        layer = self.tenants.get(tenant)
        tenants = {} if layer is None else {tenant: layer}
        return Rules(self.deployment, tenants, self.callables, self._summarizers)

    def __reduce__(self) -> tuple[Any, ...]:
        # Callables need not pickle: another process checks policies, where their names are enough.
        names = dict.fromkeys(self.callables, _by_name_only)
        return Rules, (self.deployment, self.tenants, names, self._summarizers)

    def learn(self, tenants: dict[str, dict[str, Any]]) -> None:
        """Take in tenants that were recorded later; what is known of a tenant already stays as it
        is. One whose policy does not hold is ``unusable``, and is no other tenant's trouble.
        """
        for name, layer in tenants.items():
            if name not in self.tenants:
                try:
                    make_policy(self._own, layer)
                except InvalidPolicy as error:
                    self.unusable[name] = UnusablePolicy(name, str(error))
                self.tenants[name] = dict(layer)
                # Policies may have been asked for before the tenant was known.
                self._resolve.cache_clear()

    def check(
        self, tenant: dict[str, Any] | None, conversation: dict[str, Any] | None = None
    ) -> Policy:
        """The policy of a tenant's and a conversation's layer over the deployment's, as they may
        set them.

        Raises:
            InvalidPolicy: as :func:`make_policy`, and for a key they may not set, a number over its
                maximum, a callable nobody registered, too many reducers.
        """
        self._limits.check(tenant, conversation)
        policy = make_policy(self._own, tenant, conversation)
        most, count = max(MOST_REDUCERS, len(self._own.get("reducers", ()))), len(policy.reducers)
        if count > most:
            raise InvalidPolicy(f"policy key reducers: {count} are over the limit of {most}")
        for name in callables_of(policy):
            if name not in self.callables:
                raise InvalidPolicy(
                    f"policy key reducers: no {quoted(CALLABLE + name)} is registered in this"
                    " deployment's settings"
                )
        known = self._summarizers
        for asked in (policy.summarizer, policy.close_summarizer):
            if asked is not None and known is not None and asked not in known:
                raise InvalidPolicy(
                    f"policy key summarizer: {quoted(asked)} is not one of this deployment's"
                    f" summarisers ({', '.join(sorted(known))})"
                )
        return policy

    def for_conversation(self, tenant: str, overrides: dict[str, Any] | None) -> Policy:
        """The policy of one conversation. Its overrides are bounded by the deployment's limits;
        what does not hold even so is left out whole (the log may hold anything). Raises
        :class:`UnusablePolicy`.
        """
        self.check_usable(tenant)
        return self.for_window(tenant, overrides)

    def for_window(self, tenant: str, overrides: dict[str, Any] | None) -> Policy:
        """As :meth:`for_conversation`; the deployment's where the tenant's is unusable, for a
        window that is only held then: nothing is folded into it, and it is not shown.
        """
        return self._resolve(
            tenant, msgspec.json.encode(overrides, order="deterministic") if overrides else b""
        )

    def check_usable(self, tenant: str) -> None:
        """Raises :class:`UnusablePolicy` for a tenant whose policy does not hold here."""
        if tenant in self.unusable:
            raise self.unusable[tenant].again()

    def encrypts(self, tenant: str) -> bool:
        """Whether a tenant's payloads are sealed, also where its policy is unusable: what its
        layer says counts then.
        """
        if tenant in self.unusable:
            return bool(merged((self._own, self.tenants[tenant])).get("encryption"))
        return self.for_conversation(tenant, None).encryption

    def _resolve_uncached(self, tenant: str, overrides: bytes) -> Policy:
        layer = None if tenant in self.unusable else self.tenants.get(tenant)
        if overrides:
            try:
                own = self._limits.bounded(msgspec.json.decode(overrides))
                return make_policy(self._own, layer, own)
            except InvalidPolicy:
                # The gateway refuses it; another producer's is ignored alike on every fold.
                return make_policy(self._own, layer)
        return make_policy(self._own, layer)


def callables_of(policy: Policy) -> Iterator[str]:
    """The names of the callables that a policy's reducers use."""
    for reducer in policy.reducers:
        replacement = reducer.replacement if isinstance(reducer, CompactResults) else None
        if replacement is not None and replacement.startswith(CALLABLE):
            yield replacement[len(CALLABLE) :]


def check_deployment(values: dict[str, Any]) -> None:
    """Check a deployment's (or a tenant's) policy file; raises :class:`InvalidPolicy`."""
    Rules(values)
