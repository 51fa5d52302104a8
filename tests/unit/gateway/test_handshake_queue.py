"""TLS handshakes wait in a queue that rests as long as its steps took."""

from __future__ import annotations

import asyncio
import time

from tests.support.worker import until
from threadfold.gateway.handshake_queue import HandshakeQueue


class Step:
    """A handshake whose step takes some time."""

    def __init__(
        self, address: str, done: list[Step], seconds: float = 0.0, *, preferred: str = ""
    ) -> None:
        self.address, self.preferred = address, preferred
        self.ended = False
        self.at = 0.0
        """When its step was done."""
        self._done = done
        self._seconds = seconds

    def step(self) -> None:
        time.sleep(self._seconds)
        self.at = time.monotonic()
        self._done.append(self)

    def end(self) -> None:
        self.ended = True


async def test_it_rests_as_long_as_its_steps_took() -> None:
    queue, done = HandshakeQueue(), list[Step]()
    began = time.monotonic()
    for _ in range(20):
        queue.add(Step("a", done, 0.01))
    turns = 0
    while len(done) < 20:
        await asyncio.sleep(0.001)
        turns += 1
    # 0.2 s of steps, and rests between them in which others had the loop many times.
    assert time.monotonic() - began > 0.38
    assert turns > 40


async def test_it_rests_also_before_one_that_comes_when_none_waits() -> None:
    queue, done = HandshakeQueue(), list[Step]()
    queue.add(Step("a", done, 0.05))
    await until(lambda: asyncio.sleep(0, len(done) == 1))
    queue.add(Step("a", done))
    await until(lambda: asyncio.sleep(0, len(done) == 2))
    assert done[1].at - done[0].at > 0.04


async def test_addresses_take_turns() -> None:
    queue, done = HandshakeQueue(), list[Step]()
    for address in "aaaaabc":
        queue.add(Step(address, done))
    await until(lambda: asyncio.sleep(0, len(done) == 7))
    assert "".join(one.address for one in done) == "abcaaaa"


async def test_of_too_many_the_last_one_of_the_address_with_most_of_them_ends() -> None:
    queue, done = HandshakeQueue(3), list[Step]()
    first, second, third, other = (Step(address, done) for address in "aaab")
    for one in (first, second, third, other):
        queue.add(one)
    assert third.ended
    assert len(queue) == 3
    await until(lambda: asyncio.sleep(0, len(done) == 3))
    assert done == [first, other, second]
    assert not any(one.ended for one in done)


async def test_of_as_many_addresses_with_one_each_the_one_that_waits_longest_makes_way() -> None:
    queue, done = HandshakeQueue(3), list[Step]()
    first, *others = (Step(address, done) for address in "abcd")
    for one in (first, *others):
        queue.add(one)
    assert first.ended
    await until(lambda: asyncio.sleep(0, len(done) == 3))
    assert done == others


async def test_those_who_went_on_or_have_shown_a_key_go_first_and_the_others_have_some_turns() -> (
    None
):
    queue, done = HandshakeQueue(6), list[Step]()
    others = [Step(f"o{i}", done) for i in range(12)]
    preferred = [Step(f"p{i}", done, preferred=f"p{i}") for i in range(6)]
    for one in (*preferred, *others):
        queue.add(one)
    assert [one.ended for one in others] == [True] * 6 + [False] * 6
    assert not any(one.ended for one in preferred)
    await until(lambda: asyncio.sleep(0, len(done) == 12))
    assert [bool(one.preferred) for one in done[:8]] == [True, True, True, False] * 2


async def test_one_tenant_that_calls_from_many_addresses_keeps_out_no_other_one() -> None:
    queue, done = HandshakeQueue(6), list[Step]()
    noisy = [Step(f"n{i}", done, preferred="noisy") for i in range(20)]
    good = Step("g", done, preferred="good")
    for one in (*noisy[:10], good, *noisy[10:]):
        queue.add(one)
    assert not good.ended
    await until(lambda: asyncio.sleep(0, len(done) == 6))
    assert good in done[:2]


async def test_one_that_went_on_meanwhile_has_one_place() -> None:
    queue, done = HandshakeQueue(), list[Step]()
    one = Step("a", done)
    queue.add(one)
    one.preferred = "a"
    queue.add(one)
    assert len(queue) == 1
    await until(lambda: asyncio.sleep(0, len(queue) == 0))
    assert done == [one]


async def test_one_that_is_removed_has_no_turn() -> None:
    queue, done = HandshakeQueue(), list[Step]()
    gone, other = Step("a", done), Step("a", done)
    queue.add(gone)
    queue.add(gone)
    queue.add(other)
    queue.remove(gone)
    queue.remove(gone)
    await until(lambda: asyncio.sleep(0, len(queue) == 0))
    assert done == [other]
