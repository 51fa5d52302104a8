"""The client over a network that cuts, delays and repeats requests: what it says it appended stands
in the log and in the window once, in order.
"""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from streams.settings.settings import Settings
from tests.support.lossy_proxy import FAULTS, lossy_proxy
from tests.support.platform import running_platform
from threadfold_client import AsyncClient, Retries

CONVERSATIONS = 20
APPENDS = 50
"""Of each conversation: 1,000 in all, of one to three events each."""
POLICY = {"working_budget": 100_000, "min_messages": 10_000, "compaction": False}


def said(conversation: str, number: int) -> list[dict[str, Any]]:
    return [
        {"type": "message", "role": "user", "content": f"{conversation} {number}.{part}"}
        for part in range(1 + number % 3)
    ]


@pytest.mark.long
@pytest.mark.timeout(240)
async def test_a_thousand_appends_over_a_bad_network_are_there_once_and_in_order(
    settings: Settings,
) -> None:
    async with (
        running_platform(settings, POLICY) as platform,
        lossy_proxy(
            int(platform.url.rpartition(":")[2]), seed=16, share=0.35, patience=2.0
        ) as proxy,
        AsyncClient(
            proxy.url, platform.key, timeout=2.0, retries=Retries(attempts=20, total=60.0, most=0.5)
        ) as client,
    ):
        acknowledged: dict[str, list[tuple[str, str]]] = {}

        async def produce(conversation: str) -> None:
            mine = acknowledged.setdefault(conversation, [])
            for number in range(APPENDS):
                answer = await client.append(
                    conversation,
                    said(conversation, number),
                    wait="applied" if number % 5 == 0 else None,
                )
                mine += [(event.id, event.position) for event in answer.events]

        names = [f"net-{i}" for i in range(CONVERSATIONS)]
        await asyncio.gather(*map(produce, names))
        await proxy.settle()
        assert all(proxy.done[fault] > 10 for fault in FAULTS), proxy.done

        lost, doubled, differing = 0, 0, 0
        for name in names:
            texts = [event["content"] for n in range(APPENDS) for event in said(name, n)]
            last = await client.append(name, {"type": "session.closed", "reason": "explicit"})
            window = await client.context(name, after=last.position)
            assert window.count == len(texts) + 1, name
            shown = [message["content"] for message in window.messages]
            history = [event async for event in client.iter_history(name) if "content" in event]
            logged = [event["content"] for event in reversed(history)]
            ids = {event["id"] for event in history}
            lost += sum(id_ not in ids for id_, _ in acknowledged[name])
            for found in (shown, logged):
                doubled += len(found) - len(set(found))
                differing += found != texts
            differing += len(acknowledged[name]) != len(texts)
        assert (lost, doubled, differing) == (0, 0, 0)
