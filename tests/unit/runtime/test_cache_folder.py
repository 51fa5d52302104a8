"""Where the files lie that a machine fetches once."""

from __future__ import annotations

from pathlib import Path

import pytest

from streams.runtime.cache_folder import cache_folder


def test_cache_folder_follows_the_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("THREADFOLD_CACHE", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert cache_folder() == Path.home() / ".cache" / "threadfold"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_folder() == tmp_path / "threadfold"
    monkeypatch.setenv("THREADFOLD_CACHE", str(tmp_path / "own"))
    assert cache_folder() == tmp_path / "own"
