"""What the oracle of memories finds, of histories and stores that are made to be wrong."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.chaos.evidence import Findings, Row
from tests.chaos.learning import conversations_of, due_to_learn, judge_learning
from tests.chaos.memories import Told, judge_memories
from tests.chaos.model import Conversation

KEY = "t0/c0"


class History:
    """The log of one conversation, and what a right store shows of it."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self.told = Told()

    def put(self, kind: str, time: str | None = None, **data: Any) -> int:
        offset = len(self.rows)
        event = {"type": f"threadfold.{kind}.v1", "id": f"e{offset}", "time": time, "data": data}
        self.rows.append(Row(0, offset, KEY, json.dumps(event).encode(), 1_000 + offset))
        return offset

    def saved(self, name: str, text: str = "Likes tea @t0/c0@") -> int:
        self.told.saved.add((KEY, name))
        return self.put("memory.saved", memory_id=name, text=text)

    def learnt(self, number: int, rollback: str | None = None, **more: Any) -> int:
        """A statement of the event at an offset is learnt; returns where that stands."""
        text = f"The user does not eat tea @t0/c0@ n1x{number}."
        data = {"memory_id": f"l{number}", "text": text, "positions": [f"0-{number}"]}
        known = {} if rollback is None else {"rollback": rollback}
        return self.put("memory.saved", **{**data, "origin": "rules", **known, **more})

    def said(self) -> int:
        """A user states something; returns where."""
        text = f"I do not eat tea @t0/c0@ n1x{len(self.rows)}."
        return self.put("message", role="user", content=text)

    def topic(self, *offsets: int, **changes: Any) -> list[Row]:
        """The events at these offsets as the topic of memories has them."""
        rows = []
        for offset in offsets:
            event = json.loads(self.rows[offset].value)
            event |= {"source": "/tenants/t0/conversations/c0", "position": f"0-{offset}"}
            event["data"] |= changes
            rows.append(Row(0, len(rows), "t0/~x", json.dumps(event).encode()))
        return rows

    def voided(self, by: int, to: int) -> Row:
        """What the topic of memories says of a rollback."""
        event = {
            "type": "threadfold.memory.voided.v1",
            "id": f"voided-{by}",
            "source": "/tenants/t0/conversations/c0",
            "position": f"0-{by}",
            "data": {"by": f"0-{by}", "to": f"0-{to}"},
        }
        return Row(0, 99, "t0/~x", json.dumps(event).encode())

    def compared(self, *topic: Row, learning: str = "sessions") -> Findings:
        """What is found of the topic."""
        return judge_learning(conversations_of(self.rows), topic, learning)

    def judged(self, *records: dict[str, Any], erased: tuple[str, ...] = ()) -> Findings:
        conversation = Conversation(0, frozenset())
        for row in self.rows:
            conversation.add(row)
        shown = {"t0": list(records)}
        return judge_memories(self.rows, {KEY: conversation}, self.told, shown, erased)


def record(
    name: str,
    text: str = "Likes tea @t0/c0@",
    succeeded: int = 0,
    revision: int = 1,
    duplicates: int = 0,
) -> dict[str, Any]:
    return {
        "id": name,
        "text": text,
        "conversation": "c0",
        "use": {"succeeded": succeeded, "failed": 0},
        "revision": revision,
        "duplicates": duplicates,
    }


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
    last = record("b", "Tea at nine. @t0/c0@", revision=2)
    assert history.judged(record("a", succeeded=1), last).clean


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


def test_what_a_rollback_before_the_first_record_left_behind_may_stay_visible() -> None:
    """The topic of memories does not have that rollback: docs/memory.md, "One case"."""
    history = History()
    first, said = history.said(), history.said()
    history.put("rollback", to=f"0-{first}")
    other = history.said()
    back = history.put("rollback", to=f"0-{said}")
    history.learnt(said, rollback=f"0-{back}")
    shown = record(f"l{said}", f"The user does not eat tea @t0/c0@ n1x{said}.")
    assert history.judged(shown).clean
    history.put("rollback", to=f"0-{other}")
    assert history.judged(shown).clean and history.judged().clean
    history.put("rollback", to=f"0-{first}")
    assert "nothing in the log" in history.judged(shown).differing[0]


# -- what is learnt


