"""Answers that are large are encoded beside others' requests."""

from __future__ import annotations

import asyncio

import msgspec
import pytest

from streams.runtime.keyed_limit import LARGE, KeyedLimit
from threadfold.gateway.routes.common import answer_beside

TEXT = "A" * (LARGE + 1)


@pytest.mark.parametrize(
    ("document", "large"),
    [
        ({"content": "short", "count": 3, "none": None}, False),
        ({"content": TEXT}, True),
        ({"events": [{"content": [{"type": "text", "text": TEXT}]}]}, True),
        ({"events": [{"content": "A" * 1_000}] * 500}, True),
        ({"messages": msgspec.Raw(msgspec.json.encode(TEXT))}, True),
    ],
)
async def test_others_are_served_while_a_large_answer_is_encoded(
    document: object, large: bool
) -> None:
    turns = KeyedLimit(1)
    encoding = asyncio.create_task(answer_beside(turns, "acme", document, 200))
    passes = 0
    while not encoding.done():
        await asyncio.sleep(0)
        passes += 1
    assert (passes > 1) == large
    assert encoding.result().body == msgspec.json.encode(document)


async def test_the_next_large_answer_of_its_tenant_waits_and_anothers_does_not() -> None:
    turns = KeyedLimit(1)
    await answer_beside(turns, "acme", {"content": TEXT}, 200)
    assert len(turns) == 1  # it rests
    other = asyncio.create_task(answer_beside(turns, "globex", {"content": TEXT}, 200))
    same = asyncio.create_task(answer_beside(turns, "acme", {"content": TEXT}, 200))
    done, _ = await asyncio.wait([other, same], return_when=asyncio.FIRST_COMPLETED)
    assert other in done
    await same
