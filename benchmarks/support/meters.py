"""What processes used while something was measured: CPU seconds and memory, by groups of
processes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil

MIB = 1 << 20


class Meter:
    """Reads groups of processes (``{"kafka": [pid], …}``) when it is made, and again at
    :meth:`stop`.
    """

    def __init__(self, groups: Mapping[str, Sequence[int]]) -> None:
        self._processes = {
            name: [psutil.Process(pid) for pid in pids] for name, pids in groups.items() if pids
        }
        self._cpu = {name: _cpu(processes) for name, processes in self._processes.items()}
        self._machine = _busy()
        self._begin = time.perf_counter()
        self.seconds = 0.0

    def stop(self) -> dict[str, Any]:
        """For each group its CPU seconds (user and system) since then, the cores that is, and
        resident and peak memory in MiB.

        ``others`` is what the rest of the machine used: the higher it is, the less the measurement
        says.
        """
        self.seconds = time.perf_counter() - self._begin
        used: dict[str, Any] = {
            name: self._used(name, processes) for name, processes in self._processes.items()
        }
        others = max(0.0, _busy() - self._machine - sum(group["cpu_s"] for group in used.values()))
        return {
            **used,
            "others": {"cpu_s": round(others, 2), "cores": round(others / self.seconds, 2)},
        }

    def _used(self, name: str, processes: Sequence[psutil.Process]) -> dict[str, float]:
        cpu = _cpu(processes) - self._cpu[name]
        return {
            "cpu_s": round(cpu, 2),
            "cores": round(cpu / self.seconds, 2),
            "resident_mib": round(sum(p.memory_info().rss for p in processes) / MIB, 1),
            "peak_mib": round(sum(peak_bytes(p) for p in processes) / MIB, 1),
        }


def _cpu(processes: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in processes]
    return float(sum(t.user + t.system for t in times))


def _busy() -> float:
    """CPU seconds that the machine's cores were not idle since its start."""
    times = psutil.cpu_times()
    return float(
        sum(times)
        - times.idle
        - getattr(times, "iowait", 0.0)
        - getattr(times, "guest", 0.0)
        - getattr(times, "guest_nice", 0.0)
    )


def peak_bytes(process: psutil.Process) -> int:
    """The most memory the process ever had resident, as Linux tells it; elsewhere what it has
    now.
    """
    try:
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        return int(process.memory_info().rss)  # no /proc on this system
    return int(process.memory_info().rss)
