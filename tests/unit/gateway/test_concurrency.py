"""The concurrency limit: requests, streams and bytes, in all and for each tenant."""

from __future__ import annotations

import contextlib

import pytest
from starlette.types import Message

from projections.errors import Overloaded, QuotaExceeded, RequestTooLarge
from streams.settings.quotas import Quota
from threadfold.gateway.concurrency import ConcurrencyLimit, Limits


def test_streams_have_limits_of_their_own_and_count_for_no_request() -> None:
    limit = ConcurrencyLimit(
        Limits(requests=4, streams=12),
        lambda tenant: Quota(streams=2 if tenant == "small" else 0),
    )
    slots, errors = [], []
    for tenant in (*["small"] * 3, *["large"] * 4):
        try:
            slots.append(limit.slot(tenant, stream=True).__enter__())
        except QuotaExceeded as error:
            errors.append(str(error).partition(",")[0])
    assert errors == ["tenant small has 2 streams open", "tenant large has 3 streams open"]
    assert (limit.all.requests, limit.all.streams) == (0, 5)
    limit.limits = Limits(requests=4, streams=5)
    with pytest.raises(Overloaded, match="5 streams are open"):
        limit.slot("other", stream=True)
    for slot in slots:
        slot.__exit__(None, None, None)
    assert (limit.all.streams, limit.tenants) == (0, {})


def test_a_tenants_share_of_the_requests_is_a_quarter_and_never_less_than_one() -> None:
    limit = ConcurrencyLimit(Limits(requests=2))
    with limit.slot("a", stream=False):
        with pytest.raises(QuotaExceeded, match="tenant a has 1 requests under way"):
            limit.slot("a", stream=False)
        with (
            limit.slot("b", stream=False),
            pytest.raises(Overloaded, match="2 requests are under way"),
        ):
            limit.slot("c", stream=False)
        with limit.slot("a", stream=True):
            assert limit.tenants["a"].streams == 1
    assert limit.tenants == {}


async def test_one_body_of_any_size_is_taken_and_the_next_counts_beside_it() -> None:
    limit = ConcurrencyLimit(Limits(requests=40, body_bytes=1000))

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * 600, "more_body": True}

    with limit.slot("a", stream=False) as first, limit.slot("a", stream=False) as second:
        for _ in range(3):
            await first.counted(receive)()
        with pytest.raises(Overloaded, match="MiB of requests are in progress"):
            await second.counted(receive)()
        limit.limits = Limits(requests=40, body_bytes=4000)
        with pytest.raises(QuotaExceeded, match="tenant a has"):
            await second.counted(receive)()
        with limit.slot("b", stream=False) as other:
            await other.counted(receive)()
        assert limit.all.bytes == 1800
    assert limit.all.bytes == 0


async def test_a_body_may_be_as_large_as_its_tenants_quota_says() -> None:
    limit = ConcurrencyLimit(quota_of=lambda tenant: Quota(body_bytes=1000 * (tenant == "small")))

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * 600, "more_body": True}

    with limit.slot("small", stream=False) as small, limit.slot("other", stream=False) as other:
        await small.counted(receive)()
        with pytest.raises(RequestTooLarge, match="1000 bytes that a request of tenant small"):
            await small.counted(receive)()
        for _ in range(10):
            await other.counted(receive)()


def test_one_answer_of_any_size_is_sent_and_the_next_counts_beside_it() -> None:
    limit = ConcurrencyLimit(Limits(requests=40, answer_bytes=1000))
    with limit.slot("a", stream=False) as first, limit.slot("a", stream=False) as second:
        first.answer(600)
        with pytest.raises(Overloaded, match="MiB of answers are being sent"):
            second.answer(600)
        with pytest.raises(QuotaExceeded, match="tenant a has 0 MiB of answers"):
            second.answer(100)
        with limit.slot("b", stream=False) as other:
            other.answer(200)
            assert limit.all.answers == 800
        assert limit.all.answers == 600
    assert limit.all.answers == 0


@pytest.mark.parametrize("stream", [False, True])
def test_tenants_that_take_all_they_may_leave_some_for_another(stream: bool) -> None:
    limit = ConcurrencyLimit(Limits(requests=400, streams=400))
    for number in range(6):
        with pytest.raises(QuotaExceeded):
            while True:
                limit.slot(f"much{number}", stream=stream).__enter__()
    held = [one.streams if stream else one.requests for one in limit.tenants.values()]
    assert held == [100, 100, 100, 50, 25, 13]
    with limit.slot("another", stream=stream), limit.slot("another", stream=stream):
        pass


async def test_tenants_with_many_bodies_and_answers_leave_bytes_for_another() -> None:
    limit = ConcurrencyLimit(Limits(requests=400, body_bytes=4_000, answer_bytes=4_000))

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * 100, "more_body": True}

    for number in range(4):
        while True:
            slot = limit.slot(f"much{number}", stream=False).__enter__()
            try:
                slot.answer(100)
                await slot.counted(receive)()
            except QuotaExceeded:
                break
    assert limit.all.bytes <= limit.all.answers == 3_500
    with limit.slot("another", stream=False) as another:
        another.answer(200)
        for _ in range(2):
            await another.counted(receive)()


async def test_tenants_with_one_large_body_each_leave_bytes_for_another() -> None:
    limit = ConcurrencyLimit(Limits(requests=400, body_bytes=4_000))

    async def receive() -> Message:
        return {"type": "http.request", "body": b"x" * 100, "more_body": True}

    taken = []
    for number in range(4):
        slot = limit.slot(f"much{number}", stream=False).__enter__()
        with contextlib.suppress(QuotaExceeded):
            for _ in range(18):
                await slot.counted(receive)()
        taken.append(limit.tenants[f"much{number}"].bytes)
    assert taken == [1_800, 1_100, 500, 300]
    with limit.slot("another", stream=False) as another:
        await another.counted(receive)()


def test_tenants_with_one_large_answer_each_leave_bytes_for_another() -> None:
    limit = ConcurrencyLimit(Limits(requests=400, answer_bytes=4_000))
    for number, most in enumerate((1_800, 1_100, 550, 275)):
        slot = limit.slot(f"much{number}", stream=False).__enter__()
        if number:
            with pytest.raises(QuotaExceeded, match="answers that are not read"):
                slot.answer(most + 1)
        slot.answer(most)
    with limit.slot("another", stream=False) as another:
        another.answer(100)
