"""The machine and the code a figure was measured on."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

PACKAGES = (
    *("uvicorn", "uvloop", "httptools", "h11", "fastapi", "starlette", "granian"),
    *("aiokafka", "faust-streaming", "quixstreams", "redis", "hiredis"),
    *("openai-agents", "langgraph", "langgraph-checkpoint-sqlite", "langchain-core"),
)


def conditions_of_now() -> dict[str, Any]:
    """Cores, memory (GiB), processor, versions, commit, date, and the load averages before the run
    (1, 5, 15 minutes).
    """
    return {
        "cores": os.cpu_count(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "cpu": _cpu_model(),
        "system": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        **_SERVERS,
        "commit": _commit(),
        "date": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        "load_before": _BEFORE,
    }


_SERVERS: dict[str, str] = {}
_BEFORE: list[float] = []


def note_servers(kafka: str, redis: str) -> None:
    """Remember the versions of the servers that this run uses, and how busy the machine was before
    they were started.
    """
    _SERVERS.update(kafka=kafka, redis=redis)


def note_load() -> None:
    """Remember how busy the machine is before a figure starts."""
    _BEFORE[:] = [round(load, 2) for load in os.getloadavg()]


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _cpu_model() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    except OSError:
        return platform.processor()  # no /proc on this system
    return platform.processor()


def _commit() -> str:
    """The commit, with ``+`` where the working tree differs from it; empty outside a repository."""
    git = ("git", "-C", str(Path(__file__).parent))
    head = output_of(*git, "rev-parse", "--short", "HEAD").strip()
    return head + "+" * bool(output_of(*git, "status", "--porcelain", "-uno"))


def output_of(*command: str) -> str:
    """What a short command prints; empty if it does not run here."""
    try:
        run = subprocess.run(command, capture_output=True, text=True, check=False, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return run.stdout
