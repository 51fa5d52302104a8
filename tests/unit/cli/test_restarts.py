"""How ``up`` starts again what ended, and what it says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from projections.errors import EmbeddedUnavailable
from tests.support.processes import until
from threadfold.cli import restarts
from threadfold.cli.restarts import LONGEST_LINE, Kept, cause, last_error


class Machine:
    """Something that runs or not, and can be started only while there is space."""

    def __init__(self, log: Path) -> None:
        self.running, self.space, self.starts = True, True, 0
        self.log = log

    def launch(self) -> None:
        self.starts += 1
        if not self.space:
            self.log.write_text(f"{self.log.read_text()}ERROR no room for segment {self.starts}\n")
            raise EmbeddedUnavailable("it ended while starting")
        self.running = True

    def poll(self) -> int | None:
        return None if self.running else 1


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as made:
        yield made


def sentences(kept: Kept, pool: ThreadPoolExecutor, enough: Callable[[], bool]) -> list[str]:
    said: list[str] = []

    def done() -> bool:
        sentence = kept.look(pool)
        said.extend([sentence] if sentence else [])
        return enough()

    until(done)
    return said


def test_what_cannot_be_started_is_tried_with_growing_pauses_until_it_can(
    tmp_path: Path, pool: ThreadPoolExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(restarts, "BACK_OFF", (0.01, 0.02, 0.04))
    log = tmp_path / "kafka.log"
    log.write_text("ERROR of an earlier run\n")
    machine = Machine(log)
    kept = Kept("kafka", log, machine.launch, machine.poll)
    machine.running = machine.space = False
    said = sentences(kept, pool, lambda: machine.starts > 4 and not kept.is_starting)
    assert said[:3] == [
        f"kafka ended with exit code 1 (see {log}): starting it again in 0.01 s",
        f"kafka cannot be started (ERROR no room for segment 1; see {log}): trying again in 0.02 s",
        f"kafka cannot be started (ERROR no room for segment 2; see {log}): trying again in 0.04 s",
    ]
    assert said[3].endswith("in 0.04 s")
    assert kept.is_down
    machine.space = True
    sentences(kept, pool, lambda: not kept.is_down)
    assert machine.poll() is None


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (
            EmbeddedUnavailable("It cannot use /a.b/c: Operation not permitted; choose another."),
            "It cannot use /a.b/c: Operation not permitted; choose another",
        ),
        (
            EmbeddedUnavailable("It ended with exit code 1. See /a.b/c; its last lines:\n  well"),
            "It ended with exit code 1",
        ),
        (PermissionError(1, "Operation not permitted"), "[Errno 1] Operation not permitted"),
    ],
)
def test_what_its_log_does_not_say_is_told_by_what_kept_it_from_starting(
    tmp_path: Path,
    pool: ThreadPoolExecutor,
    monkeypatch: pytest.MonkeyPatch,
    error: Exception,
    why: str,
) -> None:
    monkeypatch.setattr(restarts, "BACK_OFF", (0.01,))
    log = tmp_path / "redis.log"
    log.write_text("ERROR of an earlier run\n")
    starts = 0

    def launch() -> None:
        nonlocal starts
        starts += 1
        raise error

    kept = Kept("redis", log, launch, lambda: 137)
    said = sentences(kept, pool, lambda: starts > 1 and not kept.is_starting)
    assert said[:2] == [
        f"redis ended with exit code 137 (SIGKILL ended it; see {log}): starting it again in 0.01 s",
        f"redis cannot be started ({why}; see {log}): trying again in 0.01 s",
    ]


def test_killed_process_is_named_by_the_signal_and_not_by_a_line_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.write_text("[ERROR] all is lost\n")
    assert cause(log, 137) == f"SIGKILL ended it; see {log}"
    assert cause(log, 1) == f"[ERROR] all is lost; see {log}"
    assert cause(log, 0) == f"see {log}", "it ended as it was asked to"
    log.write_text("WARN all is well\n| threadfold.compactions | 3 |\n+---+---+\n")
    assert cause(log, 1) == f"see {log}"


def test_full_disk_is_named_as_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "kafka.log"
    log.write_text("java.io.IOException: something\n\tat Some.method(Some.java:1)\n")
    assert cause(log, 1) == f"java.io.IOException: something; see {log}"
    monkeypatch.setattr(restarts, "LITTLE_SPACE", 1 << 60)
    assert cause(log, 1).startswith(f"the disk of {tmp_path} is full: ")


STACK = "\tat org.apache.kafka.Some.method(Some.java:1)\n" * 60
KAFKA = f"""\
2026-11-23T00:40:00,000 ERROR Monitor: an event took 2148 ms.
2026-11-23T00:48:02,210 ERROR LogDirFailureChannel: Error while appending records to e-3
org.apache.kafka.common.errors.KafkaStorageException: it failed
{STACK}Caused by: java.io.IOException: File too large
{STACK}2026-11-23T00:48:02,238 WARN ReplicaManager: Stopping serving replicas in dir log
2026-11-23T00:48:02,282 WARN ReplicaManager: Broker 1 stopped fetcher for partitions e-3,
"""
REDIS = """\
7:M 28 Nov 2026 04:37:54.803 # WARNING Memory overcommit must be enabled!
7:M 28 Nov 2026 04:37:54.836 * Running mode=standalone, port=33567.
7:M 28 Nov 2026 04:37:54.836 # Warning: Could not create server TCP listening socket\
 127.0.0.1:33567: bind: Address already in use
7:M 28 Nov 2026 04:37:54.836 # Failed listening on port 33567 (tcp), aborting.
"""
TRACEBACK = """\
[2026-11-23 00:57:18,229] [1556] [INFO] [^--Monitor]: Stopping...
Traceback (most recent call last):
  File "worker.py", line 1, in <module>
ValueError: not this one
"""


@pytest.mark.parametrize(
    ("log", "error"),
    [
        (
            KAFKA,
            "2026-11-23T00:48:02,210 ERROR LogDirFailureChannel: Error while appending records to"
            " e-3: java.io.IOException: File too large",
        ),
        (TRACEBACK, "ValueError: not this one"),
        ("ERROR first\nthreadfold: stop the producer\n+---+\n\n", "threadfold: stop the producer"),
        ('{"level":"error","message":"x"}\n{"level":"info"}\n', '{"level":"error","message":"x"}'),
        (
            "ERROR:    [Errno 98] address in use\nINFO: done\n",
            "ERROR:    [Errno 98] address in use",
        ),
        (REDIS, REDIS.splitlines()[2]),
        ("2026-11-23T00:48:04,761 WARN LogLoader: Corruption found in segment 0\n", ""),
        ("", ""),
    ],
)
def test_the_last_error_of_a_log_is_quoted_with_what_caused_it(
    tmp_path: Path, log: str, error: str
) -> None:
    file = tmp_path / "some.log"
    file.write_text(log)
    assert last_error(file) == error
    assert last_error(file, len(log)) == ""
    assert last_error(file, len(log) + 1) == error, "a log that was moved aside begins anew"


def test_a_line_that_is_cut_says_so(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.write_text("ERROR " + "x" * LONGEST_LINE)
    assert last_error(log) == "ERROR " + "x" * (LONGEST_LINE - 6) + "…"
