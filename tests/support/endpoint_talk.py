"""A conversation, a policy under which an endpoint summarises it, and the summary that comes of it."""

from __future__ import annotations

from typing import Any

from projections.events.codec import decode_event
from projections.events.tokenizer import count
from projections.events.types import Summary
from projections.policy.policy import Rules
from streams.compaction.compactor import Compactor
from streams.compaction.requests import request_for
from streams.settings.settings import Settings
from tests.support.compaction import append, fold
from threadfold.testing import MemoryLog

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


GOOD = (
    "Mia Berg (mia.berg@example.com) wants orders #W58201, #W58202, #W58203 and #W58204 sent to"
    " Oslo by 2026-03-14, for $120.50 each. The depot confirmed the first; the assistant waits for"
    " the driver about the others. Open: the refund of $35.00 for #W58203."
)


SECRET = "sk-very-secret-key"


def settings_of(url: str, **changes: Any) -> Settings:
    options = {
        "base_url": url,
        "model": "small-1",
        "key": SECRET,
        "input_price": 1.0,
        "output_price": 4.0,
    }
    return Settings.load(
        env={},
        **{
            "summarizers": {"cheap": options | changes.pop("endpoint", {})},
            "summary_time_cap": 5.0,
            **changes,
        },
    )


async def summary_by(compactor: Compactor, flats: list[dict[str, Any]] | None = None) -> Summary:
    """What one request ends in, seen to be in force in the window afterwards."""
    log = compactor.log
    assert isinstance(log, MemoryLog)
    await append(log, talk() if flats is None else flats)
    window = await fold(log, Rules(POLICY))
    request = request_for(window, 1)
    assert request is not None and request.summarizer == "cheap"
    position = await compactor.answer(request)
    taken = (await fold(log, Rules(POLICY))).meta.summary
    assert taken is not None and taken.summary_id == request.request_id
    summary = decode_event((await log.read([position]))[position].value or b"").data
    assert isinstance(summary, Summary)
    assert summary.tokens == count(summary.text) <= BUDGET and summary.text.strip()
    return summary


async def ask(settings: Settings, flats: list[dict[str, Any]] | None = None) -> Summary:
    compactor = Compactor(settings, MemoryLog(3))
    try:
        return await summary_by(compactor, flats)
    finally:
        await compactor.close()


LONG = "The user wants the parcel in Oslo and says so at great length. " * 200
