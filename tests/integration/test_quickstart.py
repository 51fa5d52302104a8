"""docs/quickstart.md as a reader goes through it: every command is run, and what is printed below
it is what it prints.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.commands import clean_env
from tests.support.up import Up, running

PAGE = Path(__file__).resolve().parents[2] / "docs" / "quickstart.md"
ADDRESS = "http://127.0.0.1:8080"
FIRST = ("make setup", ". .venv/bin/activate", "threadfold up")
pytestmark = pytest.mark.timeout(600)


def whole(command: str) -> bool:
    """Whether bash would run it, or waits for more lines."""
    here = re.search(r"<<'(\w+)'", command)
    if here:
        return command.rstrip().endswith(f"\n{here[1]}")
    return (
        subprocess.run(
            ["bash", "-n"], input=command, text=True, capture_output=True, check=False
        ).returncode
        == 0
    )


def commands(page: str) -> Iterator[tuple[str, list[str]]]:
    """The page's commands and the lines that stand below each, in order."""
    for block in re.findall(r"```console\n(.*?)```", page, re.DOTALL):
        lines = block.splitlines()
        while lines:
            command = lines.pop(0).removeprefix("$ ")
            while not whole(command):
                command += "\n" + lines.pop(0)
            printed: list[str] = []
            while lines and not lines[0].startswith("$ "):
                printed.append(lines.pop(0))
            yield command, printed


def pattern(printed: list[str]) -> str:
    """What was printed as a regular expression: … stands for anything."""
    return ".*".join(re.escape(piece) for piece in "\n".join(printed).split("…"))


async def bash(command: str, folder: Path, env: dict[str, str]) -> str:
    process = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        command,
        cwd=folder,
        env=env,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(60):
        out, err = await process.communicate()
    assert process.returncode == 0, f"{command} exited with {process.returncode}: {err.decode()}"
    return out.decode().strip()


@pytest.mark.skipif(
    not (shutil.which("bash") and shutil.which("curl")),
    reason="the page's commands need bash and curl",
)
@pytest.mark.long
async def test_every_command_of_the_quickstart_does_what_the_page_says(tmp_path: Path) -> None:
    page = PAGE.read_text()
    programs = str(Path(sys.executable).parent)
    env = clean_env(
        {"PATH": f"{programs}{os.pathsep}{os.environ['PATH']}", "no_proxy": "127.0.0.1"}
    )
    async with running(tmp_path / "threadfold-data") as up:
        url = await up.ready()
        (program,) = re.findall(r"```python\n(.*?)```", page, re.DOTALL)
        (tmp_path / "talk.py").write_text(program.replace(ADDRESS, url))
        heard = await go_through(page, up, url, tmp_path, env)
    assert heard.count("event: event\n") >= 80
    assert "event: summary\n" in heard


async def go_through(page: str, up: Up, url: str, folder: Path, env: dict[str, str]) -> str:
    """Run the commands one after the other; returns what the stream that goes on meanwhile said."""
    found = list(commands(page))
    assert [command for command, _ in found][: len(FIRST)] == list(FIRST)
    assert re.search(
        pattern(found[2][1]).replace(re.escape(ADDRESS), re.escape(url)), "\n".join(up.lines)
    )
    key = up.lines[0].rpartition(" ")[2]
    stream: asyncio.subprocess.Process | None = None
    try:
        for command, printed in found[len(FIRST) :]:
            exported = re.fullmatch(r"export (\w+)=tf_…", command)
            if exported:
                env[exported[1]] = key
            elif command.startswith("curl -N "):
                watch = "exec " + command.replace(ADDRESS, url) + " 2>/dev/null"
                stream = await asyncio.create_subprocess_exec(
                    "bash", "-c", watch, cwd=folder, env=env, stdout=asyncio.subprocess.PIPE
                )
                assert stream.stdout is not None
                await asyncio.wait_for(
                    stream.stdout.readuntil(b"retry: "), 30
                )  # what is appended from here on is told
            elif command not in FIRST:
                out = await bash(command.replace(ADDRESS, url), folder, env)
                assert re.search(pattern(printed), out, re.DOTALL), f"{command} printed {out}"
                if "tenants add" in command:
                    key = out.splitlines()[-1]
        assert stream is not None
        stream.terminate()
        said, _ = await stream.communicate()
        return said.decode()
    finally:
        if stream is not None and stream.returncode is None:
            stream.kill()
            await stream.wait()
