"""Deltas of text in progress that no text has room for."""

from __future__ import annotations

from typing import Any

import pytest

from projections.errors import RequestTooLarge
from projections.names import make_key
from threadfold.streaming.partial_store import MOST_TEXT, Verdict
from threadfold.streaming.partials import Partials


class StoreWithout:
    """A store that has no room, and notes what it is sent."""

    def __init__(self) -> None:
        self.sent: list[int] = []

    async def append(self, key: Any, turn: str, delta: str, *more: Any) -> Verdict:
        self.sent.append(len(delta))
        return Verdict("large", 0, "", -1)


async def test_redis_is_not_sent_a_delta_that_no_text_has_room_for() -> None:
    store, elsewhere = StoreWithout(), Any
    partials = Partials(elsewhere, store, elsewhere, elsewhere, elsewhere, 1.0)  # type: ignore[arg-type]
    for size in (MOST_TEXT, MOST_TEXT + 1):
        with pytest.raises(RequestTooLarge, match="over the limit of 1048576 bytes"):
            await partials.post(make_key("acme", "c1"), "t", "a" * size, None)
    assert store.sent == [MOST_TEXT]
