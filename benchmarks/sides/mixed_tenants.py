"""Callers of several tenants who use every route of the gateway, each as a chat platform's turns
would.

A caller has a conversation of its own and plays turns on it, one request after another: begin a
turn, append what the user said, read the context, say a piece of the answer, append the answer,
record the call, end the turn. After each, some of the other routes come, in turn. The job has
``address``, ``keys`` (by tenant), ``callers`` (of each tenant), ``talk`` (how conversations' names
begin) and ``seconds``. It answers with requests a second, and the milliseconds of every request by
route. A stream's time is until its first event is there.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

from benchmarks.support.children import answer, read_job
from benchmarks.support.flats import flats
from benchmarks.support.http import Caller
from benchmarks.support.meters import Meter

Step = Callable[[], Awaitable[None]]
AFTER_A_TURN = 4
"""Other routes that follow on a turn."""
LIST = 20


class Talk:
    """One caller: its conversation, what it learnt from answers, and the milliseconds of its
    requests.
    """

    def __init__(
        self,
        asker: Caller,
        place: int,
        name: str,
        texts: Iterator[dict[str, Any]],
        took: dict[str, list[float]],
    ) -> None:
        self._asker = asker
        self._name = name
        self._path = f"/v1/conversations/{name}"
        self._texts = texts
        self._took = took
        self._position = self._cursor = self._render = ""
        self._deleted = itertools.count()
        routes = self._other_routes()
        begin = (
            place * AFTER_A_TURN % len(routes)
        )  # so that callers who keep step do not all ask for the same
        self._others = itertools.cycle(routes[begin:] + routes[:begin])

    async def _ask(self, route: str, path: str, body: Any = None, **headers: str) -> Any:
        """One request of a route; raises RuntimeError for any answer but a good one."""
        method, _, _ = route.partition(" ")
        begin = time.perf_counter()
        status, got = await self._asker.ask(method, path, body, **headers)
        self._note(route, begin)
        if status not in (200, 202):
            raise RuntimeError(f"{route} answered {status}: {got[:300]!r}")
        return json.loads(got) if got[:1] in b"{[" else got

    def _note(self, route: str, begin: float) -> None:
        self._took.setdefault(route, []).append(round((time.perf_counter() - begin) * 1000, 3))

    def _message(self, role: str) -> dict[str, Any]:
        return {"role": role, "content": next(self._texts)["content"]}

    async def play(self) -> None:
        """One turn, and some of the other routes."""
        turn = await self._ask("POST turns", f"{self._path}/turns", {"policy": "reject"})
        fence = str(turn["fencing_token"])
        one = f"{self._path}/turns/{turn['turn_id']}"
        await self._ask("POST messages", f"{self._path}/messages", self._message("user"))
        context = await self._ask("GET context", f"{self._path}/context")
        await self._ask(
            "POST partial",
            f"{self._path}/partial",
            {"turn_id": turn["turn_id"], "delta": "It ", "offset": 0},
        )
        answered = {"type": "message", **self._message("assistant")}
        appended = await self._ask("POST events, one", f"{self._path}/events", answered)
        self._position = appended["position"]
        called = {
            "model": "m",
            "format": "openai",
            **{name: context[name] for name in ("render_digest", "position", "tokens")},
        }
        self._render = (await self._ask("POST renders", f"{self._path}/renders", called))["id"]
        await self._ask("POST turns/renew", f"{one}/renew", {"seconds": 60}, Fencing_Token=fence)
        await self._ask("POST turns/end", f"{one}/end", None, Fencing_Token=fence)
        for _ in range(AFTER_A_TURN):
            await next(self._others)()

    def _other_routes(self) -> list[Step]:
        """The routes that do not belong to a turn."""
        own = self._path
        return [
            self._step("GET context, anthropic", f"{own}/context?format=anthropic"),
            self._step("GET context, events", f"{own}/context?format=events"),
            self._append_list,
            self._step("GET history", f"{own}/history"),
            self._event,
            self._after,
            self._several,
            self._step("GET conversations", "/v1/conversations"),
            self._step("GET suspensions", "/v1/suspensions"),
            self._step("GET summaries", f"{own}/summaries"),
            self._applied,
            self._step("GET turns", f"{own}/turns"),
            self._expecting,
            self._stream,
            self._step("GET renders", lambda: f"/v1/renders/{self._render}"),
            self._step("GET metrics", "/metrics"),
            self._step("GET healthz", "/healthz"),
            self._step("GET readyz", "/readyz"),
            self._deeper,
            self._step("POST compact", f"{own}/compact"),
            self._rollback,
            self._step("POST close", f"{own}/close"),
            self._summaries_stream,
            self._erase,
        ]

    def _step(self, route: str, path: str | Callable[[], str]) -> Step:
        async def step() -> None:
            await self._ask(route, path if isinstance(path, str) else path())

        return step

    async def _append_list(self) -> None:
        events = [{"type": "message", **self._message("user")} for _ in range(LIST)]
        await self._ask(f"POST events, {LIST}", f"{self._path}/events", events)

    async def _several(self) -> None:
        events = [
            {"conversation": f"{self._name}-{i % 5}", "type": "message", **self._message("user")}
            for i in range(LIST)
        ]
        await self._ask(f"POST /events, {LIST} of 5", "/v1/events", events)

    async def _event(self) -> None:
        await self._ask("GET events/{position}", f"{self._path}/events/{self._position}")

    async def _after(self) -> None:
        appended = await self._ask("POST messages", f"{self._path}/messages", self._message("user"))
        await self._ask("GET context, after", f"{self._path}/context?after={appended['position']}")

    async def _applied(self) -> None:
        done = await self._ask(
            "POST events, wait=applied",
            f"{self._path}/events?wait=applied",
            {"type": "message", **self._message("user")},
        )
        self._position = done["position"]

    async def _expecting(self) -> None:
        await self._applied()
        event = {"type": "message", **self._message("user")}
        await self._ask(
            "POST events, If-Match", f"{self._path}/events", event, If_Match=f'"{self._position}"'
        )

    async def _deeper(self) -> None:
        page = await self._ask("GET history", f"{self._path}/history")
        if page["next_before"]:
            await self._ask(
                "GET history, before", f"{self._path}/history?before={page['next_before']}"
            )

    async def _rollback(self) -> None:
        await self._applied()
        kept = self._position
        await self._append_list()
        await self._ask("POST rollback", f"{self._path}/rollback", {"to": kept})

    async def _stream(self) -> None:
        begin = time.perf_counter()
        await self._asker.join(f"{self._path}/stream", b"event: state")
        self._note("GET stream, joining", begin)

    async def _summaries_stream(self) -> None:
        begin = time.perf_counter()
        await self._asker.join("/v1/summaries/stream", b"retry: ")
        self._note("GET summaries/stream, joining", begin)

    async def _erase(self) -> None:
        path = f"{self._path}-deleted-{next(self._deleted)}"
        await self._ask(
            "POST events, one", f"{path}/events", {"type": "message", **self._message("user")}
        )
        await self._ask("DELETE conversation", path)


async def run(job: dict[str, Any], groups: dict[str, list[int]]) -> None:
    """All callers of all tenants at once; what they asked before the clock starts is not
    counted.
    """
    texts = itertools.cycle(flats(2_000))
    took: dict[str, list[float]] = {}
    askers = [
        Caller(job["address"], key) for key in job["keys"].values() for _ in range(job["callers"])
    ]
    talks = [Talk(asker, i, f"{job['talk']}-{i}", texts, took) for i, asker in enumerate(askers)]

    async def until(talk: Talk, end: float) -> None:
        while time.perf_counter() < end:
            await talk.play()

    await asyncio.gather(*(until(talk, time.perf_counter() + job["seconds"] / 4) for talk in talks))
    took.clear()
    meter, begin = Meter(groups), time.perf_counter()
    await asyncio.gather(*(until(talk, begin + job["seconds"]) for talk in talks))
    lasted = time.perf_counter() - begin
    answer(sum(map(len, took.values())) / lasted, usage=meter.stop(), took=took)


if __name__ == "__main__":
    _, groups, job = read_job()
    asyncio.run(run(job, groups))
