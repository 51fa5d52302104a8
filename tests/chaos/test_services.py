"""What a run notes of its services' own lives, and what of it is wrong."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.chaos.services import Service
from tests.support.processes import until
from threadfold.embedded.process import GuardedProcess


@pytest.fixture
def service(tmp_path: Path) -> Service:
    return Service("worker-0", ["worker"], {}, tmp_path / "worker-0.log")


def ended(service: Service, code: int, line: str) -> None:
    """A process of the service that says a line and ends."""
    program = f"import sys; print({line!r}); sys.exit({code})"
    service.process = GuardedProcess([sys.executable, "-c", program], log=service.log)
    service.process.start()
    until(lambda: not service.running)
    service.note_end()


def test_ends_are_counted_by_their_reasons_and_kills_are_not(service: Service) -> None:
    for port in (1, 2):
        ended(service, 2, f"threadfold: Kafka at 127.0.0.1:{port} does not answer (who knows)")
    ended(service, 0, "as it should")
    ended(service, 137, "killed")
    assert service.ended == {"2 (Kafka does not answer)": 2}
    assert service.wrongs() == []


def test_a_traceback_is_wrong_and_so_is_a_late_end(service: Service) -> None:
    service.log.write_text("Traceback (most recent call last):\nValueError\n")
    service.endings = [3.0, 25.0]
    assert service.wrongs() == [
        "worker-0 did not end within 20 s of SIGTERM",
        "worker-0 logged 1 tracebacks",
    ]
