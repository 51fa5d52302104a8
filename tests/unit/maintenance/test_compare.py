"""What a verification expects beside a window."""

from __future__ import annotations

from projections.names import Key
from projections.storage.records import Index
from streams.maintenance.compare import misplaced
from tests.support.memories import OWN, USER, TaughtLog, saved


def test_a_conversation_belongs_into_the_recent_ones_and_a_users_own_log_does_not() -> None:
    own, talk = TaughtLog(OWN, 0), TaughtLog(Key("acme", "c1"), 0)
    for log in (own, talk):
        log.put(saved(log.key, "Likes tea.", user=USER if log is own else None))
    nothing = Index({}, {}, {})
    assert "it is missing in the recent conversations" in misplaced(nothing, talk.window)
    assert "it is missing in the recent conversations" not in misplaced(nothing, own.window)
    listed = Index({}, {}, {"recent:acme": {OWN.conversation: 1, "c1": 1}})
    assert "it is wrongly in the recent conversations" in misplaced(listed, own.window)
    assert "it is wrongly in the recent conversations" not in misplaced(listed, talk.window)
