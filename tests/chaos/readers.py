"""Readers during the faults: what one gateway has served, none serves older again, nor denies to
know; it answers 503 instead.
"""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp

from tests.chaos.oracle import MARK
from tests.chaos.platform import Platform
from tests.chaos.producers import BUSY
from tests.chaos.records import offset_of
from tests.chaos.services import Service

PAUSE = 0.03
Served = dict[str, tuple[int, int]]
"""By conversation: offset and count of the newest window that a gateway served."""


class Reader:
    """Reads one gateway's contexts one after the other. ``found`` is what it should not have been
    given; ``reads`` how many it was.
    """

    def __init__(self, platform: Platform, gateway: Service, url: str, served: Served) -> None:
        self.platform, self.gateway, self.url = platform, gateway, url
        self.rng = random.Random(platform.plan.seed * 7 + len(url))
        self.found: list[str] = []
        self.reads = 0
        self._served = served

    async def run(self) -> None:
        """Read until cancelled."""
        plan = self.platform.plan
        keys = [(f"t{t}", f"c{c}") for c in range(plan.conversations) for t in range(plan.tenants)]
        busy = keys[: BUSY * plan.tenants]
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=4)) as http:
            while True:
                tenant, conversation = self.rng.choice(busy if self.rng.random() < 0.8 else keys)
                key = f"{tenant}/{conversation}"
                before = self._served.get(key)
                answer = await self._read(http, tenant, conversation)
                if answer is not None:
                    self._judge(before, key, *answer)
                await asyncio.sleep(PAUSE)

    async def _read(
        self, http: aiohttp.ClientSession, tenant: str, conversation: str
    ) -> tuple[int, Any] | None:
        headers = {"Authorization": f"Bearer {self.platform.keys[tenant]}"}
        try:
            async with http.get(
                f"{self.url}/v1/conversations/{conversation}/context", headers=headers
            ) as answer:
                return answer.status, await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError, json.JSONDecodeError):
            return None

    def _judge(self, served: tuple[int, int] | None, key: str, status: int, document: Any) -> None:
        """``served`` is what any gateway had served before this was asked for."""
        if status == 410 and key in self.platform.erased:
            return
        if status == 404 and served is not None:
            self.found.append(f"{key}: {self.gateway.name} answered 404 for what it had served")
        elif status == 200:
            self.reads += 1
            now = (offset_of(document["position"]), document["count"])
            if served is not None and (now[0] < served[0] or now[1] < served[1]):
                self.found.append(
                    f"{key}: {self.gateway.name} served offset {now[0]}, count {now[1]}, and before"
                    f" that {served}"
                )
            foreign = {
                name
                for name in map("/".join, MARK.findall(json.dumps(document, ensure_ascii=False)))
                if name != key
            }
            if foreign:
                self.found.append(
                    f"{key}: {self.gateway.name} served text of {', '.join(sorted(foreign))}"
                )
            self._served[key] = max(now, self._served.get(key, now))
        elif status not in (404, 503):
            self.found.append(
                f"{key}: {self.gateway.name} answered {status}: {str(document)[:200]}"
            )


@asynccontextmanager
async def reading(platform: Platform) -> AsyncIterator[list[Reader]]:
    """A reader at each gateway."""
    served: Served = {}
    readers = [
        Reader(platform, gateway, url, served)
        for gateway, url in zip(platform.gateways, platform.urls, strict=True)
    ]
    tasks = [
        asyncio.create_task(reader.run(), name=f"reader-{reader.gateway.name}")
        for reader in readers
    ]
    try:
        yield readers
    finally:
        for task in tasks:
            task.cancel()
        ended = await asyncio.gather(*tasks, return_exceptions=True)
    for result in ended:
        if isinstance(result, Exception):
            raise result
