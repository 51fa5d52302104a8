"""Up to where a partition heals whose state nobody can vouch for: the store lost it, or another
server took over.
"""

from __future__ import annotations

import pytest
from aiokafka import TopicPartition

from projections.events import types as events
from projections.fold.apply import apply
from projections.names import Key, Position
from projections.policy.policy import Rules
from projections.storage.records import Checkpoint, write_of
from projections.window.window import Window
from streams.control.control_topic import Control
from streams.log.log import Raw
from streams.partition.log_identity import identity
from streams.projector.projector import Projector
from streams.settings.settings import Settings
from tests.support.talks import event_for
from threadfold.testing import MemoryLog, MemoryStore

EVENTS = 10


class Consumer:
    """As much of a consumer as is asked here: what the group has committed, and where it is sought
    to.
    """

    def __init__(self, committed: int) -> None:
        self._committed = committed
        self.at: int | None = None

    async def committed(self, tp: TopicPartition) -> int:
        return self._committed

    def seek(self, tp: TopicPartition, offset: int) -> None:
        self.at = offset


async def prepared(store: MemoryStore, committed: int, stored: int = -1) -> Checkpoint:
    """The checkpoint after a new worker prepared a partition of ten records, of which the store had
    those up to ``stored``.
    """
    settings = Settings(kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    log, control = MemoryLog(1), Control(settings)
    for i in range(EVENTS):
        log.put(0, b"acme/c", b"record %d" % i)
    if stored >= 0:
        raw = (await log.read([Position(0, stored)]))[Position(0, stored)]
        assert isinstance(raw, Raw)
        await store.apply(1, 0, Checkpoint("", stored, raw.timestamp, identity(raw), -1), [])
        store.take_over()
    projector, consumer = Projector(settings, control, log, store), Consumer(committed)
    projector.generation = 1
    runtime = projector.runtime
    runtime.assigned([0])
    assert await runtime.prepare(consumer, 0)  # type: ignore[arg-type]
    runtime.revoked([0])
    checkpoint = await store.checkpoint(1, 0)
    assert checkpoint is not None and consumer.at == checkpoint.offset + 1
    return checkpoint


@pytest.mark.parametrize("committed", [0, 5, EVENTS])
async def test_what_another_server_holds_heals_up_to_the_logs_end(committed: int) -> None:
    checkpoint = await prepared(MemoryStore(), committed, stored=6)
    assert (checkpoint.offset, checkpoint.target, checkpoint.unverified) == (6, EVENTS - 1, False)


async def test_what_was_lost_heals_up_to_the_logs_end_and_what_never_was_is_served_while_it_is_folded() -> (
    None
):
    lost = await prepared(MemoryStore(), committed=5)
    assert (lost.offset, lost.target) == (-1, EVENTS - 1)
    new = await prepared(MemoryStore(), committed=0)
    assert (new.offset, new.healing) == (-1, False)


async def test_what_the_same_server_holds_goes_on_where_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(MemoryStore, "take_over", lambda self: None)
    checkpoint = await prepared(MemoryStore(), committed=5, stored=6)
    assert (checkpoint.offset, checkpoint.healing) == (6, False)


async def test_what_a_healing_left_that_was_cut_off_is_of_nobody_knows_which_log() -> None:
    store, key = MemoryStore(), Key("acme", "c")
    window = Window(key, 0, Rules({}))
    apply(window, 7, event_for(key, events.Message("user", "of the former log"), "e1"))
    await store.apply(1, 0, Checkpoint("", -1, -1, "", 8), [write_of(window)])
    checkpoint = await prepared(store, committed=5)
    assert (checkpoint.offset, checkpoint.target) == (-1, 8)
    assert await store.conversations(1, 0) == set()
