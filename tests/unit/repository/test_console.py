"""The console's files: built from the sources that stand beside them, and served so that the page
can run nothing else and ask no other host.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from streams.settings.settings import Settings
from threadfold.gateway import create_gateway

ROOT = Path(__file__).resolve().parents[3]
SOURCES, BUILT = ROOT / "console", ROOT / "threadfold" / "console"
FILES = (
    "../clients/typescript/dist/index.js",
    "build.mjs",
    "index.html",
    "package.json",
    "package-lock.json",
    "tsconfig.json",
)


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    settings = Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    transport = httpx.ASGITransport(create_gateway(settings))
    async with httpx.AsyncClient(transport=transport, base_url="http://gateway") as client:
        yield client


def test_the_built_files_are_those_of_the_sources() -> None:
    paths = [path for path in (SOURCES / "src").rglob("*") if path.is_file()]
    paths += [SOURCES / name for name in FILES]
    named = sorted((path.relative_to(SOURCES).as_posix(), path) for path in paths)
    hashed = hashlib.sha256()
    for name, path in named:
        hashed.update(name.encode() + b"\0" + path.read_bytes() + b"\0")
    built = json.loads((BUILT / "build.json").read_text())["sources"]
    assert built == hashed.hexdigest(), (
        "the console is not built from these sources: `npm ci && npm run build` in console/"
    )


def test_the_built_files_ask_no_other_host_and_carry_their_licences() -> None:
    for path in BUILT.iterdir():
        hosts = set(re.findall(r"https?://([^/\s\"'`]+)", path.read_text()))
        assert hosts <= {"www.w3.org", "localhost:8080"}, f"{path.name} names {hosts}"
    assert "MIT License" in (BUILT / "licences.txt").read_text()


async def test_the_page_and_each_file_that_it_names_are_served(http: httpx.AsyncClient) -> None:
    page = await http.get("/console")
    assert page.status_code == 200
    assert page.headers["cache-control"] == "no-cache"
    assert "<style" not in page.text and not re.search(r"<script[^>]*>[^<]", page.text)
    named = re.findall(r'(?:src|href)="([^"]+)"', page.text)
    assert len(named) == 3
    for name in named:
        file = await http.get(f"/{name}")
        assert file.status_code == 200, name
        assert file.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert file.headers["x-content-type-options"] == "nosniff"
    policy = page.headers["content-security-policy"]
    assert policy.startswith("default-src 'none';") and "unsafe" not in policy
    assert all(part.split()[1:] in (["'self'"], ["'none'"]) for part in policy.split(";"))


async def test_a_browser_that_begins_at_the_root_comes_to_the_console(
    http: httpx.AsyncClient,
) -> None:
    answer = await http.get("/")
    assert answer.status_code == 307
    assert answer.headers["location"] == "console"


@pytest.mark.parametrize("name", ["build.json", "index.html", "nothing.js", "..%2Fclient.py"])
async def test_no_other_file_is_served(http: httpx.AsyncClient, name: str) -> None:
    assert (await http.get(f"/console/{name}")).status_code == 404
