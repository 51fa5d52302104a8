"""Turns and their leases: who holds a conversation, in the log's order."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from projections.events import types as events
from projections.events.types import AnyEvent
from projections.fold.apply import Outcome, Status, apply
from projections.fold.replay import replay
from projections.fold.timers import KEEP_TIMER, changed_timer, fired, timed
from projections.names import Key
from projections.policy.policy import Rules
from projections.render.read_header import state_of
from projections.window.turns import MAX_WAITING, Turns
from projections.window.window import Window

KEY = Key("acme", "c")
SOURCE = KEY.source


class Talk:
    """A conversation whose events are folded as they come."""

    def __init__(self) -> None:
        self.window = Window(KEY, 0, Rules())
        self.log: list[tuple[int, AnyEvent]] = []

    def put(self, event: AnyEvent) -> Outcome:
        offset = len(self.log) + 10
        outcome = apply(self.window, offset, event)
        self.log.append((offset, event))
        assert replay(KEY, 0, Rules(), self.log).image() == self.window.image()
        return outcome

    def _envelope(self, fence: int | None) -> dict[str, Any]:
        return {"specversion": "1.0", "id": f"e{len(self.log)}", "source": SOURCE, "fence": fence}

    def begin(
        self, turn: str, policy: str | None = "reject", seconds: int = 60, fence: int | None = None
    ) -> Outcome:
        lease = None if policy is None else {"policy": policy, "seconds": seconds}
        return self.put(
            events.TurnStartedEvent(
                data=events.TurnStarted(turn, lease=lease), **self._envelope(fence)
            )
        )

    def end(self, turn: str, lease: object = None, fence: int | None = None) -> Outcome:
        return self.put(
            events.TurnEndedEvent(data=events.TurnEnded(turn, lease=lease), **self._envelope(fence))
        )

    def say(
        self, text: str = "hello", fence: int | None = None, role: Any = "assistant"
    ) -> Outcome:
        return self.put(
            events.MessageEvent(data=events.Message(role, text), **self._envelope(fence))
        )

    def call(self) -> Outcome:
        calls = [events.ToolCall("a", "look", "{}")]
        return self.put(
            events.MessageEvent(
                data=events.Message("assistant", None, tool_calls=calls), **self._envelope(None)
            )
        )

    @property
    def turns(self) -> Turns:
        return self.window.meta.turns or Turns()

    @property
    def live(self) -> str | None:
        return self.turns.live.turn_id if self.turns.live else None


def test_a_second_turn_is_rejected_while_one_is_under_way() -> None:
    talk = Talk()
    assert talk.begin("a").status is Status.APPLIED
    outcome = talk.begin("b")
    assert (outcome.status, outcome.reason) == (Status.REJECTED, "turn a is active")
    assert talk.live == "a"


def test_turns_that_wait_follow_each_other_in_the_order_they_came() -> None:
    talk = Talk()
    talk.begin("a", "queue")
    talk.begin("b", "queue")
    talk.begin("c", "queue")
    assert [turn.turn_id for turn in talk.turns.waiting] == ["b", "c"]
    talk.end("a")
    assert talk.live == "b"
    assert state_of(talk.window.state) == "active", "the next turn is at work"
    talk.end("b")
    assert talk.live == "c"
    talk.end("c")
    assert talk.live is None and state_of(talk.window.state) == "awaiting_input"


def test_a_turn_that_interrupts_ends_the_one_before_and_its_open_calls_are_dead() -> None:
    talk = Talk()
    talk.begin("a")
    talk.call()
    assert not talk.window.state.calls[0].dead
    talk.begin("b", "interrupt")
    assert talk.live == "b" and talk.window.state.calls[0].dead


def test_every_holder_has_a_larger_token_than_those_before_it() -> None:
    talk = Talk()
    tokens = []
    talk.begin("a", "queue")
    tokens.append(talk.turns.token)
    talk.begin("b", "queue")
    talk.begin("c", "interrupt")
    tokens.append(talk.turns.token)
    talk.end("c")
    tokens.append(talk.turns.token)
    assert talk.live == "b"
    assert tokens == sorted(tokens, key=lambda token: token or 0) and len(set(tokens)) == 3


def test_what_a_turn_that_is_over_appends_is_rejected() -> None:
    talk = Talk()
    talk.begin("a")
    token = talk.turns.token
    assert talk.say("by a", fence=token).status is Status.APPLIED
    talk.begin("b", "interrupt")
    late = talk.say("late, by a", fence=token)
    assert (
        late.status is Status.REJECTED
        and f"fencing token {token} is not that of the active turn" in (late.reason or "")
    )
    assert talk.say("without a token, nobody is kept out").status is Status.APPLIED
    talk.end("b")
    assert talk.say("after all turns", fence=token).status is Status.REJECTED


def test_a_turn_that_ends_by_its_token_after_it_was_interrupted_leaves_the_next_one_alone() -> None:
    talk = Talk()
    talk.begin("a")
    token = talk.turns.token
    talk.begin("b", "interrupt")
    assert talk.end("a", fence=token).status is Status.REJECTED
    assert talk.end("a").status is Status.REJECTED
    assert talk.live == "b"


def test_a_waiting_turn_can_leave_and_a_turn_waits_only_once() -> None:
    talk = Talk()
    talk.begin("a", "queue")
    talk.begin("b", "queue")
    assert talk.begin("b", "queue").reason == "the turn is already waiting"
    assert talk.end("b").status is Status.APPLIED
    assert talk.turns.waiting == () and talk.live == "a"


def test_no_more_turns_wait_than_a_window_may_hold() -> None:
    talk = Talk()
    for i in range(MAX_WAITING + 1):
        assert talk.begin(f"t{i}", "queue").status is Status.APPLIED
    assert talk.begin("one more", "queue").reason == f"{MAX_WAITING} turns are already waiting"


def test_a_turn_without_a_lease_keeps_nobody_out() -> None:
    talk = Talk()
    assert talk.begin("a", None).status is Status.APPLIED
    assert talk.live is None
    assert talk.begin("b").status is Status.APPLIED and talk.live == "b"


def test_a_renewal_needs_the_token_and_moves_the_time_not_the_token() -> None:
    talk = Talk()
    talk.begin("a")
    assert talk.begin("a", "interrupt").reason == "turn a is already active"
    before = talk.turns.live
    assert before is not None
    assert talk.begin("a", fence=before.token).status is Status.APPLIED
    after = talk.turns.live
    assert after is not None and after.token == before.token and after.since > before.since


def test_a_lease_that_ran_out_ends_its_turn_by_an_event_that_a_renewal_outdates() -> None:
    talk = Talk()
    none = timed(talk.window)
    talk.begin("a", seconds=5)
    assert changed_timer(none, timed(talk.window), 1_000) == 6_000
    assert fired(talk.window, None, 5_999, 1_000) == []
    assert fired(talk.window, None, 10**9, None) == [], "nobody knows when it began"
    (flat,) = fired(talk.window, None, 6_000, 1_000)
    first = timed(talk.window)
    talk.begin("a", seconds=5, fence=talk.turns.token)
    assert changed_timer(first, timed(talk.window), 3_000) == 8_000
    assert talk.end("a", flat["lease"]).reason == "the turn was renewed"
    (flat,) = fired(talk.window, None, 8_000, 3_000)
    assert talk.end("a", flat["lease"]).status is Status.APPLIED
    assert talk.live is None and timed(talk.window) == none
    assert talk.end("a", flat["lease"]).reason == "the turn has already ended"


def test_a_message_leaves_the_time_of_a_lease_as_it_is() -> None:
    talk = Talk()
    talk.begin("a", seconds=5)
    before = timed(talk.window)
    talk.say()
    assert changed_timer(before, timed(talk.window), 9_000) == KEEP_TIMER


def test_a_rollback_leaves_the_turn_in_force() -> None:
    talk = Talk()
    talk.say("first", role="user")
    talk.begin("a")
    token = talk.turns.token
    talk.put(
        events.RollbackEvent(
            specversion="1.0", id="r", source=SOURCE, fence=token, data=events.Rollback("0-10")
        )
    )
    assert talk.turns.token == token and talk.say("again", fence=token).status is Status.APPLIED


@pytest.mark.parametrize(
    "lease",
    [
        {"policy": "take it"},
        {"seconds": 3},
        {"policy": "queue", "seconds": -1},
        ["queue"],
        {"policy": "queue", "seconds": "x"},
    ],
)
def test_what_is_no_lease_of_ours_is_a_turn_without_one(lease: Any) -> None:
    talk = Talk()
    event = events.TurnStartedEvent(
        specversion="1.0", id="x", source=SOURCE, data=events.TurnStarted("a", lease=lease)
    )
    assert talk.put(event).status is Status.APPLIED and talk.live is None


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["queue", "reject", "interrupt", "end", "expire", "late"]),
            st.integers(0, 5),
        ),
        max_size=60,
    )
)
def test_never_two_holders_and_tokens_only_grow(steps: list[tuple[str, int]]) -> None:
    talk, best, held = Talk(), -1, {}
    for what, number in steps:
        turn = f"t{number}"
        if what == "end":
            talk.end(turn)
        elif what == "expire":
            since = talk.turns.live.since if talk.turns.live else 0
            talk.end(turn, {"reason": "expired", "since": f"0-{since}"})
        elif what == "late":
            old = held.get(turn, -1)
            assert (talk.say(fence=old).status is Status.APPLIED) == (old == talk.turns.token)
        else:
            talk.begin(turn, what)
        token = talk.turns.token
        if token is not None:
            assert token >= best
            best = token
            held[talk.live or ""] = token
        waiting = [item.turn_id for item in talk.turns.waiting]
        assert len(set(waiting)) == len(waiting) and talk.live not in waiting
