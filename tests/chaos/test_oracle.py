"""The oracle can fail: each way in which a run may be wrong is put into an honest one, and has to
be reported.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from dataclasses import replace
from hashlib import sha256
from typing import Any

import pytest

from tests.chaos.evidence import Ack, Evidence, Flat, Row, Seen
from tests.chaos.model import SUSPENSIONS, Conversation
from tests.chaos.oracle import judge

KEY, OTHER = "t0/c0", "t1/c0"
SUMMARY, ROLLBACK, REPEAT = 4, 7, 8
"""Offsets of the honest run: messages 0 to 3, a summary of the first two, messages 5 and 6, a
rollback to 5, a repeat of 3, a message 9.
"""


def text(number: int, key: str = KEY) -> str:
    return f"Words of @{key}@ number {number}."


def row(offset: int, name: str, kind: str, data: Flat, key: str = KEY) -> Row:
    event = {
        "specversion": "1.0",
        "id": name,
        "type": f"threadfold.{kind}.v1",
        "source": "/tenants/t0/conversations/c0",
        "data": data,
    }
    return Row(0, offset, key, json.dumps(event).encode())


def message(number: int) -> Flat:
    return {"role": "user", "content": text(number)}


def summary() -> Flat:
    digest = sha256(sha256(b"e0").digest() + sha256(b"e1").digest()).hexdigest()
    span = {
        **{"from": "0-0", "to": "0-1", "count": 2, "positions": [0, 1]},
        **{"digest": digest, "stands": "11"},
    }
    told = {
        "summary_id": "s1",
        "text": text(99),
        "tokens": 9,
        "span": span,
        "previous": None,
        "summarizer": "extractive",
    }
    return {
        **told,
        "reason": "budget",
        "trust": "user",
        "policy": "",
        "tokens_before": 50,
        "tokens_after": 9,
    }


def honest() -> Evidence:
    """A run in which everything is as it should be."""
    log = [row(i, f"e{i}", "message", message(i)) for i in range(4)]
    log.append(row(SUMMARY, "summary-s1", "summary", summary()))
    log += [row(i, f"e{i}", "message", message(i)) for i in (5, 6)]
    log.append(row(ROLLBACK, "back", "rollback", {"to": "e5"}))
    log.append(row(REPEAT, "e3", "message", message(3)))
    log.append(row(9, "e9", "message", message(9)))
    acks = [
        Ack(KEY, f"e{i}", f"0-{i}", {"type": "message", "id": f"e{i}", **message(i)}, 1, i)
        for i in (0, 1, 2, 3, 5, 6, 9)
    ]
    acks.append(
        Ack(KEY, "back", f"0-{ROLLBACK}", {"type": "rollback", "id": "back", "to": "e5"}, 2, 0)
    )
    digest = bytes(32)
    applied = ["e0", "e1", "e2", "e3", "summary-s1", "e5", "e6", "back", "e9"]
    for name in applied:
        digest = sha256(digest + sha256(name.encode()).digest()).digest()
    shown: list[Flat] = [
        {"type": "summary", "summary_id": "s1", "text": text(99), "position": f"0-{SUMMARY}"}
    ]
    shown += [{"type": "message", **message(i), "position": f"0-{i}"} for i in (2, 3, 5, 9)]
    told = {
        "count": len(applied),
        "digest": digest.hex(),
        "position": "0-9",
        "suspensions": [],
        "summary": {"summary_id": "s1"},
    }
    history = [
        {"id": json.loads(r.value)["id"], "position": r.position, **json.loads(r.value)["data"]}
        for r in reversed(log)
    ]
    history = [event for event in history if event["position"] != f"0-{REPEAT}"]
    seen = Seen({**told, "messages": shown}, {**told, "messages": []}, history, [summary()])
    return Evidence(acks, log, [replace(log[SUMMARY])], {KEY: seen})


def window(evidence: Evidence) -> Any:
    return evidence.windows[KEY].events


def test_an_honest_run_is_clean() -> None:
    findings = judge(honest())
    assert findings.clean, findings
    assert findings.acknowledged == 8


def _not_in_the_log(evidence: Evidence) -> None:
    evidence.log[3] = row(3, "e3x", "message", message(3))


def _not_in_the_window(evidence: Evidence) -> None:
    del window(evidence)["messages"][2]


def _not_counted(evidence: Evidence) -> None:
    window(evidence)["count"] -= 1


def _not_in_the_history(evidence: Evidence) -> None:
    del evidence.windows[KEY].history[2]


def _no_window(evidence: Evidence) -> None:
    del evidence.windows[KEY]


def _not_covered(evidence: Evidence) -> None:
    # A summary that says it reaches further than what it covers.
    data = summary()
    data["span"] = {**data["span"], "to": "0-2"}
    evidence.log[SUMMARY] = row(SUMMARY, "summary-s1", "summary", data)
    evidence.summaries = [evidence.log[SUMMARY]]
    evidence.windows[KEY].summaries = [data]


def _twice_in_the_window(evidence: Evidence) -> None:
    messages = window(evidence)["messages"]
    messages.insert(2, copy.deepcopy(messages[2]))


def _in_window_and_summary(evidence: Evidence) -> None:
    window(evidence)["messages"].insert(1, {"type": "message", **message(1), "position": "0-1"})


def _counted_twice(evidence: Evidence) -> None:
    window(evidence)["count"] += 1


def _repeat_in_the_history(evidence: Evidence) -> None:
    evidence.windows[KEY].history.insert(1, {"id": "e3", "position": f"0-{REPEAT}", **message(3)})


def _twice_in_the_history(evidence: Evidence) -> None:
    history = evidence.windows[KEY].history
    history.insert(0, copy.deepcopy(history[0]))


def _wrong_order_in_the_window(evidence: Evidence) -> None:
    messages = window(evidence)["messages"]
    messages[1], messages[2] = messages[2], messages[1]


def _wrong_order_of_a_producer(evidence: Evidence) -> None:
    evidence.acks[0], evidence.acks[1] = (
        replace(evidence.acks[0], number=1),
        replace(evidence.acks[1], number=0),
    )


def _foreign_text_in_the_window(evidence: Evidence) -> None:
    evidence.windows[KEY].openai["messages"] = [{"role": "user", "content": text(3, OTHER)}]


def _foreign_text_in_a_summary(evidence: Evidence) -> None:
    evidence.windows[KEY].summaries[0]["text"] = text(1, OTHER)


def _changed_text(evidence: Evidence) -> None:
    window(evidence)["messages"][2]["content"] += "!"


def _changed_in_the_log(evidence: Evidence) -> None:
    evidence.log[3] = row(3, "e3", "message", message(4))


def _rolled_back_text(evidence: Evidence) -> None:
    window(evidence)["messages"].insert(4, {"type": "message", **message(6), "position": "0-6"})


def _wrong_digest(evidence: Evidence) -> None:
    window(evidence)["digest"] = evidence.windows[KEY].openai["digest"] = "0" * 64


def _summary_not_announced(evidence: Evidence) -> None:
    evidence.summaries = []


def _another_summary_announced(evidence: Evidence) -> None:
    evidence.summaries.append(row(3, "summary-s2", "summary", {**summary(), "summary_id": "s2"}))


def _window_stands_behind(evidence: Evidence) -> None:
    window(evidence)["position"] = "0-6"


def _suspension_of_nobody(evidence: Evidence) -> None:
    window(evidence)["suspensions"] = [{"suspension_id": "x"}]


def _void_without_a_rollback(evidence: Evidence) -> None:
    evidence.summaries.append(
        row(5, "voided-s1", "summary.voided", {"summary_id": "s1", "by": "0-7"})
    )


def _void_and_not_said(evidence: Evidence) -> None:
    evidence.log.append(row(10, "far-back", "rollback", {"to": "e0"}))


def _result_without_a_call(evidence: Evidence) -> None:
    evidence.windows[KEY].openai["messages"] = [
        {"role": "tool", "tool_call_id": "c1", "content": text(2)}
    ]


def _abandoned_text_in_a_summary(evidence: Evidence) -> None:
    data = {**summary(), "text": f"{text(1)} Nobody says this any more: n7x1."}
    evidence.log[SUMMARY] = row(SUMMARY, "summary-s1", "summary", data)
    evidence.summaries = [evidence.log[SUMMARY]]


def _standing_event_marked_as_abandoned(evidence: Evidence) -> None:
    data = summary()
    data["span"]["stands"] = "10"
    evidence.log[SUMMARY] = row(SUMMARY, "summary-s1", "summary", data)
    evidence.summaries = [evidence.log[SUMMARY]]


def _garbage_without_a_dead_letter(evidence: Evidence) -> None:
    evidence.log.append(Row(0, 10, "garbage", b"{}"))


@pytest.mark.parametrize(
    ("wrong", "kind", "words"),
    [
        (_abandoned_text_in_a_summary, "differing", "text that does not stand: ['n7x1']"),
        (_standing_event_marked_as_abandoned, "differing", "marks [1] wrongly"),
        (_garbage_without_a_dead_letter, "lost", "at 0-10 is no event, and has no dead letter"),
        (_not_in_the_log, "lost", "e3 was acknowledged at 0-3"),
        (_not_in_the_window, "lost", "e3 at 3 is neither in the window nor in a summary"),
        (_not_counted, "lost", "counts 8 events"),
        (_not_in_the_history, "lost", "is not in the history"),
        (_no_window, "lost", "has no window"),
        (_not_covered, "differing", "leaves out [2]"),
        (_twice_in_the_window, "doubled", "at 3 is in the window more than once"),
        (_in_window_and_summary, "doubled", "at 1 is in the window and in a summary"),
        (_counted_twice, "doubled", "counts 10 events"),
        (_repeat_in_the_history, "doubled", "at 8, a repeat"),
        (_twice_in_the_history, "doubled", "at 9 is in the history more than once"),
        (_wrong_order_in_the_window, "differing", "in another order"),
        (_wrong_order_of_a_producer, "differing", "producer 1 sent it before"),
        (_foreign_text_in_the_window, "differing", "the window holds text of t1/c0"),
        (_foreign_text_in_a_summary, "differing", "the summaries holds text of t1/c0"),
        (_changed_text, "differing", "at 3 is not in the window as it is in the log"),
        (_changed_in_the_log, "differing", "e3 at 0-3 is not as it was sent"),
        (_rolled_back_text, "differing", "at 6 is in the window, though"),
        (_wrong_digest, "differing", "digest is not that of the ids"),
        (_summary_not_announced, "differing", "could be taken and was not"),
        (_another_summary_announced, "differing", "s2 was announced, and is not so in the log"),
        (_window_stands_behind, "differing", "stands at 0-6"),
        (_suspension_of_nobody, "differing", "other suspensions"),
        (_void_and_not_said, "differing", "lost their force, and that is not the last word"),
        (_result_without_a_call, "differing", "no provider takes the context"),
        (_void_without_a_rollback, "differing", "no rollback made them so"),
    ],
)
def test_what_is_wrong_is_reported(
    wrong: Callable[[Evidence], None], kind: str, words: str
) -> None:
    evidence = honest()
    wrong(evidence)
    findings = judge(evidence)
    assert any(words in found for found in getattr(findings, kind)), findings


@pytest.mark.parametrize(("policy", "reported"), [("new", True), ("old", False)])
def test_a_summary_that_another_policy_refuses_is_no_fault(policy: str, reported: bool) -> None:
    evidence = honest()
    first = {**summary(), "policy": policy}
    later = {**summary(), "summary_id": "s2", "policy": "new", "previous": "s1"}
    evidence.log[SUMMARY] = row(SUMMARY, "summary-s1", "summary", first)
    evidence.log.append(row(10, "summary-s2", "summary", later))
    evidence.summaries = []
    found = [one for one in judge(evidence).differing if "could be taken and was not" in one]
    assert bool(found) == reported, found


@pytest.mark.parametrize(
    ("to", "by", "reported"), [("e1", "0-10", False), ("e1", "0-7", True), ("e2", "0-10", True)]
)
def test_a_rollback_to_the_end_of_a_later_summary_may_put_it_out_of_force_and_one_behind_it_not(
    to: str, by: str, reported: bool
) -> None:
    evidence = honest()
    evidence.log.append(row(10, "far-back", "rollback", {"to": to}))
    said = {"summary_id": "s1", "by": by}
    evidence.summaries.append(row(5, "voided-s1", "summary.voided", said))
    found = judge(evidence).differing
    assert any("no rollback made them so" in one for one in found) is reported


@pytest.mark.parametrize(
    ("calls", "knew", "reported"), [(True, "0-7", False), (True, None, True), (False, "0-7", True)]
)
def test_a_rollback_that_restores_a_call_may_put_summaries_out_of_force_that_knew_another_rollback(
    calls: bool, knew: str | None, reported: bool
) -> None:
    evidence = honest()
    if calls:
        call = {"id": "c1", "name": "book", "arguments": "{}"}
        evidence.log[1] = row(1, "e1", "message", {"role": "assistant", "tool_calls": [call]})
    later = {**summary(), "summary_id": "s2", "previous": "s1", "rollback": knew}
    later["span"] = {"from": "0-2", "to": "0-2", "count": 1, "positions": [2], "stands": "1"}
    later["span"]["digest"] = sha256(sha256(b"e2").digest()).hexdigest()
    evidence.log.append(row(10, "summary-s2", "summary", later))
    evidence.log.append(row(11, "far-back", "rollback", {"to": "e3"}))
    said = {"summary_id": "s2", "by": "0-11"}
    evidence.summaries += [evidence.log[10], row(5, "voided-s2", "summary.voided", said)]
    found = judge(evidence).differing
    assert any("no rollback made them so" in one for one in found) is reported, found


def test_the_oldest_suspensions_beyond_a_windows_limit_do_not_wait() -> None:
    conversation = Conversation(0, frozenset())
    for number in range(SUSPENSIONS + 2):
        asked = {"suspension_id": f"a{number}", "kind": "input"}
        conversation.add(row(number, f"e{number}", "suspension", asked))
    waiting = [f"a{number}" for number in range(2, SUSPENSIONS + 2)]
    assert conversation.open_suspensions() == waiting
