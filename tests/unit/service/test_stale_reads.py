"""A reader refuses windows that are older than what it served, and only those."""

from __future__ import annotations

import pytest

from projections.errors import Healing
from projections.storage.protocol import Checkpoint
from streams.settings.settings import Settings
from threadfold.service.conversations import ConversationService


class Ends:
    """As much of a log as is asked here: where its partition ends."""

    def __init__(self, end: int) -> None:
        self.end = end

    async def last_records(self) -> dict[int, int]:
        return {0: self.end}


def at(offset: int) -> Checkpoint:
    return Checkpoint("r", offset, 0, "", -1)


@pytest.fixture
def backend() -> ConversationService:
    made = ConversationService(
        Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    )
    made.log = Ends(200)  # type: ignore[assignment]
    return made


async def test_of_reads_side_by_side_the_older_one_may_be_answered_last(
    backend: ConversationService,
) -> None:
    first, second = backend.served(0), backend.served(0)
    await backend.check_served(0, at(105), second)
    assert (await backend.check_served(0, at(100), first)).offset == 100
    assert backend.served(0) == 105


async def test_a_read_that_began_after_another_was_served_must_not_be_older(
    backend: ConversationService,
) -> None:
    await backend.check_served(0, at(105), backend.served(0))
    with pytest.raises(Healing):
        await backend.check_served(0, at(104), backend.served(0))
    assert (await backend.check_served(0, at(105), backend.served(0))).offset == 105


async def test_of_a_topic_that_was_made_anew_what_it_holds_is_served(
    backend: ConversationService,
) -> None:
    await backend.check_served(0, at(105), backend.served(0))
    backend.log.end = 50  # type: ignore[attr-defined]
    assert (await backend.check_served(0, at(49), backend.served(0))).offset == 49
    assert backend.served(0) == 49
