"""Single appends and context reads over HTTP: the conversations, the requests, and one measurement
of them.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.harness import Measured
from benchmarks.support.children import run_side
from benchmarks.support.flats import flats
from benchmarks.support.gateways import Gateway, append_all
from benchmarks.support.http import keep
from benchmarks.support.stacks import Bench
from benchmarks.support.texts import TENANT, Messages, conversation
from streams.settings.settings import Settings

CALLERS = 32
TEXTS = 5_000
APPENDED_TO = 1_000
"""Texts that are appended one by one, to so many conversations in turn."""
READ = 100
"""Conversations of each length that are read in turn."""
LENGTHS = {"read": (40, 164), "read_long": (110, 1_040)}
"""Messages of a conversation, and their characters: windows of about 1,700 and 26,000 tokens,
neither of which is due for a summary.
"""
FIRST = {"read": 5_000_000, "read_long": 6_000_000}
ROUTES = ("append", *LENGTHS)


@dataclass(frozen=True, slots=True)
class Single:
    """Files with the requests of each route, and with the texts of the appended events."""

    requests: dict[str, str]
    texts: str

    async def measure(
        self,
        bench: Bench,
        settings: Settings,
        gateway: Gateway,
        route: str,
        seconds: float,
        worker: int,
    ) -> Measured:
        """Requests a second of one route of one server."""
        metered = Bench(bench.stack, {**bench.pids, "server": gateway.pids, "worker": [worker]})
        status = 202 if route == "append" else 200
        return await run_side(
            "http_load",
            metered,
            settings,
            address=gateway.address,
            callers=CALLERS,
            seconds=seconds,
            status=status,
            requests=self.requests[route],
        )


def names_of(route: str) -> list[str]:
    """The conversations that a route reads."""
    return [conversation(FIRST[route] + i).conversation for i in range(READ)]


async def grow(settings: Settings) -> None:
    """Append the conversations that are read, through the log and a worker, as anybody's."""
    for route, (messages, characters) in LENGTHS.items():
        texts = Messages(characters, 2_000).texts
        roles = ("user", "assistant")
        items: list[tuple[str, object]] = [
            (
                name,
                {
                    "type": "message",
                    "role": roles[turn % 2],
                    "content": texts[(place * 7919 + turn) % len(texts)],
                },
            )
            for turn in range(messages)
            for place, name in enumerate(names_of(route))
        ]
        await append_all(settings, TENANT, items)


def made(folder: Path, authorization: str) -> Single:
    """Write the requests of all routes, and the texts, into a folder."""
    appended = [
        (conversation(i % APPENDED_TO).conversation, flat) for i, flat in enumerate(flats(TEXTS))
    ]
    texts = folder / "texts.json"
    texts.write_text(json.dumps(appended, ensure_ascii=False))
    own = {"Authorization": authorization}
    posted = {**own, "Content-Type": "application/json"}
    requests = {
        "append": [
            (
                "POST",
                f"/v1/conversations/{name}/events",
                posted,
                json.dumps(flat, ensure_ascii=False),
            )
            for name, flat in appended
        ],
        **{
            route: [
                ("GET", f"/v1/conversations/{name}/context", own, "") for name in names_of(route)
            ]
            for route in LENGTHS
        },
    }
    return Single(
        {route: keep(folder / f"{route}.json", calls) for route, calls in requests.items()},
        str(texts),
    )
