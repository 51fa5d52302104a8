"""How clients check certificates."""

from __future__ import annotations

import asyncio
import shutil
import ssl
from pathlib import Path

import certifi
import httpx
import pytest

from tests.support.certificates import Authority
from threadfold_client import AsyncClient
from threadfold_client.errors import Fault


async def test_the_known_authorities_are_loaded_once_for_all_clients_of_a_process(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    loaded: list[ssl.SSLContext] = []
    create = httpx.create_ssl_context

    def counted() -> ssl.SSLContext:
        loaded.append(create())
        return loaded[-1]

    monkeypatch.setattr(httpx, "create_ssl_context", counted)
    for name in ("one.pem", "other.pem"):
        copied = shutil.copy(certifi.where(), tmp_path / name)
        monkeypatch.setenv("SSL_CERT_FILE", str(copied))
        clients = [AsyncClient("https://127.0.0.1:1", f"key{number}") for number in range(3)]
        for client in clients:
            await client.close()
    assert len(loaded) == 2, "once, and again where another file is named"


async def test_a_certificate_that_is_not_accepted_is_said_at_once(tmp_path: Path) -> None:
    made = Authority(tmp_path).issue("gateway")
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*made)
    connections: list[asyncio.Protocol] = []

    def protocol() -> asyncio.Protocol:
        connections.append(asyncio.Protocol())
        return connections[-1]

    server = await asyncio.get_running_loop().create_server(protocol, "127.0.0.1", 0, ssl=tls)
    port = server.sockets[0].getsockname()[1]
    async with server, AsyncClient(f"https://127.0.0.1:{port}", "key") as client:
        with pytest.raises(Fault, match="its certificate is not accepted: unable to get"):
            await client.context("c1")
    assert len(connections) == 1
