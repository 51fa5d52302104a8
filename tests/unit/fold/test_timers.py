"""When time calls for an event, and which: pure functions of a window and a time."""

from __future__ import annotations

import pytest

from projections.events import types as events
from projections.fold.apply import apply
from projections.fold.timers import (
    KEEP_TIMER,
    NO_TIMER,
    Timed,
    changed_timer,
    expiry_ms,
    fired,
    next_timer,
    timed,
)
from projections.storage.records import NOTHING, StoreMark, Write, write_of
from projections.window.window import Window
from tests.support.histories import KEY, PARTITION, RULES, make_event

T0 = 1_700_000_000_000


class Talk:
    """A window and the store's mark beside it; every step is one event and one write."""

    def __init__(self, idle: int = 0) -> None:
        self.window = Window(KEY, PARTITION, RULES)
        self.mark: StoreMark = NOTHING
        self.offset = 0
        if idle:
            self.say(events.Opened(policy={"idle_close_seconds": idle}))

    def say(self, data: object, at_ms: int = T0) -> Write:
        apply(self.window, self.offset, make_event(data, f"e{self.offset}", tokens=5))
        self.offset += 1
        write = write_of(self.window, self.mark, at_ms)
        self.mark = write.after
        return write


def user(text: str = "hello") -> events.Message:
    return events.Message("user", text)


def suspension(
    name: str = "s1", expires_at: str | None = "2023-11-14T22:13:25Z"
) -> events.Suspension:
    return events.Suspension(name, "approval", prompt="go on?", expires_at=expires_at)


@pytest.mark.parametrize(
    ("text", "ms"),
    [
        ("1970-01-01T00:00:01Z", 1_000),
        ("1970-01-01t00:00:01.2509z", 1_250),
        ("1970-01-01 02:00:00+01:00", 3_600_000),
        ("1969-12-31T23:59:59Z", 0),
        ("9999-12-31T23:59:59-23:59", 253_402_387_139_000),
        ("1970-01-01T00:00:01", None),
        ("1970-02-30T00:00:00Z", None),
        ("0001-01-01T00:00:00+23:59", 0),
        ("1970-01-01", None),
        ("tomorrow", None),
        ("", None),
        (None, None),
    ],
)
def test_an_expiry_is_an_rfc_3339_time_or_nothing(text: str | None, ms: int | None) -> None:
    assert expiry_ms(text) == ms


def test_the_next_thing_is_the_earlier_of_closing_and_expiring() -> None:
    assert next_timer(NO_TIMER, T0) is None
    assert next_timer(Timed(3, 5_000), T0) == T0 + 5_000
    assert next_timer(Timed(3, 5_000, T0 + 4_000), T0) == T0 + 4_000
    assert next_timer(Timed(expires=T0 - 1), T0) == T0 - 1


def test_a_window_without_timers_never_writes_one() -> None:
    talk = Talk()
    said = [
        user(),
        events.Message("assistant", "hi"),
        suspension(expires_at=None),
        suspension("s2", "soon"),
        events.Resolution("s1", "approved"),
    ]
    assert {talk.say(data).timer for data in said} == {KEEP_TIMER}
    assert fired(talk.window, T0, T0 + 10**12) == []


def test_every_message_moves_the_time_a_session_closes_and_nothing_else_does() -> None:
    talk = Talk(idle=5)
    assert talk.say(user(), T0).timer == T0 + 5_000
    assert talk.say(events.TurnEnded("t"), T0 + 100).timer == KEEP_TIMER
    assert talk.say(events.Message("assistant", "hi"), T0 + 200).timer == T0 + 5_200
    assert talk.say(events.SessionClosed("idle"), T0 + 5_300).timer is None
    assert talk.say(events.TurnEnded("t2"), T0 + 5_400).timer == KEEP_TIMER
    assert talk.say(user(), T0 + 9_000).timer == T0 + 14_000


def test_a_suspension_sets_the_timer_and_its_resolution_clears_it() -> None:
    talk = Talk()
    assert talk.say(suspension("s1")).timer == T0 + 5_000
    assert talk.say(suspension("s2", "2023-11-14T22:13:22Z")).timer == T0 + 2_000
    assert talk.say(events.Resolution("s2", "approved")).timer == T0 + 5_000
    assert talk.say(events.Resolution("s1", "approved")).timer is None


