"""A window as it was is folded where the processor works, not where requests are served."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator

import pytest

from projections.errors import CallableUnavailable, InvalidRequest, Overloaded
from projections.names import Key, Position
from projections.policy.policy import Rules
from projections.window.window import Window
from streams.runtime.processor import Here, Processes
from tests.support.compacted_talk import SMALL, Talk
from tests.support.counting_log import CountingLog
from tests.support.mirror import KEY
from tests.support.processors import Reached, Refusing
from threadfold.service import past_windows
from threadfold.service.past_windows import PastWindows

SHOUTING = {"reducers": [{"name": "compact_tool_results", "replacement": "callable:shout"}]}
PLACE = {"shout": f"{__name__}:shout"}


def shout(_tool: str, _call: str, text: str) -> str:
    return text.upper()[:4]


def breaks(_tool: str, _call: str, text: str) -> str:
    raise KeyError(text[:3])


def look(window: Window, word: str) -> tuple[int, str, str]:
    return os.getpid(), window.meta.digest.hex(), word


def past(
    talk: Talk, processor: Here | Refusing | Processes, callables: dict[str, str] = PLACE
) -> PastWindows:
    async def window_at(_key: Key, _position: str) -> Window:
        return talk.window

    return PastWindows(talk.messages, window_at, processor, callables)


@pytest.fixture
def talk() -> Talk:
    made = Talk({"profile": "composed", **SHOUTING}, callables={"shout": shout})
    made.chat(2)
    made.call("a")
    made.say("tool.result", tool_call_id="a", content="the weather is fine " * 50)
    made.chat(3)
    return made


@pytest.fixture
async def processes() -> AsyncIterator[Processes]:
    made = Processes(1)
    yield made
    await made.close()


async def test_the_fold_and_what_is_read_of_it_run_in_another_process(
    talk: Talk, processes: Processes
) -> None:
    end = Position(0, talk.window.meta.position)
    process, digest, word = await past(talk, processes).read(KEY, end, talk.rules, look, "now")
    assert process != os.getpid()
    assert (digest, word) == (talk.window.meta.digest.hex(), "now")


async def test_it_is_the_window_of_then(talk: Talk) -> None:
    then = talk.window.meta.digest.hex()
    at = Position(0, talk.window.meta.position)
    talk.chat(2)
    _, digest, _ = await past(talk, Here()).read(KEY, at, talk.rules, look, "")
    assert digest == then != talk.window.meta.digest.hex()


async def check_not_shown(processor: Here | Processes, callables: dict[str, str], why: str) -> None:
    talk = Talk({**SMALL, **SHOUTING}, callables={"shout": shout})
    talk.chat(1)
    before = Position(0, talk.window.meta.position)
    talk.call("a")
    talk.say("tool.result", tool_call_id="a", content="the weather is fine " * 50)
    talk.chat(3)
    assert any(b'"THE "' in entry.body for entry in talk.window.tail)
    end = Position(0, talk.window.meta.position)
    here = past(talk, processor, callables)
    with pytest.raises(CallableUnavailable, match=f"callable 'shout' of its policy {why}"):
        await here.read(KEY, end, talk.rules, look, "")
    # No result had to be shortened yet.
    assert (await here.read(KEY, before, talk.rules, look, "then"))[2] == "then"


async def test_a_window_whose_fold_lacks_a_callable_is_not_shown() -> None:
    await check_not_shown(Here(), {}, "is not registered")


async def test_a_window_in_whose_fold_a_callable_raised_an_error_is_not_shown(
    processes: Processes,
) -> None:
    await check_not_shown(processes, {"shout": f"{__name__}:breaks"}, "raised KeyError")


async def test_too_long_a_fold_is_refused_before_any_of_it(talk: Talk) -> None:
    end = Position(0, talk.window.meta.position)
    with pytest.raises(InvalidRequest, match="more than 3 events"):
        await past(talk, Refusing()).read(KEY, end, talk.rules, look, "", most=3)
    with pytest.raises(Reached):
        await past(talk, Refusing()).read(KEY, end, Rules(), look, "", most=100)


async def test_a_fold_of_too_many_bytes_is_refused_before_all_of_them_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(past_windows, "FEW_BYTES", 20_000)
    talk = Talk(SMALL)
    for _ in range(100):
        talk.say("message", role="user", content="x" * 5_000)
    log = CountingLog(1)
    for row in talk.messages.rows(0):
        log.put(0, row.key, row.value)

    async def window_at(_key: Key, _position: str) -> Window:
        return talk.window

    windows = PastWindows(log, window_at, Refusing())
    end = Position(0, talk.window.meta.position)
    with pytest.raises(InvalidRequest, match="more than 0 MiB of events"):
        await windows.read(KEY, end, talk.rules, look, "", most_bytes=50_000)
    assert log.read_rows < 20
    with pytest.raises(Reached):
        await windows.read(KEY, end, talk.rules, look, "", most_bytes=1 << 20)


async def test_a_read_whose_turn_does_not_come_in_time_is_refused() -> None:
    asked, goes_on = asyncio.Event(), asyncio.Event()

    async def window_at(_key: Key, _position: str) -> Window:
        asked.set()
        await goes_on.wait()
        raise InvalidRequest("no window")

    windows = PastWindows(Talk(SMALL).messages, window_at, Here(), patience=0.1)
    first = asyncio.create_task(windows.read(KEY, Position(0, 1), Rules(SMALL), look, "first"))
    await asked.wait()
    with pytest.raises(Overloaded):
        await windows.read(KEY, Position(0, 1), Rules(SMALL), look, "second")
    goes_on.set()
    with pytest.raises(InvalidRequest, match="no window"):
        await first
