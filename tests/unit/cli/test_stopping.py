"""How ``up`` ends: all of it in time, whatever of it hangs."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from streams.settings.settings import Settings
from tests.support.processes import until
from threadfold.cli.fleet import Fleet
from threadfold.cli.up import END, SERVICES_END, grace_after
from threadfold.embedded.server import EmbeddedServer

MARGIN = 3.5
"""Seconds that killing and exiting may take on a busy machine."""
STUBBORN = """\
import signal, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("begun", flush=True)
time.sleep(60)
"""


@pytest.mark.parametrize("spent", [0.0, 1.0, 5.9, 6.1, 12.0, SERVICES_END, SERVICES_END + 0.5])
def test_servers_that_hang_are_killed_in_time_however_late_the_services_ended(spent: float) -> None:
    grace = grace_after(spent)
    assert grace >= 1.0
    assert spent + min(EmbeddedServer.grace, grace) <= END - MARGIN


def test_services_that_do_not_end_are_killed_together_when_their_time_is_over(
    tmp_path: Path,
) -> None:
    fleet = Fleet(Settings(), tmp_path, workers=2)
    services = [fleet.gateway, *fleet.workers]
    for service in services:
        service.command = [sys.executable, "-c", STUBBORN]
    fleet.start()
    try:
        until(lambda: all("begun" in service.log.read_text() for service in services))
        began = time.monotonic()
        fleet.stop(1.0)
        assert 0.9 < time.monotonic() - began < 1.0 + MARGIN
        assert [service.poll() for service in services] == [137] * 3
    finally:
        fleet.stop(0.0)
