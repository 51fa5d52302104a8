"""The demo's subscriber: ``threadfold summaries`` in a process of its own, and what it printed."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from streams.settings.settings import Settings
from threadfold.demo.parts import environment
from threadfold.embedded.process import GuardedProcess


@dataclass
class Subscriber:
    """Reads what the process printed so far. ``records`` counts repeats as well, the sets do not:
    delivery is at least once.
    """

    process: GuardedProcess
    output: Path
    records: int = 0
    received: set[str] = field(default_factory=set)
    voided: set[str] = field(default_factory=set)
    sample: str = ""
    sample_of: str = ""
    _offset: int = 0
    _rest: bytes = b""

    @classmethod
    def of(cls, settings: Settings, folder: Path) -> Subscriber:
        """The subscriber of these settings' summaries topic, not started yet."""
        output = folder / "subscriber.log"
        command = [sys.executable, "-m", "threadfold.cli", "summaries"]
        process = GuardedProcess(
            [*command, "--follow", "--from-beginning"],
            env=environment(settings, os.environ),
            log=output,
            cwd=folder,
        )
        return cls(process, output)

    def read(self) -> None:
        """Read the lines printed since the last call. Lines that are not JSON are skipped."""
        if not self.output.exists():
            return
        with self.output.open("rb") as file:
            file.seek(self._offset)
            new = file.read()
        self._offset += len(new)
        *lines, self._rest = (self._rest + new).split(b"\n")
        for line in lines:
            if line.startswith(b"{"):
                self._note(json.loads(line))

    def _note(self, event: dict[str, Any]) -> None:
        self.records += 1
        data = event["data"]
        if event["type"] == "threadfold.summary.voided.v1":
            self.voided.add(data["summary_id"])
        elif event["type"] == "threadfold.summary.v1":
            self.received.add(data["summary_id"])
            name = event["source"].removeprefix("/tenants/").replace("/conversations/", "/", 1)
            self.sample = " ".join(data["text"].split())[:300]
            self.sample_of = f"a summary of {data['span']['count']} events of {name}"
