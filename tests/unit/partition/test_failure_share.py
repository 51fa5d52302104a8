"""The share of failing folds beyond which a partition halts."""

from __future__ import annotations

from collections.abc import Sequence

from streams.partition.failure_share import LEAST, WINDOW, Excess, Failing, FailureShare


def count(
    share: FailureShare, partition: int, offsets: Sequence[int], bad: Sequence[Failing]
) -> Excess | None:
    """Count a batch of these events, behind which one more record is nobody's."""
    return share.count(partition, offsets, bad, offsets[-1] + 1)


def failing(*offsets: int) -> list[Failing]:
    return [Failing(offset, "it fails") for offset in offsets]


def test_too_large_a_share_is_reported_with_its_size_the_last_failure_and_how_far_was_folded() -> (
    None
):
    share = FailureShare(0.1)
    assert count(share, 0, range(100), failing(*range(LEAST - 1))) is None
    excess = count(share, 0, range(100, 110), failing(105))
    assert excess == Excess(LEAST, 110, Failing(105, "it fails"), 110)


def test_a_few_failures_at_the_begin_are_no_share() -> None:
    assert count(FailureShare(0.0), 0, range(LEAST - 1), failing(*range(LEAST - 1))) is None


def test_each_partition_has_a_share_of_its_own() -> None:
    share = FailureShare(0.5)
    half = LEAST // 2
    assert count(share, 0, range(half), failing(*range(half))) is None
    assert count(share, 1, range(half), failing(*range(half))) is None
    assert count(share, 1, range(half, LEAST), failing(*range(half, LEAST))) is not None


def test_the_share_is_of_the_last_events_only() -> None:
    share = FailureShare(0.1)
    assert count(share, 0, range(1000), failing(*range(0, 1000, 10))) is None
    assert count(share, 0, range(1000, 1000 + WINDOW), []) is None
    assert count(share, 0, range(3000, 3100), failing(*range(3000, 3100))) is None
    assert count(share, 0, range(3100, 3101), failing(3100)) is not None


def test_a_batch_that_is_folded_twice_and_what_was_counted_before_a_restart_count_once() -> None:
    share = FailureShare(0.5)
    for _ in range(5):
        assert count(share, 0, range(40), failing(*range(15))) is None
    share.begin(1, 500)
    assert count(share, 1, range(500), failing(*range(500))) is None
    assert count(share, 1, range(500, 560), failing(*range(500, 560))) is not None


def test_a_share_of_one_never_halts() -> None:
    assert count(FailureShare(1.0), 0, range(5000), failing(*range(5000))) is None


def test_in_a_log_that_was_made_anew_the_same_offsets_are_counted_again() -> None:
    share = FailureShare(0.5)
    count(share, 0, range(1000), [])
    share.forget(0)
    assert count(share, 0, range(1001), failing(*range(1001))) is not None


def test_what_was_accepted_counts_no_more_but_as_many_failures_again_do() -> None:
    share = FailureShare(0.1)
    assert count(share, 0, range(LEAST), failing(*range(LEAST))) is not None
    share.accept(0)
    rest = range(LEAST, 2 * LEAST)
    assert count(share, 0, range(LEAST, 2 * LEAST - 1), failing(*rest[:-1])) is None
    assert count(share, 0, rest[-1:], failing(rest[-1])) is not None
