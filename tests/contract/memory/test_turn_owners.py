"""Whose a turn is after its conversation was handed over, and the handing over was taken out."""

from __future__ import annotations

import random
from typing import Any

import pytest

from projections.events import types as events
from projections.fold.replay import Logged, apply_with_log, replay
from projections.names import Position
from projections.window.window import Window
from streams.memory.store import Filter
from streams.memory.turns import Said, SqliteTurns
from tests.support.histories import KEY, PARTITION, make_event
from tests.support.raw_turns import LARGE, opened, said, texts, user


def test_a_turn_is_its_users_who_had_the_conversation_when_it_was_said(
    turns: SqliteTurns,
) -> None:
    turns.apply(
        [
            said(0, user("Nobody's tea.")),
            said(1, opened("ann")),
            said(2, user("Ann's tea.")),
            said(3, opened("bob")),
            said(4, user("Bob's tea.")),
            said(5, events.Rollback("0-2")),
            said(6, user("More of Ann's tea.")),
        ],
        {},
    )
    assert set(texts(turns, "tea")) == {"Ann's tea.", "More of Ann's tea."}
    assert texts(turns, "tea", Filter("acme", user="bob")) == []


def test_a_conversation_whose_handing_over_was_taken_out_is_its_former_users(
    turns: SqliteTurns,
) -> None:
    turns.apply(
        [
            said(0, opened("ann")),
            said(1, opened("bob")),
            said(2, events.EventDropped("0-1")),
            said(3, user("Ann's tea.")),
        ],
        {},
    )
    assert texts(turns, "tea") == ["Ann's tea."]
    assert texts(turns, "tea", Filter("acme", user="bob")) == []


def test_a_handing_over_that_was_taken_out_stays_out_after_a_rollback_behind_that(
    turns: SqliteTurns,
) -> None:
    log = [(0, opened("ann")), (1, opened("bob")), (2, events.EventDropped(f"{PARTITION}-1"))]
    log += [(3, events.Rollback(f"{PARTITION}-1")), (4, user("Ann's tea."))]
    fold = [(at, make_event(data, f"e{at}")) for at, data in log]
    assert replay(KEY, PARTITION, LARGE, fold).state.user == "ann"
    turns.apply([Said(KEY, Position(PARTITION, at), at, event) for at, event in fold], {})
    assert texts(turns, "tea", Filter(KEY.tenant, user="ann")) == ["Ann's tea."]
    assert texts(turns, "tea", Filter(KEY.tenant, user="bob")) == []


def test_turns_after_a_later_opening_keep_nothing_of_a_handing_over_that_was_taken_out(
    turns: SqliteTurns,
) -> None:
    turns.apply([said(0, opened("ann", "web")), said(1, opened("bob"))], {})
    turns.apply([said(2, opened(None, "mail")), said(3, user("Ann's tea."))], {})
    turns.apply([said(4, events.EventDropped("0-1")), said(5, user("More tea."))], {})
    only = Filter("acme", user="ann", channel="mail")
    assert set(texts(turns, "tea", only)) == {"Ann's tea.", "More tea."}
    assert texts(turns, "tea", Filter("acme", user="bob")) == []


def test_turns_between_a_handing_over_and_its_being_taken_out_are_the_former_users(
    turns: SqliteTurns,
) -> None:
    turns.apply([said(0, opened("ann", "web")), said(1, user("Likes tea."))], {})
    parked = [said(2, opened("bob", "mail")), said(3, user("Drinks tea.")), said(4, user("Tea!"))]
    turns.apply([*parked, said(5, opened("carl")), said(6, user("Carl's tea."))], {})
    turns.apply([said(7, events.EventDropped("0-2")), said(8, user("Tea again."))], {})
    assert set(texts(turns, "tea")) == {"Likes tea.", "Drinks tea.", "Tea!"}
    assert set(texts(turns, "tea", Filter("acme", user="ann", channel="web"))) == {
        "Likes tea.",
        "Drinks tea.",
        "Tea!",
    }
    assert texts(turns, "tea", Filter("acme", user="bob")) == []
    assert set(texts(turns, "tea", Filter("acme", user="carl"))) == {"Carl's tea.", "Tea again."}
    assert len(turns.search(Filter("acme"), ["tea"], 10)) == 5


def test_what_was_said_after_a_rollback_behind_a_handing_over_stays_its_users(
    turns: SqliteTurns,
) -> None:
    turns.apply([said(0, opened("ann")), said(1, opened("bob")), said(2, user("Bob's tea."))], {})
    turns.apply([said(3, events.Rollback("0-0")), said(4, user("Ann's tea."))], {})
    turns.apply([said(5, events.EventDropped("0-1")), said(6, user("More tea."))], {})
    assert set(texts(turns, "tea")) == {"Ann's tea.", "More tea."}


def _random_owners(rng: random.Random) -> list[Any]:
    """What opens, says, goes back and is taken out: the last only openings."""
    log: list[Any] = [opened("ann", "web")]
    for at in range(1, rng.randint(3, 25)):
        openings = [n for n, data in enumerate(log) if isinstance(data, events.Opened)]
        chance = rng.random()
        if chance < 0.3:
            log.append(opened(rng.choice(["ann", "bob", None]), rng.choice(["web", "mail", None])))
        elif chance < 0.45:
            log.append(events.Rollback(f"{PARTITION}-{rng.randrange(at)}"))
        elif chance < 0.6:
            log.append(events.EventDropped(f"{PARTITION}-{rng.choice(openings)}"))
        else:
            log.append(user(f"Tea {at}."))
    return log


@pytest.mark.parametrize("seed", range(40))
def test_turns_are_whose_the_conversation_is_without_the_openings_that_were_taken_out(
    seed: int, turns: SqliteTurns
) -> None:
    log = _random_owners(random.Random(seed))
    gone = [data.position for data in log if isinstance(data, events.EventDropped)]
    made = [(at, make_event(data, f"e{at}", None)) for at, data in enumerate(log)]
    window, before = Window(KEY, PARTITION, LARGE), list[Logged]()
    whose: dict[str, tuple[str | None, str | None]] = {}
    for at, event in made:
        never = make_event(None, event.id) if f"{PARTITION}-{at}" in gone else event
        apply_with_log(window, at, never, before)
        before.append((at, never))
        whose[f"{PARTITION}-{at}"] = window.state.user, window.state.channel
    live = replay(KEY, PARTITION, LARGE, made).state
    assert (live.user, live.channel) == (window.state.user, window.state.channel)
    for at, event in made:
        turns.apply([Said(KEY, Position(PARTITION, at), at, event)], {})
    for hit in turns.search(Filter(KEY.tenant), ["tea"], 100):
        scope = hit.turn.scope
        assert (scope.user, scope.channel) == whose[hit.turn.position], hit.turn.text