def test_what_is_learnt_once_and_announced_is_clean() -> None:
    history = History()
    said = history.said()
    history.put("session.closed", reason="explicit")
    learnt = history.learnt(said)
    again = history.said()
    back = history.put("rollback", to=f"0-{learnt}")
    late = history.learnt(again)  # it knew no rollback: the fold refuses it
    topic = [*history.topic(learnt), history.voided(back, learnt)]
    assert history.compared(*topic).clean
    assert "not accepted" in history.compared(*topic, *history.topic(late)).differing[0]


def test_what_is_not_learnt_or_not_announced_is_lost() -> None:
    history = History()
    said = history.said()
    history.put("session.closed", reason="explicit")
    assert "is not learnt" in history.compared().lost[0]
    assert history.compared(learning="off").clean
    learnt = history.learnt(said)
    assert "is not on the topic" in history.compared().lost[0]
    back = history.put("rollback", to=f"0-{learnt}")
    assert "the rollback" in history.compared(*history.topic(learnt)).lost[0]
    wrong = history.voided(back, said)
    assert "the rollback" in history.compared(*history.topic(learnt), wrong).lost[0]


@pytest.mark.parametrize(
    ("learning", "due"), [("off", set()), ("sessions", {0}), ("summaries", {0})]
)
def test_what_comes_after_the_last_close_and_what_was_abandoned_is_not_due(
    learning: str, due: set[int]
) -> None:
    history = History()
    history.said()
    history.said()
    history.put("rollback", to="0-0")
    history.put("session.closed", reason="explicit")
    history.said()
    found = due_to_learn(conversations_of(history.rows)["t0/c0"], learning)
    assert set(found) == due


@pytest.mark.parametrize(("time", "doubled"), [("09:00", False), ("08:00", True)])
def test_a_statement_that_is_said_again_supersedes_again_at_its_new_time(
    time: str, doubled: bool
) -> None:
    history = History()
    first, second = history.said(), history.said()
    history.put("session.closed", reason="explicit")
    at = [history.learnt(first, time="08:00"), history.learnt(second, time="08:00")]
    over = {"memory_id": f"l{first}", "by": f"l{second}", "origin": "rules"}
    over |= {"positions": [f"0-{first}"]}
    at += [history.put("memory.superseded", time="08:00", **over)]
    at += [history.learnt(second, time="09:00", positions=[f"0-{history.said()}"])]
    at += [history.put("memory.superseded", time=time, **over)]
    found = history.compared(*history.topic(*at)).doubled
    assert bool(found) is doubled, found


def test_what_is_learnt_twice_or_private_or_another_on_the_topic_is_found() -> None:
    history = History()
    said = history.said()
    one, two = history.learnt(said), history.learnt(said)
    assert "learnt 2 times" in history.compared(*history.topic(one, two)).doubled[0]
    other = history.topic(two, text="Likes gin")
    assert "another" in history.compared(*history.topic(one), *other).differing[0]
    private = history.learnt(7, text="The user hides unsaid things", positions=[f"0-{said}"])
    found = history.compared(*history.topic(one, two, private)).differing
    assert len(found) == 2 and all("private" in text for text in found)


def test_what_was_learnt_stands_as_long_as_what_taught_it() -> None:
    history = History()
    history.said()
    history.said()
    history.learnt(0)
    history.learnt(1)
    history.put("rollback", to="0-0")
    kept = record("l0", "The user does not eat tea @t0/c0@ n1x0.")
    assert history.judged(kept).clean
    gone = record("l1", "The user does not eat tea @t0/c0@ n1x1.")
    assert "nothing in the log" in history.judged(kept, gone).differing[0]


def test_what_is_superseded_or_fused_is_as_its_log_says() -> None:
    history = History()
    for _ in range(3):
        history.said()
    for number in range(3):
        history.learnt(number)
    text = "The user does not eat tea @t0/c0@ n1x{}."
    fused = {"memory_id": "f", "text": "", "source_record_ids": ["l0", "l1", "l2"]}
    history.put("memory.fused", **fused, positions=["0-2"], origin="rules")
    history.put("memory.superseded", memory_id="l0", by="l1", positions=["0-1"], origin="rules")
    records = [record(f"l{number}", text.format(number)) for number in (1, 2)]
    both = record("f", f"{text.format(1)} {text.format(2)}")
    assert history.judged(*records, both).clean
    assert "is not shown" in history.judged(*records).lost[0]
    stale = record("f", f"{text.format(0)} {text.format(1)}")
    assert "another text" in history.judged(*records, stale).differing[0]
    found = history.judged(record("l1", text.format(1), duplicates=1), records[1], both)
    assert "duplicates" in found.doubled[0]
