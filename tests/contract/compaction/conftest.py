"""An endpoint that failed is asked again almost at once."""

from __future__ import annotations

import pytest

from streams.compaction.summarizers import attempts


@pytest.fixture
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Between attempts; what an endpoint asks for is waited for in full."""
    monkeypatch.setattr(attempts, "PAUSE", 0.02)
