"""What a deployment lets tenants and conversations set, and up to what."""

from __future__ import annotations

from typing import Any

from projections.errors import InvalidPolicy
from projections.policy.profiles import merged

ALLOW = "allow"
MAXIMA = "maxima"
"""Keys of the deployment's policy alone: which keys tenants and conversations may set, and the
largest numbers they may set them to.
"""
_NOT_A_CONVERSATIONS = frozenset({"encryption"})


class Limits:
    """The limits of a deployment's policy; ``known`` are all keys of policies.

    Raises:
        InvalidPolicy: ``allow`` is no list of known keys, or ``maxima`` no number for each of some.
    """

    def __init__(self, deployment: dict[str, Any], known: frozenset[str]) -> None:
        allow, maxima = deployment.get(ALLOW), deployment.get(MAXIMA, {})
        if allow is not None and not (
            isinstance(allow, list) and all(name in known for name in allow)
        ):
            raise InvalidPolicy(
                f"policy key {ALLOW}: expected a list of policy keys ({', '.join(sorted(known))})"
            )
        numbers = isinstance(maxima, dict) and all(
            name in known and isinstance(most, int | float) and not isinstance(most, bool)
            for name, most in maxima.items()
        )
        if not numbers:
            raise InvalidPolicy(
                f"policy key {MAXIMA}: expected a number for each of some policy keys"
            )
        # A tenant's layer is written by an operator: without a list it may hold every key.
        self._refused = frozenset() if allow is None else known - frozenset(allow)
        self._maxima: dict[str, float] = dict(maxima)

    def check(self, tenant: dict[str, Any] | None, conversation: dict[str, Any] | None) -> None:
        """Raises :class:`InvalidPolicy` for the first key that a layer may not set, or not so high.
        Beside a conversation's layer the tenant's is not checked: it was set under earlier limits.
        """
        for name in _NOT_A_CONVERSATIONS & (conversation or {}).keys():
            raise InvalidPolicy(f"policy key {name} cannot be set here: a tenant's policy has it")
        layer = tenant if conversation is None else conversation
        for name in layer or ():
            if name in self._refused:
                raise InvalidPolicy(
                    f"policy key {name} cannot be set here: only the deployment may set it"
                )
        for name, value in self._too_large(layer).items():
            raise InvalidPolicy(
                f"policy key {name} is {value}: this deployment allows {self._maxima[name]} at most"
            )

    def bounded(self, conversation: dict[str, Any]) -> dict[str, Any]:
        """A conversation's layer as far as the limits let it: without the keys that it may not set,
        and no number past its maximum. It was accepted under other limits, or another producer
        wrote it.
        """
        refused = self._refused | _NOT_A_CONVERSATIONS
        kept = {name: value for name, value in conversation.items() if name not in refused}
        return kept | {
            # A maximum may be written as 2500.0, and a number of tokens is whole.
            name: type(value)(self._maxima[name])
            for name, value in self._too_large(kept).items()
        }

    def _too_large(self, layer: dict[str, Any] | None) -> dict[str, int | float]:
        """A profile that may be named brings its keys, but no number past its maximum."""
        return {
            name: value
            for name, value in merged((layer,)).items()
            if name in self._maxima
            and isinstance(value, int | float)
            and value > self._maxima[name]
        }
