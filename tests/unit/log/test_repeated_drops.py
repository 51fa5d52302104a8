"""A drop that the fold passed over as a repeat takes nothing out where a rollback reads it again."""

from __future__ import annotations

import msgspec

from projections.events import types as events
from projections.fold.apply import Status, apply
from projections.fold.replay import Logged, replay
from projections.policy.policy import Rules
from projections.window.window import Window
from streams.log.rollback_history import fetch_history
from tests.support.histories import KEY, PARTITION, make_event
from threadfold.testing import MemoryLog

RULES = Rules({"compaction": False})


async def test_a_window_is_the_one_of_a_replay_however_long_ago_a_drop_repeated_an_id() -> None:
    log, logged = MemoryLog(PARTITION + 1), list[Logged]()
    for n in range(10_000):
        said = (
            events.EventDropped(f"{PARTITION}-0") if n == 300 else events.Message("user", "hello")
        )
        event = make_event(said, "e1" if n == 300 else f"e{n}")
        logged.append((n, event))
        log.put(PARTITION, str(KEY).encode(), msgspec.json.encode(event))
    window = Window(KEY, PARTITION, RULES)
    statuses = [apply(window, *one).status for one in logged]
    assert statuses[300] is Status.DUPLICATE
    assert window.tail[0].offsets() is None, "only a range of the log tells of its first events"
    end = len(logged)
    back = make_event(events.Rollback(f"{PARTITION}-1"), "back")
    assert apply(window, end, back).status is Status.NEEDS_HISTORY
    history = await fetch_history(log, window, 1)
    assert apply(window, end, back, history).status is Status.APPLIED
    assert window.image() == replay(KEY, PARTITION, RULES, [*logged, (end, back)]).image()
