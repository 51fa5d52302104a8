"""The generation that was live before the last switch, while processes may not have heard of it.

They hear of a switch one after the other. Until then a worker folds the former generation on, and a
gateway serves it: another gateway must not serve the live one where it is older than that.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from projections.names import Key
from projections.storage.protocol import WindowReader
from projections.storage.records import Checkpoint
from streams.control.control_topic import Control
from streams.control.generations import HEARD
from streams.log.log import Log


class FormerGeneration:
    """Says where the former generation is ahead of the live one. For one event loop."""

    def __init__(
        self,
        reader: WindowReader,
        control: Control,
        log: Callable[[], Log],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        """Args: ``log`` returns the connected log; ``now`` the time in seconds."""
        self._reader = reader
        self._control = control
        self._log = log
        self._now = now
        self._live: int | None = None
        self._until = 0.0

    async def is_ahead(self, whose: Key | str, partition: int, live: Checkpoint) -> bool:
        """Whether the former generation holds later windows of a conversation, or of a tenant, than
        those that were read with ``live``: somebody may have been served these.

        False from ``HEARD`` seconds after the switch on. Raises :class:`RedisUnavailable`, and
        :class:`KafkaUnavailable` where it is ahead.
        """
        state = self._control.state
        if state.live != self._live:
            self._live, self._until = state.live, self._now() + HEARD
        if state.former is None or self._now() > self._until:
            return False
        former = await self._reader.checkpoint(state.former, partition)
        if former is None or _reached(former, whose) <= _reached(live, whose):
            return False
        # It may be of a longer log than there is now: what is gone need not be waited for.
        return (await self._log().last_records())[partition] - 1 > _reached(live, whose)


def _reached(checkpoint: Checkpoint, whose: Key | str) -> int:
    return checkpoint.applied_to(whose) if isinstance(whose, Key) else checkpoint.latest
