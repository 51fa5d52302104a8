"""The watchdog: what stands still without a word ends the process; what waits for a cause, or was
frozen itself, does not.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping

import pytest

from projections.errors import KafkaUnavailable
from streams.runtime.watchdog import Look, Watchdog
from tests.support.worker import until

HANGING = """
import asyncio, os, sys, time
from streams.runtime.watchdog import Watchdog, end_process

async def nothing():
    return {}

async def main():
    Watchdog(nothing, 0.4, end_process).start()
    await asyncio.sleep(0.2)
    print("turning", flush=True)
    if sys.argv[1] == "hang":
        time.sleep(60)
    await asyncio.sleep(2.5)
    os._exit(0)

asyncio.run(main())
"""


def watchdog(limit: float = 10.0) -> Watchdog:
    async def nothing() -> Mapping[str, Look]:
        return {}

    return Watchdog(nothing, limit, lambda reason: None)


def looked(dog: Watchdog, *looks: Mapping[str, Look]) -> list[str | None]:
    return [dog.look(look, 1.0) for look in looks]


def test_what_waits_and_does_not_move_is_found_after_the_limit() -> None:
    found = looked(watchdog(3.0), *[{"partition 1": Look(7, "same")}] * 6)
    assert found == [None] * 4 + ["partition 1 (7 waiting)"] * 2


def test_what_moves_or_has_nothing_to_do_is_never_found() -> None:
    moving = [{"partition 1": Look(9, i), "partition 2": Look(0, "same")} for i in range(20)]
    assert looked(watchdog(3.0), *moving) == [None] * 20


def test_one_that_stands_still_is_found_beside_others_that_move() -> None:
    looks = [{"a": Look(1, i), "b": Look(2, "same")} for i in range(6)]
    assert looked(watchdog(3.0), *looks)[-1] == "b (2 waiting)"


def test_the_count_begins_anew_when_something_was_done_taken_away_or_came_back() -> None:
    still, gone = {"a": Look(1, "same")}, dict[str, Look]()
    assert looked(watchdog(3.0), *[still] * 4, gone, *[still] * 4) == [None] * 9
    assert looked(watchdog(3.0), *[still] * 4, {"a": Look(1, "other")}, *[still] * 3) == [None] * 8
    assert looked(watchdog(3.0), *[still] * 4, {"a": Look(0, "same")}, *[still] * 3) == [None] * 8


async def test_the_end_is_reported_once_and_names_what_stands_still() -> None:
    async def stuck() -> Mapping[str, Look]:
        return {"partition 3": Look(12, "same")}

    reasons: list[str] = []
    dog = Watchdog(stuck, 0.2, reasons.append)
    dog.start()

    async def told() -> bool:
        return bool(reasons)

    await until(told, 5)
    await asyncio.sleep(0.3)
    dog.stop()
    assert reasons == ["partition 3 (12 waiting) did not move for 0.2 s, and nothing says why"]


async def test_while_the_lag_is_unknown_nothing_ends_and_the_count_begins_anew() -> None:
    seen = 0

    async def away() -> Mapping[str, Look]:
        nonlocal seen
        seen += 1
        if seen % 6 == 0:
            raise KafkaUnavailable("Kafka is away")
        return {"partition 3": Look(12, "same")}

    reasons: list[str] = []
    dog = Watchdog(away, 0.2, reasons.append)
    dog.start()

    async def often() -> bool:
        return seen >= 30

    await until(often, 10)
    dog.stop()
    assert reasons == []


def test_a_loop_that_hangs_ends_the_process_and_shows_where() -> None:
    start = time.monotonic()
    done = subprocess.run(
        [sys.executable, "-c", HANGING, "hang"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 2 and time.monotonic() - start < 20
    assert (
        "the worker ends: the event loop did not turn" in done.stderr
        and 'File "<string>"' in done.stderr
    )
    assert "Traceback" not in done.stderr


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGSTOP")
@pytest.mark.long
def test_a_process_that_was_frozen_is_not_to_blame_for_the_time() -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", HANGING, "turn"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None and process.stdout.readline() == "turning\n"
    os.kill(process.pid, signal.SIGSTOP)
    frozen = time.monotonic()
    while time.monotonic() - frozen < 1.5:
        time.sleep(0.1)
    os.kill(process.pid, signal.SIGCONT)
    _, error = process.communicate(timeout=30)
    assert process.returncode == 0, error
