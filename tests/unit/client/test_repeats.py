"""What a subscription takes for a repeat."""

from __future__ import annotations

from threadfold_client.subscription import (
    Seen,
    StreamEvent,
    conversation_identity,
    summary_identity,
)


def test_a_summary_comes_again_after_its_voiding_and_each_once() -> None:
    sent = ["summary", "summary", "voided", "voided", "summary", "summary", "voided", "summary"]
    seen, given = Seen(), list[str]()
    for i, kind in enumerate(sent):
        event = StreamEvent(kind, f"c{i}", {"id": f"e{i}", "summary_id": "s1"})
        if seen.add(summary_identity(event), kind):
            given.append(kind)
    assert given == ["summary", "voided", "summary", "voided", "summary"]


def test_an_event_of_a_conversation_comes_once_whatever_came_since() -> None:
    seen = Seen()
    sent = [("event", "0-1"), ("summary", "0-1"), ("event", "0-2"), ("event", "0-1")]
    events = [StreamEvent(kind, at, {}) for kind, at in sent]
    new = [seen.add(conversation_identity(one), one.event) for one in events]
    assert new == [True, True, True, False]
    assert conversation_identity(StreamEvent("state", None, {})) is None


def test_the_oldest_is_forgotten_first() -> None:
    seen = Seen(limit=2)
    assert [seen.add(name, "event") for name in ("a", "b", "a", "c", "a")] == [
        True,
        True,
        False,
        True,
        True,
    ]
