"""Commands without any setting but those of the test."""

from __future__ import annotations

import pytest

from streams.settings.settings import Settings
from threadfold.embedded.ports import free_ports


@pytest.fixture(autouse=True)
def _no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in Settings.__struct_fields__:
        monkeypatch.delenv(f"THREADFOLD_{name.upper()}", raising=False)
    monkeypatch.delenv("THREADFOLD_CONFIG", raising=False)
    monkeypatch.delenv("THREADFOLD_DEBUG", raising=False)


@pytest.fixture
def away(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Kafka and a Redis at ports where nothing listens."""
    kafka, redis = free_ports(2)
    monkeypatch.setenv("THREADFOLD_KAFKA", f"127.0.0.1:{kafka}")
    monkeypatch.setenv("THREADFOLD_REDIS", f"redis://127.0.0.1:{redis}/0")
