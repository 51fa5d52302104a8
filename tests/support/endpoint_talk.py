"""A conversation, and a policy under which an endpoint summarises it."""

from __future__ import annotations

from typing import Any

BUDGET = 150


POLICY = {
    "model_window": 4000,
    "reserve_tokens": 300,
    "working_budget": 500,
    "keep_recent_tokens": 100,
    "min_messages": 4,
    "summary_max_tokens": BUDGET,
    "summarizer": "cheap",
}


def talk() -> list[dict[str, Any]]:
    flats: list[dict[str, Any]] = []
    for i in range(24):
        order = ORDERS[i % 4]
        flats += [
            {
                "type": "message",
                "role": "user",
                "content": (
                    f"I am Mia Berg, mia.berg@example.com: send {order} by 2026-03-14 to Oslo."
                ),
            },
            {
                "type": "message",
                "role": "assistant",
                "content": (
                    f"Order {order} costs $120.50. I am waiting for the driver about the refund of"
                    " $35.00."
                ),
            },
        ]
    return flats


ORDERS = ("#W58201", "#W58202", "#W58203", "#W58204")
