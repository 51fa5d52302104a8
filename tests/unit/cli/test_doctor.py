"""What `doctor` says of models, of the gateway and of its certificate, whatever else is away."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from streams.settings.settings import Settings
from tests.support.certificates import Authority
from tests.support.model_server import Behaviour, fails, model_server, says, stalls
from tests.support.ports import closed_port
from tests.support.serving import serving
from threadfold.cli.doctor import examine

CHEAP = {"base_url": "http://127.0.0.1:1/v1", "model": "small-1", "key_env": "OWN_MODELS_KEY"}


async def said(
    capsys: pytest.CaptureFixture[str],
    what: str = "memory models",
    summarizers: dict[str, Any] | None = None,
    **settings: str,
) -> list[str]:
    away = {
        "kafka": f"127.0.0.1:{closed_port()}",
        "redis": f"redis://127.0.0.1:{closed_port()}/0",
    }
    asked = {"cheap": CHEAP} if summarizers is None else summarizers
    await examine(Settings.load(env={}, summarizers=asked, **away, **settings))
    return [line for line in capsys.readouterr().out.splitlines() if what in line]


async def test_the_models_that_are_asked_are_named_and_a_missing_key_is_wrong(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert await said(capsys) == []
    (wrong,) = await said(capsys, memory_model="cheap")
    assert wrong.startswith("wrong memory models: summarizer 'cheap'") and "OWN_MODELS_KEY" in wrong
    monkeypatch.setenv("OWN_MODELS_KEY", "sk-1")
    assert await said(capsys, memory_model="cheap", memory_hyde="cheap") == [
        "ok    memory models: memory_model asks cheap, memory_hyde asks cheap"
    ]


async def tried(capsys: pytest.CaptureFixture[str], behaviour: Behaviour, **options: object) -> str:
    async with model_server(behaviour) as server:
        cheap = {"base_url": server.url, "model": "small-1", **options}
        (line,) = await said(capsys, "summarizers", {"cheap": cheap})
        server.stopping.set()
        assert [call["max_tokens"] for call in server.calls] == [16]
    return line


async def test_each_summarizers_endpoint_is_asked_once(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    well = await tried(capsys, says("yes"))
    assert well.startswith("ok    summarizers: cheap (small-1) answered in 0.")
    ill = await tried(capsys, fails(503))
    assert ill == (
        "wrong summarizers: summarizer 'cheap' answered 503 (oops); until it answers, summaries are extractive"
    )
    full = await tried(capsys, fails(429))
    assert full.startswith("note  summarizers: summarizer 'cheap' answered 429 (oops): it is there")
    silent = await tried(capsys, stalls, timeout=0.2)
    assert silent.startswith("wrong summarizers: summarizer 'cheap' did not answer within 0.2 s")
    assert (await said(capsys, "summarizers", {"cheap": CHEAP}))[0].startswith(
        "wrong summarizers: summarizer 'cheap': the environment variable OWN_MODELS_KEY"
    )
    assert await said(capsys, "summarizers", {}) == []


async def test_a_certificate_of_the_gateway_that_is_not_of_its_key_is_wrong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    authority = Authority(tmp_path)
    certificate, key = map(str, authority.issue("gateway", days=30))
    _, other = map(str, authority.issue("other"))
    files = {"gateway_certificate": certificate, "gateway_private_key": key}
    (well,) = await said(capsys, "certificates", **files)
    assert well == "ok    certificates: gateway_certificate expires in 30 days"
    *_, ill = await said(capsys, "certificates", **files | {"gateway_private_key": other})
    assert ill.startswith("wrong certificates: the gateway's TLS: ")
    assert "do not load (key values mismatch)" in ill


async def test_the_gateway_that_the_settings_name_is_asked_whether_it_is_alive(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await said(capsys, "gateway:") == []
    with socket.create_server(("127.0.0.1", 0)) as frozen:  # It takes connections, and is silent.
        hangs = f"http://127.0.0.1:{frozen.getsockname()[1]}"
        (line,) = await said(capsys, "gateway:", {}, gateway_url=hangs)
    assert line.startswith(f"wrong gateway: {hangs} does not answer within 3 s: start a gateway")
    app = Starlette(routes=[Route("/healthz", lambda request: Response("{}"))])
    async with serving(app) as url:
        (line,) = await said(capsys, "gateway:", {}, gateway_url=url)
    assert line == f"ok    gateway: it answers at {url}"


async def test_a_memory_folder_that_cannot_be_used_is_wrong(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    good, file = tmp_path / "good", tmp_path / "file"
    file.touch()
    (line,) = await said(capsys, "memory store", {}, memory_store=str(good))
    assert line == f"ok    memory store: SQLite in {good}, which a gateway makes when it starts"
    good.mkdir()
    (line,) = await said(capsys, "memory store", {}, memory_store=str(good))
    assert line == f"ok    memory store: SQLite in {good}" and not list(good.iterdir())
    (line,) = await said(capsys, "memory store", {}, memory_store=str(file / "m"))
    assert line.startswith(f"wrong memory store: a file is in the place of {file / 'm'}, or of one")
    (line,) = await said(capsys, "memory store", {}, memory_store="lancedb:m")
    assert line.startswith(("ok    memory store: LanceDB", "wrong memory store: setting"))
