"""Threads that tenants share by turns."""

from __future__ import annotations

import asyncio
import threading

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
