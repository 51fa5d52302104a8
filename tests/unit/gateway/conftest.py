"""Fixtures of the gateway's unit tests."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.certificates import Authority


@pytest.fixture
def collector_off() -> Iterator[None]:
    """Only what nothing refers to is freed."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path / "authority")


@pytest.fixture
def files(authority: Authority) -> Iterator[tuple[Path, Path]]:
    yield authority.issue("first")


@pytest.fixture(autouse=True)
def no_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests count steps of the event loop: none of them passes in a rest."""
    for module in ("arrivals", "admission"):
        monkeypatch.setattr(f"threadfold.gateway.{module}.KEYLESS_REST", 0.0)
    monkeypatch.setattr("threadfold.gateway.arrivals.CRUMBS_REST", 0.0)
