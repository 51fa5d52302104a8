"""What the oracle of memories finds, of histories and stores that are made to be wrong."""

from __future__ import annotations

import json
from typing import Any

from tests.chaos.evidence import Findings, Row
from tests.chaos.memories import Told, judge_memories
from tests.chaos.model import Conversation

KEY = "t0/c0"


class History:
    """The log of one conversation, and what a right store shows of it."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.told = Told()

    def put(self, kind: str, **data: Any) -> int:
        offset = len(self.rows)
        event = {"type": f"threadfold.{kind}.v1", "id": f"e{offset}", "data": data}
        self.rows.append(Row(0, offset, KEY, json.dumps(event).encode(), 1_000 + offset))
        return offset

    def saved(self, name: str, text: str = "Likes tea @t0/c0@") -> int:
        self.told.saved.add((KEY, name))
        return self.put("memory.saved", memory_id=name, text=text)

    def judged(self, *records: dict[str, Any], erased: tuple[str, ...] = ()) -> Findings:
        conversation = Conversation(0, frozenset())
        for row in self.rows:
            conversation.add(row)
        shown = {"t0": list(records)}
        return judge_memories(self.rows, {KEY: conversation}, self.told, shown, erased)


def record(name: str, text: str = "Likes tea @t0/c0@", succeeded: int = 0) -> dict[str, Any]:
    use = {"succeeded": succeeded, "failed": 0}
    return {"id": name, "text": text, "conversation": "c0", "use": use}


def test_a_right_store_is_clean_after_rollbacks_deletions_and_outcomes() -> None:
    history = History()
    history.saved("a")
    kept = history.saved("b", "Tea at six. @t0/c0@")
    history.saved("c")
    history.put("rollback", to=f"0-{kept}")
    history.saved("b", "Tea at nine. @t0/c0@")
    history.put("memory.outcome", memory_id="a", succeeded=True)
    history.told.outcomes["a"] = 1
    history.saved("d")
    history.put("memory.deleted", memory_id="d")
    assert history.judged(record("a", succeeded=1), record("b", "Tea at nine. @t0/c0@")).clean


def test_what_is_missing_or_was_never_logged_is_lost() -> None:
    history = History()
    history.saved("a")
    assert "is not shown" in history.judged().lost[0]
    history.told.saved.add((KEY, "z"))
    assert "is not in the log" in history.judged(record("a")).lost[0]
    history.told.outcomes["a"] = 1
    assert any("outcomes were acknowledged" in one for one in history.judged(record("a")).lost)


def test_what_counts_twice_is_doubled() -> None:
    history = History()
    history.saved("a")
    assert history.judged(record("a"), record("a")).doubled
    assert history.judged(record("a", succeeded=1)).doubled
    history.put("memory.outcome", memory_id="a", succeeded=True)
    assert "outcomes are in the log" in history.judged(record("a", succeeded=1)).doubled[0]
    history.told.maybe["a"] = 1
    assert history.judged(record("a", succeeded=1)).clean


def test_foreign_stale_rolled_back_deleted_and_erased_text_differs() -> None:
    history = History()
    at = history.saved("a")
    assert "text of" in history.judged(record("a", "Likes gin @t1/c0@")).differing[0]
    assert "another text" in history.judged(record("a", "Likes gin @t0/c0@")).differing[0]
    assert "erased" in history.judged(record("a"), erased=(KEY,)).differing[0]
    history.saved("b")
    history.put("rollback", to=f"0-{at}")
    assert "nothing in the log" in history.judged(record("a"), record("b")).differing[0]
    history.put("memory.deleted", memory_id="a", hard=True)
    assert "nothing in the log" in history.judged(record("a")).differing[0]
