"""Conversations that show each thing the console has a place for."""

from __future__ import annotations

import time
from typing import Any

import httpx

POLICY = {
    "model_window": 8000,
    "reserve_tokens": 1000,
    "working_budget": 900,
    "keep_recent_tokens": 400,
    "min_messages": 6,
    "summary_max_tokens": 200,
    "soft_trim_chars": 400,
    "hard_clear_chars": 20000,
    "protect_recent": 0,
}
RESULT = "\n".join(f"flight {n}: OSL to LHR, {n} EUR, seat {n}A" for n in range(100, 160))


def talk(turns: int) -> list[dict[str, Any]]:
    """Questions, answers and tool calls about a journey, ``turns`` of each."""
    found: list[dict[str, Any]] = [
        {"type": "conversation.opened", "user": "u-7", "channel": "web", "policy": POLICY, "metadata": {"title": "A journey to London"}},
        {"type": "message", "role": "system", "content": "You book journeys. Ask before you pay."},
    ]  # fmt: skip
    for n in range(turns):
        call = {"id": f"c{n}", "name": "search_flights", "arguments": f'{{"day": {n + 1}}}'}
        found += [
            {"type": "message", "role": "user", "content": f"Which flights are there on day {n + 1} of the month? I like to sit at the window."},
            {"type": "message", "role": "assistant", "content": None, "tool_calls": [call]},
            {"type": "tool.result", "tool_call_id": f"c{n}", "content": RESULT},
            {"type": "message", "role": "assistant", "content": f"On day {n + 1} the cheapest is flight {100 + n}, at {100 + n} EUR."},
        ]  # fmt: skip
    return found


def approval(suspension: str = "pay-1") -> list[dict[str, Any]]:
    """A call that waits for an approval."""
    call = {"id": f"call-{suspension}", "name": "pay", "arguments": '{"eur": 100}'}
    return [
        {"type": "message", "role": "user", "content": "Book the first one."},
        {"type": "message", "role": "assistant", "content": None, "tool_calls": [call]},
        {"type": "suspension", "suspension_id": suspension, "kind": "approval", "tool_call_id": call["id"], "prompt": "Pay 100 EUR for flight 100?"},
    ]  # fmt: skip


def append(http: httpx.Client, conversation: str, events: list[dict[str, Any]]) -> None:
    """Append events and wait until the window has them."""
    answer = http.post(f"/v1/conversations/{conversation}/events?wait=applied", json=events)
    assert answer.status_code == 200, answer.text
    refused = [one for one in answer.json()["events"] if one["status"] != "applied"]
    assert not refused, refused


def await_summary(http: httpx.Client, conversation: str, limit: float = 90.0) -> None:
    """Wait until the window has a summary."""
    deadline = time.monotonic() + limit
    while http.get(f"/v1/conversations/{conversation}/context").json()["summary"] is None:
        assert time.monotonic() < deadline, f"no summary within {limit:g} s"
        time.sleep(0.2)


def record_call(http: httpx.Client, conversation: str) -> None:
    """Record a model call of the window as it is."""
    shown = http.get(f"/v1/conversations/{conversation}/context").json()
    call = {name: shown[name] for name in ("render_digest", "position", "tokens")}
    answer = http.post(
        f"/v1/conversations/{conversation}/renders",
        json={**call, "model": "gpt-5-mini", "format": "openai"},
    )
    assert answer.json()["recorded"], answer.text
