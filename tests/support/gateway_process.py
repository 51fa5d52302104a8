"""A gateway and a worker as processes of their own, and a tenant whose key may do everything."""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis as sync_redis

from streams.control.control_topic import Control
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from tests.conftest import fresh_settings
from tests.support.commands import COMMAND, clean_env
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.embedded.stack import EmbeddedStack

SCOPES = ["append", "read", "subscribe", "tokens", "admin", "erase"]


@dataclass(frozen=True, slots=True)
class Served:
    """Where the gateway is, the key, the tenant and what the processes wrote so far (by name)."""

    url: str
    key: str
    tenant: str
    settings: Settings
    said: dict[str, list[str]]

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


@contextlib.contextmanager
def serving(stack: EmbeddedStack, folder: Path, tenant: str, **overrides: Any) -> Iterator[Served]:
    """Fresh topics, a worker and a gateway that is ready; both are stopped afterwards."""
    settings = fresh_settings(stack, gateway_port=0, **overrides)
    with sync_redis.Redis.from_url(settings.redis) as client:
        client.flushdb()
    key = asyncio.run(_prepared(settings, tenant))
    write_config(folder / CONFIG_FILE, settings)
    said: dict[str, list[str]] = {}
    with contextlib.ExitStack() as running:
        running.enter_context(_process("worker", folder, said))
        running.enter_context(_process("gateway", folder, said))
        url = _first(said["gateway"], "ready: ")
        _until_ready(url, said)
        yield Served(url, key, tenant, settings, said)


async def _prepared(settings: Settings, tenant: str) -> str:
    await create_topics(settings)
    control = await Control(settings).start()
    try:
        await control.ensure_generation(settings.partitions)
        await control.ensure_tenant(tenant)
        return await control.add_key(tenant, SCOPES)
    finally:
        await control.stop()


@contextlib.contextmanager
def _process(name: str, folder: Path, said: dict[str, list[str]]) -> Iterator[None]:
    process = subprocess.Popen(
        [*COMMAND, name, "--data", str(folder)],
        env=clean_env(),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = said[name] = []

    reader = threading.Thread(target=_collect, args=(process, lines), daemon=True)
    reader.start()
    try:
        yield
    finally:
        process.terminate()
        try:
            process.wait(30)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(5)


def _collect(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stdout is not None
    # Line by line, because others read the list meanwhile.
    lines.extend(line.rstrip() for line in process.stdout)


def _first(lines: list[str], prefix: str, limit: float = 60.0) -> str:
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        for line in lines:
            if line.startswith(prefix):
                return line.removeprefix(prefix)
        time.sleep(0.05)
    raise AssertionError(f"no line {prefix!r} within {limit:g} s: {lines[-20:]}")


def _until_ready(url: str, said: dict[str, list[str]], limit: float = 120.0) -> None:
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    deadline = time.monotonic() + limit
    while time.monotonic() < deadline:
        try:
            with opener.open(f"{url}/readyz", timeout=5):
                return
        except OSError as error:  # a URLError, or a timeout while it answers
            print(f"not ready yet: {error}", file=sys.stderr)
        time.sleep(0.05)
    raise AssertionError(f"the gateway was not ready within {limit:g} s: {said}")
