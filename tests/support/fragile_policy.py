"""A policy whose reducer fails, and messages it fails on."""

from __future__ import annotations

from typing import Any

from tests.support.pipeline import POLICY

FRAGILE = {
    **POLICY,
    "compaction": False,
    "reducers": [{"name": "compact_tool_results", "replacement": "callable:shorten"}],
}


def message(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": text}
