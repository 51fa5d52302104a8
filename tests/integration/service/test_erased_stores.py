"""Encryption and erasure on real Kafka and Redis: what is sealed where, what erasing leaves in each
store, and what is built and healed beside it.
"""

from __future__ import annotations

import asyncio
import json

import msgspec
import pytest

from projections.errors import Erased, UnknownConversation
from projections.names import Key, partition_of
from streams.maintenance.verify import verify
from streams.rebuild.rebuild import rebuild
from streams.settings.settings import Settings
from tests.support.erasure import (
    PARTIAL,
    SECRET,
    SMALL,
    flush,
    no_text,
    renders_body,
    say,
    stack,
    summarised,
    talk,
)
from tests.support.grep import raw_records, redis_keys_with, topics_with
from tests.support.worker import until
from threadfold.service.erasure import Eraser
from threadfold.streaming import Live


async def test_nothing_of_an_encrypted_conversation_is_readable_in_a_topic_and_nothing_anywhere_after_its_erasure(
    made: Settings,
) -> None:
    async with stack(made) as (runtime, backend):
        positions = {
            tenant: await say(backend, tenant, "talk", talk(6)) for tenant in ("sealed", "plain")
        }
        for tenant in positions:
            await summarised(backend, tenant, "talk")
            await backend.ledger.record(tenant, "talk", renders_body(positions[tenant]))
        render = (await backend.ledger.last("sealed", "talk", 1))[0]
        assert json.loads(bytes(render["record"]))["model"] == SECRET
        # What is appended reads back as it was said, pages of a spilled result among it.
        context = json.loads(await backend.context("sealed", "talk"))
        assert SECRET in json.dumps(context["messages"])
        page = await backend.history("sealed", "talk", limit=500)
        assert SECRET in json.dumps(page)
        big = next(event for event in page["events"] if event.get("tool_call_id") == "big")
        whole = await backend.event_at("sealed", "talk", big["position"])
        assert whole["content"] == f"{SECRET} line\n" * 400
        assert (await backend.event_at("sealed", "talk", big["position"], offset=3000, limit=30))[
            "content"
        ] == whole["content"][3000:3030]

        async def snapshotted() -> bool:
            # A round may have come before the summary, in whose text the secret stands.
            rows = await raw_records(made, "snapshots")
            said = any(
                key == b"plain/talk" and value is not None and SECRET.encode() in value
                for key, value in rows
            )
            return said and b"sealed/talk" in {key for key, _ in rows}

        # A round waits for so many events a changed conversation: one beside each talk has them.
        for tenant in positions:
            partition = partition_of(Key(tenant, "talk"), made.partitions)
            beside = next(
                name
                for name in map(str, range(1000))
                if partition_of(Key("plain", name), made.partitions) == partition
            )
            for _ in range(10):
                await backend.append(
                    "plain", [(beside, {"type": "message", "role": "user", "content": "more"})] * 20
                )
        await until(snapshotted)
        for topic, rows in [
            (name, await raw_records(made, name))
            for name in ("events", "summaries", "snapshots", "renders")
        ]:
            of = {key for key, value in rows if value is not None and SECRET.encode() in value}
            assert b"plain/talk" in of, topic
            assert b"sealed/talk" not in of, topic
        live = await Live(backend).start()
        for tenant in ("sealed", "plain"):
            await live.partial(tenant, "talk", "t1", f"In the attic, {PARTIAL}")
        assert await redis_keys_with(made, PARTIAL.encode())
        assert await redis_keys_with(
            made, SECRET.encode()
        )  # windows hold text, until they are erased
        report = await verify(
            backend.log, backend.store, backend.control.state.live_generation, backend.live_rules()
        )
        assert report.differing == []

        # -- erasing it
        eraser = Eraser(
            backend, lambda key, erased: live.forget(key.tenant, key.conversation, erased)
        )
        receipt = await eraser.conversation("sealed", "talk")
        assert (receipt.conversation, receipt.log) == ("talk", "opaque")
        states = {name: store.state for name, store in receipt.stores.items()}
        assert states == {
            "log": "opaque",
            "keys": "deleted",
            "windows": "deleted",
            "snapshots": "opaque",
            "summaries": "opaque",
            "memories": "opaque",
            "renders": "opaque",
            "compactions": "kept",
            "partials": "deleted",
            "caches": "deleted",
            "dead_letters": "kept",
        }
        assert (
            receipt.stores["keys"].deadline is not None
            and receipt.stores["keys"].deadline > receipt.erased_at
        )
        assert msgspec.json.encode(
            await eraser.conversation("sealed", "talk")
        ) == msgspec.json.encode(receipt)
        kept = await eraser.conversation("plain", "talk")
        assert kept.log == "kept"
        assert (
            kept.stores["log"].state,
            kept.stores["summaries"].state,
            kept.stores["renders"].state,
        ) == ("kept", "kept", "kept")
        with pytest.raises(UnknownConversation):
            await eraser.conversation("sealed", "never-heard-of")
        assert await redis_keys_with(made, SECRET.encode()) == []
        assert await redis_keys_with(made, PARTIAL.encode()) == []
        with pytest.raises(Erased):
            await live.partial("sealed", "talk", "t1", "and more")
        await live.stop()
        with pytest.raises(Erased):
            await backend.append(
                "sealed", [("talk", {"type": "message", "role": "user", "content": "again"})]
            )

        async def announced() -> bool:
            rows = await raw_records(made, "summaries")
            return (
                sum(
                    key == b"sealed/talk" and b"conversation.erased" in (value or b"")
                    for key, value in rows
                )
                == 1
            )

        await until(announced)

        async def overwritten() -> bool:
            latest = dict(await raw_records(made, "snapshots"))
            return all(
                SECRET.encode() not in (latest[name] or b"")
                for name in (b"sealed/talk", b"plain/talk")
            )

        await until(overwritten)
        assert await topics_with(made, SECRET.encode()) == {
            "events",
            "summaries",
            "snapshots",
            "renders",
        }  # the plain tenant's
        before = (
            await backend.store.read(
                1, partition_of(Key("sealed", "talk"), made.partitions), [Key("sealed", "talk")]
            )
        )[1]

    # -- a replay from zero, by a worker and a gateway that know nothing
    await flush(made)
    zero = msgspec.structs.replace(made, snapshot_events=0, group=f"{made.group}.zero")
    async with stack(zero) as (runtime, backend):
        key = Key("sealed", "talk")
        await backend.caught_up(range(made.partitions), 30)
        after = (await backend.store.read(1, partition_of(key, made.partitions), [key]))[1]
        assert after == before
        report = await verify(
            backend.log, backend.store, backend.control.state.live_generation, backend.live_rules()
        )
        assert report.differing == []
        assert report.verified > 2
        assert await redis_keys_with(made, SECRET.encode()) == []
        assert runtime.log is not None
        done = await rebuild(
            made,
            backend.control,
            backend.log,
            backend.store,
            policy={**SMALL, "min_messages": 5},
            switch=True,
        )
        assert done.live
        assert await redis_keys_with(made, SECRET.encode()) == []
        for row in await raw_records(made, "events"):
            assert row[0] != b"sealed/talk" or SECRET.encode() not in (row[1] or b"")
        assert msgspec.json.encode(
            await Eraser(backend, no_text).conversation("sealed", "talk")
        ) == msgspec.json.encode(receipt)


