"""Producers of memories: they save, say again, revise, report outcomes and delete, each about what
one conversation taught, and repeat saves with the same key until they are told it is in.
"""

from __future__ import annotations

import asyncio
import random
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.chaos.platform import Platform
from tests.chaos.producers import BUSY, ENOUGH, WORDS

PAUSE = 1.5
"""Times as long as an event's producer waits between two calls."""


@dataclass
class MemoryProducer:
    """One producer of one tenant. ``saved`` are the records that were acknowledged, with their
    conversations; ``outcomes`` how many outcomes were acknowledged of each record, ``maybe`` how
    many calls left it open.
    """

    number: int
    platform: Platform
    tenant: str
    conversations: list[str]
    rng: random.Random
    saved: list[tuple[str, str]] = field(default_factory=list)
    outcomes: dict[str, int] = field(default_factory=dict)
    maybe: dict[str, int] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    _made: int = 0

    async def run(self, until: asyncio.Event) -> None:
        """Call until told to end; the last save is seen through."""
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=8)) as http:
            while not until.is_set():
                roll = self.rng.random()
                if roll < 0.7 or not self.saved:
                    await self._save(http)
                elif roll < 0.88:
                    await self._report(http)
                else:
                    await self._delete(http)
                pause = self.platform.plan.pause * PAUSE
                await asyncio.sleep(self.rng.uniform(0.5, 1.5) * pause)

    async def _save(self, http: aiohttp.ClientSession) -> None:
        busy = self.rng.random() < 0.8
        name = self.rng.choice(self.conversations[: BUSY if busy else None])
        self._made += 1
        headers = {"Idempotency-Key": f"m{self.number}-{self._made}"}
        body = [self._memory(name) for _ in range(self.rng.randint(1, 3))]
        deadline = asyncio.get_running_loop().time() + ENOUGH
        while asyncio.get_running_loop().time() < deadline:
            status, answer = await self._call(http, "POST", "/memories", body, headers)
            if status in (200, 202):
                self.saved += [(name, one["id"]) for one in answer["memories"]]
                return
            if status == 404 or (status == 410 and f"{self.tenant}/{name}" in self.platform.erased):
                return  # nothing was said there yet, or it is erased
            if status and status < 500 and status != 429:
                self.refused.append(f"a save answered {status}: {str(answer)[:300]}")
                return
            await asyncio.sleep(self.rng.uniform(0.05, 0.3))
        self.refused.append(f"a save was not acknowledged within {ENOUGH:g} s")

    def _memory(self, name: str) -> dict[str, Any]:
        mark = f"@{self.tenant}/{name}@"
        word = self.rng.choice(WORDS)
        if self.rng.random() < 0.4:  # one that is said again and again
            return {"text": f"Likes {word} {mark}", "conversation": name}
        text = f"Likes {word} {mark} m{self.number}x{self._made}x{self.rng.randrange(1000)}."
        topic = {"topic": self.rng.choice(("tea", "train"))} if self.rng.random() < 0.4 else {}
        return {"text": text, "conversation": name, **topic}

    async def _report(self, http: aiohttp.ClientSession) -> None:
        """One attempt: a repeat would count twice."""
        _, memory_id = self.rng.choice(self.saved[-30:])
        body = {"succeeded": self.rng.random() < 0.5}
        status, answer = await self._call(http, "POST", f"/memories/{memory_id}/outcome", body)
        if status == 200:
            self.outcomes[memory_id] = self.outcomes.get(memory_id, 0) + 1
        elif status in (0, 404, 409, 410) or status >= 500:
            # It may be deleted, rolled back or erased between the append and the answer.
            self.maybe[memory_id] = self.maybe.get(memory_id, 0) + 1
        elif status != 429:
            self.refused.append(f"an outcome answered {status}: {str(answer)[:300]}")

    async def _delete(self, http: aiohttp.ClientSession) -> None:
        _, memory_id = self.rng.choice(self.saved[-30:])
        hard = "?hard=true" if self.rng.random() < 0.3 else ""
        status, answer = await self._call(http, "DELETE", f"/memories/{memory_id}{hard}")
        if 0 < status < 500 and status not in (200, 404, 410, 429):
            self.refused.append(f"a deletion answered {status}: {str(answer)[:300]}")

    async def _call(
        self,
        http: aiohttp.ClientSession,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any]:
        """Status and answer; 0 where none came."""
        url = f"{self.rng.choice(self.platform.urls)}/v1{path}"
        own = {"Authorization": f"Bearer {self.platform.keys[self.tenant]}", **(headers or {})}
        try:
            async with http.request(method, url, json=body, headers=own) as answer:
                return answer.status, await answer.json(content_type=None)
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return 0, None


def memory_producers_of(platform: Platform) -> list[MemoryProducer]:
    """One of each tenant, over all of its conversations."""
    plan = platform.plan
    return [
        MemoryProducer(
            n,
            platform,
            f"t{n}",
            [f"c{i}" for i in range(plan.conversations)],
            random.Random(plan.seed * 1_000 + 500 + n),
        )
        for n in range(plan.tenants)
    ]
