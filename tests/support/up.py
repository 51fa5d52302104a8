"""A running ``threadfold up`` as its user has it: real processes."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.commands import start


class Up:
    """A running ``up``: what it has printed so far, and its processes."""

    def __init__(self, process: asyncio.subprocess.Process, data: Path) -> None:
        self.process = process
        self.data = data
        self.lines: list[str] = []
        self.said: list[str] = []

    async def ready(self) -> str:
        """Read until ``ready:`` and return the URL."""
        assert self.process.stdout is not None
        async with asyncio.timeout(90):
            while not (self.lines and self.lines[-1].startswith("ready: ")):
                line = await self.process.stdout.readline()
                if not line:
                    _, err = await self.process.communicate()
                    raise AssertionError(
                        f"up ended before it was ready: {err.decode()} {self.logs()}"
                    )
                self.lines.append(line.decode().rstrip())
        return self.lines[-1].removeprefix("ready: ")

    def logs(self) -> str:
        return "".join(
            f"\n{log.name}: {log.read_text()[-2000:]}" for log in (self.data / "logs").glob("*.log")
        )

    async def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        """Send a signal and wait for the end; returns the exit code and what was said on stderr."""
        self.process.send_signal(number)
        async with asyncio.timeout(60):
            _, err = await self.process.communicate()
        assert self.process.returncode is not None
        return self.process.returncode, err.decode()

    def children(self) -> dict[int, str]:
        """All processes below this one, with their command lines."""
        listed = subprocess.run(
            ["ps", "-eo", "pid=,ppid=,args="], capture_output=True, text=True, check=True
        ).stdout
        rows = [
            (int(pid), int(parent), args)
            for pid, parent, args in (line.split(None, 2) for line in listed.splitlines())
        ]
        found: dict[int, str] = {}
        family = {self.process.pid}
        while more := {
            pid: args for pid, parent, args in rows if parent in family and pid not in found
        }:
            found |= more
            family |= more.keys()
        return found

    def service(self, name: str) -> int:
        """The pid of a service itself, not of its guard."""
        (pid,) = (
            pid
            for pid, args in self.children().items()
            if args.endswith(f"threadfold.cli {name}") and "guard.py" not in args
        )
        return pid


@asynccontextmanager
async def running(
    data: Path, *options: str, env: dict[str, str] | None = None
) -> AsyncIterator[Up]:
    process = await start("up", "--data", data, "--port", "0", *options, env=env)
    try:
        yield Up(process, data)
    finally:
        if process.returncode is None:
            process.terminate()
            await process.communicate()


async def request(url: str, key: str | None = None, body: object = None) -> Any:
    """A JSON request, as curl makes one."""

    def send() -> Any:
        headers = {"authorization": f"Bearer {key}"} if key else {}
        data = None if body is None else json.dumps(body).encode()
        asked = urllib.request.Request(
            url, data, headers={**headers, "content-type": "application/json"}
        )
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            asked, timeout=20
        ) as answer:
            return json.loads(answer.read())

    return await asyncio.to_thread(send)
