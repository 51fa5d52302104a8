"""What a team's own projection is: a name, a version, and how a batch of events changes its
values.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

from projections.errors import InvalidProjection
from streams.custom.events import Event
from streams.custom.result import Result

_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}", re.ASCII)


class Projection(Protocol):
    """Inherit from it, set ``name``, and write :meth:`apply`.

    Attributes:
        name: 1 to 64 of ``a-z 0-9 _ -``, a letter first: one projection of a deployment, for ever.
        version: raise it whenever :meth:`apply` would make something else of the same events: the
        results are then built anew beside the
            old ones, which serve until the new ones are complete. once: whether an event that comes
        again (its id is among its conversation's last 1,024) is passed over, as windows do. It
        costs
            8 bytes an id in Redis. False hands on every record.
    """

    name: str
    version: int = 1
    once: bool = True

    async def apply(self, batch: Sequence[Event], result: Result) -> None:
        """Change ``result`` by a batch: events of one partition, in the log's order, 1 to some
        thousands.

        What it makes must follow from the events alone: no clock, no network, no state of the
        object, and the same however the events are cut into batches. All changes of a batch are
        written at once with the checkpoint, or none of them. An error stops the projection at this
        batch; nothing is passed over.
        """
        raise NotImplementedError

    def merge(self, values: list[Any]) -> Any:
        """One value out of those that several partitions hold under the same tenant and key, 2 or
        more, in the partitions' order.

        By default counters (what :meth:`Result.add` makes) are added field by field.

        Raises:
            InvalidProjection: they are not counters; the projection needs a ``merge`` of its own,
                or the conversation in its keys.
        """
        total: dict[str, int] = {}
        for value in values:
            if not isinstance(value, dict) or not all(
                type(count) is int for count in value.values()
            ):
                raise InvalidProjection(
                    f"projection {self.name}: several partitions hold a value under one key, and"
                    " they are no counters: give it a method merge, or put the conversation into"
                    " its keys"
                )
            for name, count in value.items():
                total[name] = total.get(name, 0) + count
        return total


def check_projection(projection: Projection) -> Projection:
    """The projection, when its name and version can be.

    Raises:
        InvalidProjection: they cannot; the message says which.
    """
    name, version = getattr(projection, "name", None), getattr(projection, "version", None)
    kind = type(projection).__name__
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise InvalidProjection(
            f"projection {kind}: its name is {name!r}: use 1 to 64 of a-z 0-9 _ -, a letter first"
        )
    if type(version) is not int or not 1 <= version < 2**31:
        raise InvalidProjection(
            f"projection {name}: its version is {version!r}: use a whole number from 1 on"
        )
    if getattr(type(projection), "apply", None) is Projection.apply:
        raise InvalidProjection(f"projection {name}: {kind} does not define a method apply")
    return projection
