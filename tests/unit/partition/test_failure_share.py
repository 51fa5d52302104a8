"""The share of poison beyond which a worker stops."""

from __future__ import annotations

import pytest

from projections.errors import TooMuchPoison
from projections.names import Position
from streams.partition.effects import DeadLetter
from streams.partition.failure_share import LEAST, WINDOW, FailureShare


def dead(*offsets: int, kind: str = "record") -> list[DeadLetter]:
    return [DeadLetter(Position(0, offset), b"k", "it is junk", kind) for offset in offsets]


def test_too_large_a_share_is_told_with_the_share_the_last_position_and_its_cause() -> None:
    share = FailureShare(0.1, {})
    share.count(0, range(100), dead(*range(0, LEAST - 1)))
    with pytest.raises(
        TooMuchPoison,
        match=r"^20 of the last 110 records .* share of 0\.1 .* the last is 0-105, it is junk;",
    ):
        share.count(0, range(100, 110), dead(105))


def test_a_few_bad_records_at_the_begin_are_no_share() -> None:
    FailureShare(0.0, {}).count(0, range(LEAST - 1), dead(*range(LEAST - 1)))


def test_what_waits_in_quarantined_conversations_is_no_poison() -> None:
    FailureShare(0.1, {}).count(0, range(100), dead(*range(100), kind="waiting"))


def test_the_share_is_of_the_last_records_only() -> None:
    share = FailureShare(0.1, {})
    share.count(0, range(1000), dead(*range(0, 1000, 10)))
    share.count(0, range(1000, 1000 + WINDOW), [])
    share.count(0, range(3000, 3100), dead(*range(3000, 3100)))
    with pytest.raises(TooMuchPoison):
        share.count(0, range(3100, 3101), dead(3100))


def test_a_batch_that_is_folded_twice_and_what_was_let_pass_before_a_restart_count_once() -> None:
    share = FailureShare(0.5, {1: 500})
    for _ in range(5):
        share.count(0, range(40), dead(*range(15)))
    share.count(1, range(500), dead(*range(500)))
    with pytest.raises(TooMuchPoison):
        share.count(1, range(500, 560), dead(*range(500, 560)))


def test_a_share_of_one_never_stops() -> None:
    FailureShare(1.0, {}).count(0, range(5000), dead(*range(5000)))


def test_in_a_log_that_was_made_anew_the_same_offsets_are_counted_again() -> None:
    share = FailureShare(0.5, {})
    share.count(0, range(1000), [])
    share.forget(0)
    with pytest.raises(TooMuchPoison):
        share.count(0, range(1001), dead(*range(1001)))
