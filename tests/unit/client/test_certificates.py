"""Clients share what they check certificates with."""

from __future__ import annotations

import shutil
import ssl
from pathlib import Path

import certifi
import httpx
import pytest

from threadfold_client import AsyncClient


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