@pytest.mark.long
async def test_a_generation_beside_the_live_one_loses_its_window_too_and_a_rebuild_goes_on_beside_it(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend):
        await say(backend, "sealed", "old", talk(2))
        policy = {**SMALL, "min_messages": 6}
        beside = await rebuild(made, backend.control, backend.log, backend.store, policy=policy)
        assert await redis_keys_with(made, SECRET.encode())
        building = asyncio.create_task(
            rebuild(
                made,
                backend.control,
                backend.log,
                backend.store,
                policy={**SMALL, "min_messages": 7},
            )
        )
        await Eraser(backend, no_text).conversation("sealed", "old")
        third = await building
        left = await redis_keys_with(made, SECRET.encode())
        assert not any(b"sealed/old" in name for name in left)
        # The erasure was folded into them early: when it comes in the log, nothing differs.
        for number, rules in (
            (beside.generation, policy),
            (third.generation, {**SMALL, "min_messages": 7}),
        ):
            again = await rebuild(made, backend.control, backend.log, backend.store, policy=rules)
            assert (again.generation, again.resumed) == (number, True)
            state = await backend.control.sync()
            generation = state.generations[number]
            report = await verify(backend.log, backend.store, generation, state.rules(generation))
            assert report.differing == []


@pytest.mark.long
async def test_a_lost_redis_heals_from_snapshots_beside_an_erased_conversation(
    made: Settings, caplog: pytest.LogCaptureFixture
) -> None:
    async with stack(made) as (_, backend):
        kept = [f"kept{i}" for i in range(8)]
        for name in (*kept, "gone"):
            await say(backend, "sealed", name, talk(2))
        await Eraser(backend, no_text).conversation("sealed", "gone")
        before = {name: await backend.context("sealed", name) for name in kept}
    await flush(made)
    async with stack(made) as (_, backend):
        await backend.caught_up(range(made.partitions), 30)
        assert {name: await backend.context("sealed", name) for name in kept} == before
        with pytest.raises(Erased):
            await backend.context("sealed", "gone")
        report = await verify(
            backend.log, backend.store, backend.control.state.live_generation, backend.live_rules()
        )
        assert report.differing == []
    assert "are back from snapshots" in caplog.text
    assert "snapshots are not used" not in caplog.text


async def test_a_slow_subscriber_gets_no_summary_of_a_conversation_that_was_erased_while_it_waited(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend):
        live = await Live(backend).start()
        subscription = await live.open_summaries("plain")
        batches = subscription.batches()
        for name in ("erased", "stays"):
            await say(backend, "plain", name, talk(6))
            await summarised(backend, "plain", name)
        await Eraser(backend, no_text).conversation("plain", "erased")
        got: list[tuple[str, str]] = []
        async with asyncio.timeout(30):
            async for batch in batches:
                events = [(sse.event, json.loads(sse.data)) for sse in batch if sse.event]
                got += [(kind, data["conversation"]) for kind, data in events]
                if ("erased", "erased") in got and ("summary", "stays") in got:
                    break
        subscription.close()
        await live.stop()
    assert ("summary", "erased") not in got
