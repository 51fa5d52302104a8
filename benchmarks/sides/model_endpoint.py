"""A model's endpoint for figures: answers chat completions after a fixed time, so many at once, and
says 429 beyond that. It runs until stdin ends.

The job has ``seconds`` and ``at_once``. It prints its address first. An answer is made of the
beginnings of messages evenly spread over the span, and of what has digits in it, as a good model's
is: it costs next to no processor, because the machine it is measured on has none to spare. The
value is the most calls that were under way at once; ``calls`` and ``refused`` are counted.
"""

from __future__ import annotations

import asyncio
import re
import sys
from typing import Any

import orjson
from aiohttp import web

from benchmarks.support.children import answer, read_job

LINES, LINE, CODES = 12, 160, 60
_CODE = re.compile(r"\b\w*\d[\w.:/-]*")


class Endpoint:
    """Counts its calls."""

    def __init__(self, seconds: float, at_once: int) -> None:
        self._seconds = seconds
        self._at_once = at_once
        self._open = 0
        self.most = self.calls = self.refused = 0

    async def complete(self, request: web.Request) -> web.Response:
        """One call."""
        if self._open >= self._at_once:
            self.refused += 1
            return web.Response(status=429, headers={"Retry-After": "1"})
        self._open += 1
        self.calls += 1
        self.most = max(self.most, self._open)
        try:
            asked = orjson.loads(await request.read())
            await asyncio.sleep(self._seconds)
            message = {"role": "assistant", "content": summary_of(asked["messages"][1]["content"])}
            choice = {"index": 0, "finish_reason": "stop", "message": message}
            return web.Response(
                body=orjson.dumps({"object": "chat.completion", "choices": [choice]}),
                content_type="application/json",
            )
        finally:
            self._open -= 1


def summary_of(prompt: str) -> str:
    """What the model answers to a prompt of the product's."""
    rows = [orjson.loads(line) for line in prompt.splitlines() if line.startswith("{")]
    texts = [row.get("text") or row.get("earlier_summary") or "" for row in rows]
    codes = list(dict.fromkeys(code for text in texts for code in _CODE.findall(text[:2_000])))
    lines = [" ".join(text[:LINE].split()) for text in _spread(texts, LINES)]
    return "\n".join([*lines, "Named: " + ", ".join(_spread(codes, CODES))])


def _spread(items: list[str], most: int) -> list[str]:
    step = max(1, len(items) // most)
    return items[::step][:most]


async def run(job: dict[str, Any]) -> None:
    """Serve until stdin ends."""
    endpoint = Endpoint(job["seconds"], job["at_once"])
    app = web.Application(client_max_size=64 << 20)
    app.router.add_post("/v1/chat/completions", endpoint.complete)
    runner = web.AppRunner(app, shutdown_timeout=0.2, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    print(f"http://127.0.0.1:{runner.addresses[0][1]}/v1", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    await runner.cleanup()
    answer(endpoint.most, calls=endpoint.calls, refused=endpoint.refused)


if __name__ == "__main__":
    *_, job = read_job()
    asyncio.run(run(job))
