"""How new topics are replicated where nobody said how."""

from __future__ import annotations

import pytest

from streams.log.topics import replication_for
from streams.settings.settings import Settings


@pytest.mark.parametrize(
    ("replication", "min_isr", "brokers", "expected"),
    [
        (0, 0, 1, (1, 1)),
        (0, 0, 2, (2, 1)),
        (0, 0, 5, (3, 2)),
        (3, 0, 1, (3, 2)),
        (2, 2, 3, (2, 2)),
        (0, 1, 3, (3, 1)),
    ],
)
def test_topics_are_replicated_as_set_or_as_the_brokers_allow(
    replication: int, min_isr: int, brokers: int, expected: tuple[int, int]
) -> None:
    assert replication_for(Settings(replication=replication, min_isr=min_isr), brokers) == expected
