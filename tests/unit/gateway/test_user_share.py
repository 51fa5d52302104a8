"""One end user's share: requests a second, requests under way and open streams, each user's own."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from projections.errors import QuotaExceeded
from tests.support.clock import Clock
from threadfold.gateway import user_share
from threadfold.gateway.user_share import UserShare


def admitted(share: UserShare, user: str = "ann", tenant: str = "acme") -> bool:
    try:
        with share.slot(tenant, user, stream=False):
            return True
    except QuotaExceeded as error:
        assert error.retry_after == 1
        return False


def test_a_user_has_a_burst_and_then_the_rate_and_others_have_their_own() -> None:
    clock = Clock()
    share = UserShare(5, 0, 0, clock)
    assert sum(admitted(share) for _ in range(30)) == 10
    assert admitted(share, "bob") and admitted(share, "ann", "rival")
    clock.now += 1
    assert sum(admitted(share) for _ in range(30)) == 5
    clock.now += 3600
    assert sum(admitted(share) for _ in range(30)) == 10


@pytest.mark.parametrize(
    ("stream", "words"), [(True, "2 open streams"), (False, "2 requests under way")]
)
def test_a_user_has_so_many_at_once_and_another_when_one_has_ended(
    stream: bool, words: str
) -> None:
    share = UserShare(0, 2, 2)
    with ExitStack() as held:
        held.enter_context(share.slot("acme", "ann", stream=stream))
        with share.slot("acme", "ann", stream=stream):
            with (
                pytest.raises(QuotaExceeded, match=words),
                share.slot("acme", "ann", stream=stream),
            ):
                pass
            with (
                share.slot("acme", "bob", stream=stream),
                share.slot("acme", "ann", stream=not stream),
            ):
                pass
        with share.slot("acme", "ann", stream=stream):
            pass


def test_without_limits_all_are_admitted() -> None:
    share = UserShare(0, 0, 0)
    assert all(admitted(share) for _ in range(1000))
    with ExitStack() as held:
        for _ in range(100):
            held.enter_context(share.slot("acme", "ann", stream=True))
            held.enter_context(share.slot("acme", "ann", stream=False))


def test_any_number_of_users_is_remembered_in_bounded_memory(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(user_share, "MOST", 3)
    share = UserShare(0.5, 0, 0, Clock())
    assert admitted(share, "first") and not admitted(share, "first")
    assert all(admitted(share, f"user {i}") for i in range(10))
    assert admitted(share, "first"), "forgotten, and so full again"
