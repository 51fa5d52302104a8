"""What a list pins in its conversations, against their limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
    pinned: list[PinnedExcess], rules: Rules, own: Mapping[Key, dict[str, object]]
) -> Iterator[PinnedExcess]:
    """Of the pinned events of a list those above their tenant's limit. ``own`` are the policies
    that conversations bring in the list itself.

    Raises:
        InvalidEvent: one is above the limit of its conversation's policy in ``own``.
    """
    for each in pinned:
        limit = rules.for_conversation(each.key.tenant, own.get(each.key)).pinned_limit
        if each.key in own:
            each.check(limit)
        elif each.total > limit:
            yield each
