"""Threads that tenants share by turns."""

from __future__ import annotations

import asyncio
import threading
import time

import pytest

from streams.runtime import tenant_threads
from streams.runtime.steps import Steps, at_once, one_step, timed
from streams.runtime.tenant_threads import TenantThreads


async def test_a_tenant_who_asks_much_waits_behind_itself() -> None:
    threads, order, may_go_on = TenantThreads(1), list[str](), threading.Event()

    def work(name: str) -> str:
        may_go_on.wait(10)
        order.append(name)
        return name

    noisy = [asyncio.create_task(threads.run("noisy", work, "noisy")) for _ in range(50)]
    await asyncio.sleep(0)
    quiet = asyncio.create_task(threads.run("quiet", work, "quiet"))
    await asyncio.sleep(0)
    may_go_on.set()
    assert await quiet == "quiet"
    assert order.index("quiet") <= 1
    await asyncio.gather(*noisy)


async def test_work_in_steps_lets_others_have_the_thread_between(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tenant_threads, "STEP", 0.0)
    threads, order = TenantThreads(1), list[str]()

    def walk(name: str, steps: int) -> Steps[str]:
        for _ in range(steps):
            order.append(name)
            yield
        return name

    long = asyncio.create_task(threads.run("noisy", walk, "noisy", 1_000))
    await asyncio.sleep(0)
    assert await threads.run("quiet", walk, "quiet", 3) == "quiet"
    assert len(order) < 50
    assert await long == "noisy" and order.count("noisy") == 1_000


async def test_a_tenant_that_is_not_alone_leaves_a_thread_to_others() -> None:
    now = 0.0
    threads, may_go_on = TenantThreads(2, lambda: now), threading.Event()

    def stay() -> bool:
        return may_go_on.wait(30)

    try:
        await threads.run("quiet", str)
        noisy = [asyncio.create_task(threads.run("noisy", stay)) for _ in range(9)]
        await asyncio.sleep(0)
        async with asyncio.timeout(10):
            assert await threads.run("quiet", int) == 0
        now = tenant_threads.ACTIVE + 1
        both = threading.Barrier(2)
        alone = [asyncio.create_task(threads.run("other", both.wait, 10)) for _ in range(2)]
        may_go_on.set()
        assert sorted(await asyncio.gather(*alone)) == [0, 1]
    finally:
        may_go_on.set()
    await asyncio.gather(*noisy)


async def test_a_tenant_that_is_not_alone_has_a_share_of_its_threads_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tenant_threads, "BURST", 0.02)
    threads = TenantThreads()

    def busy() -> None:
        until = time.thread_time() + 0.02
        while time.thread_time() < until:
            pass

    async def seconds(tenant: str, beside: str) -> float:
        await threads.run(beside, str)
        began = time.monotonic()
        for _ in range(4):
            await threads.run(tenant, busy)
        return time.monotonic() - began

    assert await seconds("noisy", "quiet") > 2 * 0.02 / tenant_threads.SHARE


async def test_what_a_tenant_used_while_it_was_alone_does_not_count(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(tenant_threads, "BURST", 0.02)
    threads = TenantThreads()

    def busy(seconds: float) -> None:
        until = time.thread_time() + seconds
        while time.thread_time() < until:
            pass

    for _ in range(5):
        await threads.run("alone", busy, 0.1)
    await threads.run("other", str)
    async with asyncio.timeout(0.5 / tenant_threads.SHARE - 0.5):
        for _ in range(2):
            await threads.run("alone", busy, 0.001)
    # One long piece of work has an end, too.
    monkeypatch.setattr(tenant_threads, "MOST_DEBT", 0.01)
    await threads.run("alone", busy, 0.5)
    async with asyncio.timeout(0.5 / tenant_threads.SHARE - 0.5):
        await threads.run("alone", str)


async def test_work_of_one_who_left_keeps_its_place_up_to_its_end() -> None:
    threads, may_go_on, done = TenantThreads(1), threading.Event(), list[str]()

    def work(name: str) -> None:
        may_go_on.wait(30)
        done.append(name)

    try:
        left = asyncio.create_task(threads.run("noisy", work, "begun"))
        waits = asyncio.create_task(threads.run("noisy", work, "waits"))
        other = asyncio.create_task(threads.run("quiet", work, "quiet"))
        await asyncio.sleep(0.05)
        for one in (left, waits):
            one.cancel()
        await asyncio.wait([left, waits], timeout=10)
        assert left.cancelled() and waits.cancelled() and not other.done() and not done
    finally:
        may_go_on.set()
    await other
    assert done == ["begun", "quiet"]


def test_steps_come_to_the_same_however_they_are_taken() -> None:
    def steps() -> Steps[int]:
        yield
        yield
        return 7

    assert at_once(steps()) == 7 and at_once(one_step(lambda: 7)()) == 7
    found, seconds = at_once(timed(steps()))
    assert found == 7 and seconds > 0
    assert len(list(timed(steps()))) == 2
