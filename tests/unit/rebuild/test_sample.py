"""Two policies side by side on a bounded sample: windows as they are stored, and the same events
under other rules.
"""

from __future__ import annotations

from typing import Any

import msgspec

from projections.policy.policy import Rules
from projections.render.render import render_openai
from streams.rebuild.losses import Side
from streams.rebuild.sample import Wanted, compared
from tests.support.compacted_talk import Talk
from tests.support.generated import KEY
from tests.unit.rebuild.test_losses import BOUNDED, GONE, SMALLER, stored, summarised, under
from threadfold.gateway.routes.reprojection import Comparison
from threadfold.testing.memory_log import MemoryLog


async def sample(
    talk: Talk, after: dict[str, Any], log: MemoryLog | None = None, **wanted: Any
) -> dict[str, Any]:
    store, live = await stored(talk.window), Side(1, talk.rules)
    found = await compared(log or talk.messages, store, live, Rules(after), Wanted(**wanted))
    msgspec.convert(found, Comparison)  # it is what the route declares
    return found


async def test_a_sample_shows_both_policies_and_that_nothing_is_lost() -> None:
    talk = await summarised(BOUNDED)
    found = await sample(talk, SMALLER)
    assert found["conversations"] == {"known": 1, "compared": 1, "too_long": 0}
    assert found["events"] == len(talk.log) and found["lost"] == 0
    (window,) = found["windows"]
    before, after = render_openai(talk.window), render_openai(under(SMALLER, talk.log))
    assert window["tokens"] == {"before": before.tokens, "after": after.tokens}
    assert window["messages"] == {"before": len(before.bodies), "after": len(after.bodies)}
    assert found["tokens"]["after"]["sum"] == after.tokens < before.tokens
    assert found["left_out"]["before"] == 0 < found["left_out"]["after"]
    assert found["summaries"] == {"before": 1, "after": 1}


async def test_a_sample_names_the_conversation_that_would_forget_and_why() -> None:
    talk = await summarised(BOUNDED)
    cut = MemoryLog(1)
    for i, (offset, _) in enumerate(talk.log):
        (row,) = [raw async for raw in talk.messages.scan(0, offset, offset)]
        cut.put(0, row.key if i >= 3 else b"acme/other", row.value)
    found = await sample(talk, BOUNDED, cut)
    assert found["lost"] == 1
    assert (found["windows"][0]["conversation"], found["windows"][0]["lost"]) == (
        KEY.conversation,
        GONE,
    )


async def test_a_sample_is_bounded_in_events_and_may_be_of_one_tenant() -> None:
    talk = await summarised(BOUNDED)
    short = await sample(talk, SMALLER, events=len(talk.log) - 1)
    assert short["conversations"] == {"known": 1, "compared": 0, "too_long": 1}
    assert short["events"] == 0 and short["tokens"]["before"]["sum"] == 0
    assert (await sample(talk, SMALLER, tenant="nobody"))["conversations"]["known"] == 0
    assert (await sample(talk, SMALLER, tenant=KEY.tenant))["conversations"]["compared"] == 1
