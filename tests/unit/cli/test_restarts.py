"""How ``up`` starts again what ended, and what it says of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from projections.errors import EmbeddedUnavailable
from tests.support.processes import until
from threadfold.cli import restarts
from threadfold.cli.restarts import LONGEST_LINE, Kept, cause, last_message


class Machine:
    """Something that runs or not, and can be started only while there is space."""

    def __init__(self) -> None:
        self.running, self.space, self.starts = True, True, 0

    def launch(self) -> None:
        self.starts += 1
        if not self.space:
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
    machine, log = Machine(), tmp_path / "kafka.log"
    log.write_text("ERROR no room for segment 7\n")
    kept = Kept("kafka", log, machine.launch, machine.poll)
    machine.running = machine.space = False
    said = sentences(kept, pool, lambda: machine.starts > 4 and not kept.is_starting)
    assert said[:3] == [
        f"kafka ended with exit code 1 (ERROR no room for segment 7; see {log}): starting it again"
        " in 0.01 s",
        f"kafka cannot be started (ERROR no room for segment 7; see {log}): trying again in 0.02 s",
        f"kafka cannot be started (ERROR no room for segment 7; see {log}): trying again in 0.04 s",
    ]
    assert said[3].endswith("in 0.04 s")
    assert kept.is_down
    machine.space = True
    sentences(kept, pool, lambda: not kept.is_down)
    assert machine.poll() is None


def test_killed_process_is_named_by_the_signal_and_not_by_a_line_of_its_log(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.write_text("all is well\n")
    assert cause(log, 137) == f"SIGKILL ended it; see {log}"
    assert cause(log, 1) == f"all is well; see {log}"
    log.write_text("all is well\n| threadfold.compactions | 3 |\n+---+---+\n")
    assert last_message(log) == "all is well"


def test_full_disk_is_named_as_the_cause(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = tmp_path / "kafka.log"
    log.write_text("java.io.IOException: something\n\tat Some.method(Some.java:1)\n")
    assert cause(log, 1) == f"java.io.IOException: something; see {log}"
    monkeypatch.setattr(restarts, "LITTLE_SPACE", 1 << 60)
    assert cause(log, 1).startswith(f"the disk of {tmp_path} is full: ")


def test_last_message_with_words_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    assert last_message(log) == "its log is empty"
    log.write_text("starting\nthreadfold: too much of it; stop the producer\n+-----------+\n\n")
    assert last_message(log) == "threadfold: too much of it; stop the producer"
    log.write_text("\n+---+\n")
    assert last_message(log) == "its log is empty"


def test_a_line_that_is_cut_says_so(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.write_text("x" * (LONGEST_LINE + 1))
    assert last_message(log) == "x" * LONGEST_LINE + "…"
