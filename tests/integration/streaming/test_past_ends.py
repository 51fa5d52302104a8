"""A stream that ends while it still sends what was appended before: it sends no more of that."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field

import pytest

from tests.support.stream_pair import Pair
from tests.support.worker import until
from threadfold.streaming import Live
from threadfold.streaming.live import NOT_ALLOWED, STOPPING
from threadfold.streaming.sse_event import SseEvent
from threadfold.streaming.subscription import Subscription

EVENTS, SIZE = 24, 200_000


@dataclass
class Follower:
    """A client that follows a conversation from its first event on, and takes batch by batch."""

    live: Live
    subscription: Subscription
    allowed: bool = True
    got: list[SseEvent] = field(default_factory=list)

    @classmethod
    async def of(cls, live: Live, conversation: str, after: str) -> Follower:
        follower: Follower
        allowed: Callable[[], bool] = lambda: follower.allowed  # noqa: E731
        follower = cls(live, await live.open("acme", conversation, after, allowed))
        return follower

    async def batches(self) -> AsyncIterator[None]:
        async with asyncio.timeout(30):
            async for batch in self.subscription.batches():
                self.got += batch
                yield

    def ids(self) -> list[str]:
        return [event.id for event in self.got if event.id and b"acme.blob.v1" in event.data]

    def reason(self) -> str:
        return self.got[-1].data.decode()

    async def ended(self) -> None:
        """Wait until its stream is to end, before it takes more."""

        async def look() -> bool:
            return all(r.ended is not None for r in self.live.readers)

        await until(look)


async def appended(pair: Pair, conversation: str) -> list[str]:
    """The positions of many large events, which take many batches."""
    found: list[str] = []
    for n in range(EVENTS):
        blob = {"type": "acme.blob.v1", "blob": f"{n} " + "x" * SIZE}
        found += await pair.append(conversation, blob, wait=n == EVENTS - 1)
    return found


@pytest.mark.parametrize("live_too", [False, True])
async def test_who_is_not_allowed_any_more_gets_no_more_of_the_past(
    pair: Pair, live_too: bool
) -> None:
    conversation = f"expired-{live_too}"
    positions = await appended(pair, conversation)
    follower = await Follower.of(pair.a.app.state.live, conversation, positions[0])
    begun = 0
    async for _ in follower.batches():
        if follower.ids() and follower.allowed:
            begun = len(follower.ids())
            if live_too:
                await pair.append(conversation, {"type": "acme.blob.v1", "blob": "later"})
            follower.allowed = False
            await follower.ended()
    assert 0 < begun == len(follower.ids()) < EVENTS - 1
    assert follower.reason() == NOT_ALLOWED


async def test_nothing_of_a_conversation_is_sent_after_its_erasure(pair: Pair) -> None:
    positions = await appended(pair, "erased-amid")
    follower = await Follower.of(pair.a.app.state.live, "erased-amid", positions[0])
    begun = 0
    async for _ in follower.batches():
        if follower.ids() and not begun:
            begun = len(follower.ids())
            await pair.append("erased-amid", {"type": "acme.blob.v1", "blob": "later"})
            await pair.a.app.state.live.backend.append(
                "acme", [("erased-amid", {"type": "conversation.erased"})], operator=True
            )
            await follower.ended()
    assert 0 < begun == len(follower.ids()) < EVENTS - 1
    assert b'"conversation.erased"' in follower.got[-2].data
    assert follower.reason() == "the conversation is erased"


async def test_nothing_is_sent_once_an_erasure_has_begun_though_its_event_comes_later(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    live: Live = pair.a.app.state.live
    positions = await appended(pair, "begun")
    follower = await Follower.of(live, "begun", positions[0])
    listener = await live.open("acme", "begun")
    begun = 0
    async for _ in follower.batches():
        if follower.ids() and not begun:
            begun = len(follower.ids())
            monkeypatch.setattr(live.backend.keys, "is_erased", lambda key: key == b"acme/begun")
            await until(lambda: asyncio.sleep(0, all(not r.sends for r in live.readers)))
            await pair.append("begun", {"type": "acme.blob.v1", "blob": "later"}, gateway=pair.b)
            erased = ("begun", {"type": "conversation.erased"})
            await pair.b.app.state.live.backend.append("acme", [erased], operator=True)
    assert begun == len(follower.ids()) < EVENTS - 1
    assert b'"conversation.erased"' in follower.got[-2].data
    got = [sse async for batch in listener.batches() for sse in batch]
    assert not any(b"acme.blob" in sse.data for sse in got)
    assert b'"conversation.erased"' in got[-2].data


async def test_a_stream_that_stops_amid_its_past_is_resumed_without_a_gap(pair: Pair) -> None:
    live: Live = pair.a.app.state.live
    positions = await appended(pair, "stopped")
    follower = await Follower.of(live, "stopped", positions[0])
    async for _ in follower.batches():
        if follower.ids() and all(r.ended is None for r in live.readers):
            positions += await pair.append("stopped", {"type": "acme.blob.v1", "blob": "later"})
            for reader in list(live.readers):
                reader.end(STOPPING)
    assert follower.reason() == STOPPING
    got = follower.ids()
    assert got == positions[1 : len(got) + 1]
    assert len(got) < EVENTS - 1
    again = await Follower.of(live, "stopped", got[-1])
    async for _ in again.batches():
        if len(got) + len(again.ids()) == len(positions) - 1:
            break
    again.subscription.close()
    assert got + again.ids() == positions[1:]
