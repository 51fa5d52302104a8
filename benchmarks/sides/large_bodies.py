"""The tenant of figure `large_bodies` that sends bodies of one kind, one after another, for some
seconds.

The job has ``address``, ``authorization``, ``kind`` (a name of :data:`KINDS`), ``bytes`` and
``seconds``. It answers with the number of requests, the size of a body, and the answers by status.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from benchmarks.support.children import answer, read_job
from benchmarks.support.http import Caller

PATH = "/v1/conversations/large/messages"
MANY = 500
"""The most messages of a list."""


def empty_lists(size: int) -> bytes:
    """A list of ``[]``."""
    return b"[" + b"[]," * (size // 3 - 1) + b"[]]"


def unknown_keys(size: int) -> bytes:
    """One message with as many unknown keys as fit."""
    return b'{"role":"user","content":"hi"%s}' % _keys(size, b',"k%07d":1')


def metadata(size: int) -> bytes:
    """One message with a large ``metadata``."""
    return b'{"role":"user","content":"hi","metadata":{"a":1%s}}' % _keys(size, b',"k%07d":"v"')


def one_letter(size: int) -> bytes:
    """A full list of messages of one letter."""
    text = "a" * (size // MANY)
    return json.dumps([{"role": "user", "content": text}] * MANY).encode()


def long_texts(size: int) -> bytes:
    """Messages of 1 MB of words, which are taken."""
    text = ("The quick brown fox jumps over the lazy dog. " * 23_000)[: 1 << 20]
    return json.dumps([{"role": "user", "content": text}] * max(1, size >> 20)).encode()


KINDS: dict[str, Callable[[int], bytes]] = {
    made.__name__: made for made in (empty_lists, unknown_keys, metadata, one_letter, long_texts)
}


def _keys(size: int, form: bytes) -> bytes:
    return b"".join(form % i for i in range(size // len(form % 0)))


async def run(job: dict[str, Any]) -> None:
    """Send until the time is over."""
    body = KINDS[job["kind"]](job["bytes"])
    head = (
        f"POST {PATH} HTTP/1.1\r\nHost: gateway\r\nAuthorization: {job['authorization']}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    request = head.encode() + body
    caller = Caller(job["address"], job["authorization"])
    answers: Counter[int] = Counter()
    end = time.perf_counter() + job["seconds"]
    while time.perf_counter() < end:
        try:
            status, _ = await caller.send(request)
        except (OSError, asyncio.IncompleteReadError):
            status = 0
        answers[status] += 1
        if status in (0, 429, 503):  # refused at once: as fast as a program that tries again
            await asyncio.sleep(0.05)
    answer(sum(answers.values()), bytes=len(body), answers={str(k): n for k, n in answers.items()})


if __name__ == "__main__":
    *_, job = read_job()
    asyncio.run(run(job))
