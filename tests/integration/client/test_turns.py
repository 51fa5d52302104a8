"""A turn whose entering fails or is cancelled leaves the queue, also if the request to begin it comes
last; what goes wrong there hides nothing.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from streams.settings.settings import Settings
from tests.support.clients import QUICK
from tests.support.platform import Platform, running_platform
from tests.support.raw_server import Answer, RawServer, answer, problem, raw_server
from tests.support.worker import until
from threadfold_client import AsyncClient, Conflict, Invalid, Turn
from threadfold_client.calls import Call
from threadfold_client.http import HttpTransport

QUEUED = answer(200, {"turn_id": "t", "status": "queued", "place": 1})
ENDED = answer(200, {"turn_id": "t", "position": "0-1"})
ENTERS = """
import sys
from threadfold_client import Client

with Client(sys.argv[1], "k") as client, client.turn("c", policy="queue", turn_id="t"):
    print("entered")
"""


class Service:
    """Answers each request to begin turn t as it is told, the last without an end, and counts the
    requests to end it.
    """

    def __init__(self, *begins: Answer, end: Answer = ENDED) -> None:
        self.server: RawServer
        self.over = asyncio.Event()
        self._begins = [*begins, self.hang]
        self._end = end

    async def hang(self, writer: asyncio.StreamWriter) -> None:
        await self.over.wait()

    async def serve(self, writer: asyncio.StreamWriter) -> None:
        ending = self.server.asked[-1].line.startswith("POST /v1/conversations/c/turns/t/end ")
        given = self._end if ending else self._begins[self.begun - 1]
        if isinstance(given, bytes):
            writer.write(given)
        else:
            await given(writer)

    @property
    def ended(self) -> int:
        return sum("/end " in asked.line for asked in self.server.asked)

    @property
    def begun(self) -> int:
        return len(self.server.asked) - self.ended


@asynccontextmanager
async def serving(*begins: Answer, end: Answer = ENDED) -> AsyncIterator[Service]:
    service = Service(*begins, end=end)
    async with raw_server(service.serve) as service.server:
        try:
            yield service
        finally:
            service.over.set()


@asynccontextmanager
async def queued(*begins: Answer, **options: Any) -> AsyncIterator[tuple[Service, Turn]]:
    """A turn that is to be entered there, and who answers it."""
    async with (
        serving(*begins, **options) as service,
        AsyncClient(service.server.url, "k", retries=QUICK) as client,
    ):
        yield service, client.turn("c", policy="queue", turn_id="t", wait=30)


async def asked(service: Service, begun: int, ended: int = 0) -> None:
    async def came() -> bool:
        return (service.begun, service.ended) == (begun, ended)

    await until(came, what=f"{begun} requests to begin, {ended} to end")


@pytest.mark.parametrize("begins", [(), (QUEUED,)], ids=["the first request", "in the queue"])
async def test_a_turn_whose_entering_is_cancelled_leaves_the_queue(begins: tuple[bytes]) -> None:
    async with queued(*begins) as (service, turn):
        entering = asyncio.create_task(turn.begin())
        await asked(service, 1 + len(begins))
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        assert service.ended == 1


async def test_a_turn_that_is_not_entered_in_time_leaves_the_queue() -> None:
    async with queued(QUEUED) as (service, turn):
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), turn:
                raise AssertionError("entered")
        assert service.ended == 1


async def test_a_turn_leaves_the_queue_though_it_is_cancelled_again_meanwhile() -> None:
    release = asyncio.Event()

    async def slow(writer: asyncio.StreamWriter) -> None:
        await release.wait()
        writer.write(ENDED)
        await writer.drain()
        release.clear()

    async def answered() -> bool:
        return not release.is_set()

    async with queued(QUEUED, end=slow) as (service, turn):
        entering = asyncio.create_task(turn.begin())
        await asked(service, 2)
        entering.cancel()
        await asked(service, 2, 1)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        release.set()
        await until(answered)
        assert service.ended == 1


@pytest.mark.parametrize("end", [b"", problem(503, "kafka-unavailable"), problem(409, "conflict")])
async def test_a_cancellation_stays_one_if_leaving_the_queue_fails(end: bytes) -> None:
    async with queued(QUEUED, end=end) as (service, turn):
        entering = asyncio.create_task(turn.begin())
        await asked(service, 2)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError) as cancelled:
            await entering
        assert service.ended >= 1
    notes = getattr(cancelled.value, "__notes__", [])
    assert ["could not be ended" in note for note in notes] == [True] * (b"409" not in end)


async def test_leaving_the_queue_is_bounded_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadfold_client.turn.LEAVE_WITHIN", 0.2)

    async def silent(writer: asyncio.StreamWriter) -> None:
        await service.over.wait()

    async with queued(QUEUED, end=silent) as (service, turn):
        entering = asyncio.create_task(turn.begin())
        await asked(service, 2)
        entering.cancel()
        async with asyncio.timeout(15):
            with pytest.raises(asyncio.CancelledError):
                await entering


async def test_a_queued_turn_whose_next_request_fails_leaves_the_queue() -> None:
    async with queued(QUEUED, problem(422, "invalid-request")) as (service, turn):
        with pytest.raises(Invalid):
            await turn.begin()
        assert service.ended == 1


async def test_a_turn_that_was_refused_is_not_ended() -> None:
    async with queued(problem(409, "conflict")) as (service, turn):
        with pytest.raises(Conflict):
            await turn.begin()
        assert service.ended == 0


async def test_a_synchronous_client_that_is_interrupted_leaves_the_queue() -> None:
    async with serving(QUEUED) as service:
        program = await asyncio.create_subprocess_exec(
            sys.executable, "-c", ENTERS, service.server.url, stderr=asyncio.subprocess.PIPE
        )
        await asked(service, 2)
        program.send_signal(signal.SIGINT)
        _, errors = await program.communicate()
        assert b"KeyboardInterrupt" in errors and program.returncode
        assert service.ended == 1


class Stalling(HttpTransport):
    """Keeps the requests to begin turn t back, as a gateway that stalls: ``carry_out`` sends them.
    With ``answers`` it sends them at once, too.
    """

    def __init__(self, platform: Platform, *, answers: bool = False) -> None:
        super().__init__(platform.url, platform.key, timeout=20.0)
        self.kept: list[Call] = []
        self._answers = answers

    async def request(self, call: Call) -> bytes:
        if call.path.endswith("/turns") and call.method == "POST" and call.body["turn_id"] == "t":
            self.kept.append(call)
            if not self._answers:
                await asyncio.Event().wait()
        return await super().request(call)

    async def carry_out(self) -> None:
        for call in self.kept:
            with pytest.raises(Conflict, match="did not begin"):
                await super().request(call)


@pytest.fixture(scope="module")
async def platform(settings: Settings) -> AsyncIterator[Platform]:
    async with running_platform(settings) as running:
        yield running


@pytest.mark.parametrize("policy", ["reject", "queue", "interrupt"])
async def test_a_turn_whose_entering_was_cancelled_does_not_begin_later(
    platform: Platform, policy: Any
) -> None:
    transport = Stalling(platform)
    async with AsyncClient.over(transport) as client:
        entering = asyncio.create_task(client.turn(policy, policy=policy, turn_id="t").begin())

        async def sent() -> bool:
            return bool(transport.kept)

        await until(sent)
        entering.cancel()
        with pytest.raises(asyncio.CancelledError):
            await entering
        await transport.carry_out()
        found = await client.turns(policy)
        assert found.live is None and not found.waiting


async def test_a_turn_whose_entering_was_cancelled_does_not_wait_for_another_later(
    platform: Platform,
) -> None:
    transport = Stalling(platform)
    async with AsyncClient.over(transport) as client, client.turn("held") as other:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3), client.turn("held", policy="queue", turn_id="t"):
                raise AssertionError("entered")
        await transport.carry_out()
        found = await client.turns("held")
        assert found.live is not None and found.live.turn_id == other.turn_id
        assert not found.waiting


async def test_a_repeat_of_the_beginning_that_comes_after_the_run_begins_nothing(
    platform: Platform,
) -> None:
    transport = Stalling(platform, answers=True)
    async with AsyncClient.over(transport) as client:
        async with client.turn("repeated", turn_id="t") as turn:
            assert turn.status == "started"
        await transport.carry_out()
        assert (await client.turns("repeated")).live is None
        async with client.turn("repeated", turn_id="t") as turn:
            assert turn.status == "started", "another beginning of the same turn is none of them"
