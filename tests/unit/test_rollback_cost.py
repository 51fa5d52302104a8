"""Many rollbacks beyond the window, each over the ones before it, cost one fold of the log."""

from __future__ import annotations

import time

from projections import events
from projections.policy import Rules
from projections.replay import Logged, replay
from tests.support.histories import KEY, PARTITION, make_event


def test_rollbacks_over_rollbacks_do_not_double_the_time_of_a_replay() -> None:
    log: list[Logged] = []
    for k in range(40):
        target = len(log)
        for text in "abc":
            log.append((len(log), make_event(events.Message("user", text), f"e{len(log)}", 5)))
        log.append((len(log), make_event(events.Rollback(f"{PARTITION}-{target}"), f"e{len(log)}")))
        del k
    begun = time.monotonic()
    window = replay(KEY, PARTITION, Rules({"working_budget": 1, "compaction": False}), log)
    assert time.monotonic() - begun < 5
    assert window.meta.count == len(log)
