"""What a list pins in its conversations, against their limits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from projections.errors import InvalidEvent
from projections.names import Key
from projections.policy.policy import Rules


class PinnedExcess(NamedTuple):
    """A pinned event of a list (``where``), that brings what the list pins in its conversation to a
    ``total`` above the tenant's limit. The conversation's own policy may allow more.
    """

    key: Key
    where: str
    tokens: int
    total: int

    def check(self, limit: int) -> None:
        """Raises :class:`InvalidEvent` if that is above a limit."""
        if self.total > limit:
            raise InvalidEvent(
                f"{self.where}: its {self.tokens} tokens bring the pinned text of this list to"
                f" {self.total}: system text, tools and pinned results may have {limit} (policy key"
                " pinned_max_tokens)"
            )


def excesses(
    pinned: Iterable[tuple[PinnedExcess, dict[str, object] | None]], rules: Rules
) -> Iterator[PinnedExcess]:
    """Of the pinned events of a list those above their tenant's limit. With each comes the policy
    that its conversation brought in the list before it, if any.

    Raises:
        InvalidEvent: one is above the limit of that policy.
    """
    for each, own in pinned:
        limit = rules.for_conversation(each.key.tenant, own).pinned_limit
        if own is not None:
            each.check(limit)
        elif each.total > limit:
            yield each
