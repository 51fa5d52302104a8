"""The index of turns follows a real topic, and no tenant waits behind another one's events."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from itertools import count, islice
from pathlib import Path

import msgspec
import pytest

from projections.errors import WaitTimedOut
from projections.events.types import AnyEvent
from projections.events.untrusted import Undecodable
from projections.names import make_key, partition_of
from streams.encryption.payload_cipher import PayloadCipher, read_event
from streams.memory import lanes, turn_feed
from streams.memory.store import Filter
from streams.memory.turn_feed import TurnFeed
from streams.memory.turns import Said, SqliteTurns
from tests.support.memory_stack import LocalStack
from tests.support.worker import until
from threadfold.service.conversations import ConversationService

MANY, EACH = 20, 50


def beside(tenant: str, key: str, partitions: int) -> list[str]:
    """Conversations of a tenant in the partition of a key."""
    there = partition_of(make_key(*key.split("/")), partitions)
    names = (f"long-{n}" for n in count())
    found = (name for name in names if partition_of(make_key(tenant, name), partitions) == there)
    return list(islice(found, MANY))


async def put(backend: ConversationService, tenant: str, name: str, *texts: str) -> None:
    said = [(name, {"type": "message", "role": "user", "content": text}) for text in texts]
    await backend.append(tenant, said, noun="message")


async def test_who_has_few_events_does_not_wait_behind_who_has_many(
    world: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lanes, "OWN_BYTES", EACH * lanes.BESIDE)
    turns, order, may_go_on = SqliteTurns(), list[str](), threading.Event()
    apply = turns.apply

    def watched(
        said: Sequence[Said], checkpoints: Mapping[int, int], unread_by: str | None
    ) -> None:
        assert may_go_on.wait(60)
        order.extend(one.log.tenant for one in said)
        apply(said, checkpoints, unread_by)

    async with ConversationService(world.settings) as backend:
        feed = TurnFeed(backend.settings, backend.keys, turns)
        feed.start()
        try:
            await feed.ready(60)
            monkeypatch.setattr(turns, "apply", watched)
            long = beside("rival", "acme/short", backend.log.partitions)
            for name in long:
                await put(backend, "rival", name, *(f"Word {name} {n}" for n in range(EACH)))
            await put(backend, "acme", "short", "A quiet word.")
            may_go_on.set()
            await feed.has_all_of("acme", "short", 60)
            assert turns.search(Filter("acme", conversation="short"), ["quiet"], 10)
            assert order.index("acme") < MANY * EACH // 2
            with pytest.raises(WaitTimedOut):
                await feed.has_all_of("rival", None, 0)

            async def has_all() -> bool:
                try:
                    await feed.has_all_of("rival", None)
                except WaitTimedOut:
                    return False
                return True

            await until(has_all)
            for name in long:
                hits = turns.search(Filter("rival", conversation=name), ["word"], 2 * EACH)
                assert {hit.turn.text for hit in hits} == {f"Word {name} {n}" for n in range(EACH)}
            await feed.caught_up(timeout=60)
            assert not feed.behind
        finally:
            may_go_on.set()
            await feed.stop()
            turns.close()


async def test_a_search_does_not_wait_while_what_was_put_off_is_written(
    world: LocalStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    turns, writes, may_go_on = SqliteTurns(), threading.Event(), threading.Event()
    apply = turns.apply

    def held(said: Sequence[Said], checkpoints: Mapping[int, int], unread_by: str | None) -> None:
        writes.set()
        assert may_go_on.wait(60)
        apply(said, checkpoints, unread_by)

    async def is_writing() -> bool:
        return writes.is_set()

    async with ConversationService(world.settings) as backend:
        await put(backend, "calm", "short", "A quiet word.")
        feed = TurnFeed(backend.settings, backend.keys, turns)
        feed.start()
        try:
            await feed.has_all_of("calm", None, 60)
            monkeypatch.setattr(turns, "apply", held)
            monkeypatch.setattr(lanes, "OWN_BYTES", 0)
            await put(backend, "loud", "long", "Word 0")
            await until(is_writing)
            await put(backend, "loud", "long", *(f"Word {n}" for n in range(1, EACH)))
            await feed.has_all_of("calm", None, 5)
            with pytest.raises(WaitTimedOut):
                await feed.has_all_of("loud", None, 0)
            may_go_on.set()
            await feed.caught_up(timeout=60)
            hits = turns.search(Filter("loud", conversation="long"), ["word"], 2 * EACH)
            assert {hit.turn.text for hit in hits} == {f"Word {n}" for n in range(EACH)}
        finally:
            may_go_on.set()
            await feed.stop()
            turns.close()


async def test_what_a_later_release_reads_counts_from_where_it_stands(
    world: LocalStack, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(world.settings, memory_store=str(tmp_path))

    def before(seals: PayloadCipher, key: bytes, value: bytes) -> AnyEvent:
        if b"second-owner" in value:
            raise Undecodable("this release cannot read it")
        return read_event(seals, key, value)

    async def found_by(release: str) -> list[str]:
        """Who finds what was said last, once a process of this release has the log."""
        monkeypatch.setattr(turn_feed, "version", lambda _: release)
        turns = SqliteTurns()
        feed = TurnFeed(settings, backend.keys, turns, hold=True)
        feed.start()
        try:
            await feed.caught_up(timeout=60)
            owners = [
                user
                for user in ("first-owner", "second-owner")
                if turns.search(Filter("unread", user), ["quiet"], 10)
            ]
            return [*owners, f"emptied {feed.emptied} times"]
        finally:
            await feed.stop()
            turns.close()

    async with ConversationService(world.settings) as backend:
        for owner in ("first-owner", "second-owner"):
            flat = {"type": "conversation.opened", "user": owner}
            await backend.append("unread", [("given", flat)])
        await put(backend, "unread", "given", "A quiet word.")
        monkeypatch.setattr(turn_feed, "read_event", before)
        assert await found_by("1") == ["first-owner", "emptied 0 times"]
        assert await found_by("1") == ["first-owner", "emptied 0 times"]
        monkeypatch.undo()
        assert await found_by("2") == ["second-owner", "emptied 1 times"]
        assert await found_by("3") == ["second-owner", "emptied 0 times"]
