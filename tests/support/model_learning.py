"""A conversation that teaches the long-term memory by way of a model behind a real HTTP server."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from projections.names import Position
from streams.compaction.summarizers.registry import Summarizers
from streams.memory.model_extraction import SpanExtraction
from streams.metrics.metrics import Metrics
from streams.settings.settings import Settings
from tests.support.learning import Learning, closed, opened, user
from tests.support.model_server import Behaviour, ModelServer, model_server, says

SESSIONS = {"memory_auto": "sessions"}
HOME = "The user lives in Oslo."
BOAT = {
    "type": "preference",
    "text": "The user would rather take the boat than the plane.",
    "positions": ["0-1"],
    "confidence": 0.7,
    "tags": {"task": ["travel"]},
}
SAID = (user("I live in Oslo."), user("Planes? A boat any day."))


def teaches(*records: Any, **usage: Any) -> Behaviour:
    return says(json.dumps({"records": list(records)}), **usage)


def settings_of(url: str, **changes: Any) -> Settings:
    endpoint = {
        "base_url": url,
        "model": "small-1",
        "input_price": 1.0,
        "output_price": 4.0,
        **changes.pop("endpoint", {}),
    }
    options = {"summary_time_cap": 5.0, **changes}
    return Settings.load(env={}, summarizers={"cheap": endpoint}, memory_model="cheap", **options)


@asynccontextmanager
async def learning(
    *behaviours: Behaviour, policy: dict[str, Any] = SESSIONS, **changes: Any
) -> AsyncIterator[tuple[Learning, ModelServer]]:
    """A log that a model learns from, and the model's server."""
    async with model_server(*behaviours) as server:
        metrics = Metrics()
        settings = settings_of(changes.pop("url", server.url), **changes)
        models = Summarizers(settings, metrics=metrics)
        extraction = SpanExtraction(models.models, metrics=metrics)
        world = Learning(policy, model="cheap", metrics=metrics, extraction=extraction)
        try:
            yield world, server
        finally:
            await models.close()


async def session(world: Learning, *said: dict[str, Any]) -> list[Position]:
    return await world.say(opened(), *(said or SAID), closed())