def test_what_changes_the_timer_of_an_earlier_message_is_looked_at_at_once() -> None:
    talk = Talk(idle=60)
    talk.say(user(), T0)
    assert talk.say(events.Opened(policy={"idle_close_seconds": 7}), T0 + 2_000).timer == T0 + 2_000
    assert talk.say(events.Opened(policy={}), T0 + 3_000).timer is None
    assert changed_timer(NO_TIMER, Timed(1, 60_000), T0) == T0 + 60_000


def test_a_session_that_waits_for_a_person_does_not_close_and_goes_on_from_the_answer() -> None:
    talk = Talk(idle=5)
    talk.say(user(), T0)
    assert talk.say(suspension("s1", None), T0 + 1_000).timer is None
    assert talk.say(user("and?"), T0 + 2_000).timer == KEEP_TIMER
    assert fired(talk.window, T0 + 2_000, T0 + 10**9) == []
    assert talk.say(events.Resolution("s1", "approved"), T0 + 90_000).timer == T0 + 95_000
    assert timed(talk.window).last == 4
    assert fired(talk.window, T0 + 90_000, T0 + 94_999) == []
    (flat,) = fired(talk.window, T0 + 90_000, T0 + 95_000)
    assert (flat["type"], flat["after"]) == ("session.closed", f"{PARTITION}-3")
    assert talk.say(events.ToolResult("call", "done"), T0 + 92_000).timer == T0 + 97_000
    assert timed(talk.window).last == 5


def test_a_loaded_window_has_the_mark_it_was_written_with() -> None:
    talk = Talk(idle=5)
    talk.say(user())
    write = write_of(talk.window)
    assert write.after.timed == timed(talk.window) == talk.mark.timed
    assert write_of(talk.window, write.after, T0 + 9).timer == KEEP_TIMER


def test_a_session_closes_when_it_was_idle_long_enough_and_not_a_moment_earlier() -> None:
    talk = Talk(idle=5)
    talk.say(user())
    assert fired(talk.window, T0, T0 + 4_999) == []
    (flat,) = fired(talk.window, T0, T0 + 5_000)
    assert flat.pop("id").startswith("idle-")
    assert flat == {"type": "session.closed", "reason": "idle", "after": f"{PARTITION}-1"}
    assert fired(talk.window, None, T0 + 10**9) == [], "nobody knows when its last message came"
    talk.say(events.SessionClosed("explicit"))
    assert fired(talk.window, T0, T0 + 10**9) == []


def test_of_several_suspensions_those_expire_whose_time_has_passed() -> None:
    talk = Talk(idle=5)
    talk.say(user())
    for name, end in (
        ("a", "2023-11-14T22:13:24Z"),
        ("b", "2023-11-14T22:13:20Z"),
        ("c", "never"),
        ("d", None),
    ):
        talk.say(suspension(name, end))
    assert [flat.get("suspension_id") for flat in fired(talk.window, T0, T0)] == ["b"]
    said = fired(talk.window, T0, T0 + 5_000)
    assert [(flat["suspension_id"], flat["outcome"]) for flat in said] == [
        ("a", "expired"),
        ("b", "expired"),
    ]
    assert len({flat["id"] for flat in said}) == 2


def test_what_is_said_again_has_the_same_id_and_a_rollback_gives_it_a_new_one() -> None:
    talk = Talk(idle=5)
    talk.say(user())
    first = {flat["id"] for flat in fired(talk.window, T0, T0 + 9_000)}
    talk.say(suspension())
    first |= {flat["id"] for flat in fired(talk.window, T0, T0 + 9_000)}
    talk.say(events.TurnEnded("t"))
    assert {flat["id"] for flat in fired(talk.window, T0, T0 + 99_000)} < first and len(first) == 2
    talk.say(events.SessionClosed("idle", f"{PARTITION}-1"))
    talk.say(events.Rollback(f"{PARTITION}-2"))
    again = {flat["id"] for flat in fired(talk.window, T0, T0 + 9_000)}
    talk.say(events.Rollback(f"{PARTITION}-1"))
    again |= {flat["id"] for flat in fired(talk.window, T0, T0 + 9_000)}
    assert len(again) == 2 and not again & first
