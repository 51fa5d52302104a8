"""Records that are nobody's are set aside; too many failing folds halt their partition, and no
other, until an operator accepts them.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from unittest.mock import AsyncMock

import httpx
import msgspec
import pytest

from projections.errors import Erased, WaitTimedOut
from projections.names import Key, Position, partition_of
from projections.redis.store import RedisStore
from streams.partition.failure_share import LEAST
from streams.projector.progress import FoldProgress
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.support.commands import Ran, cli
from tests.support.fragile_policy import FRAGILE, message
from tests.support.generations import open_generation
from tests.support.pipeline import append, applied
from tests.support.raw_records import put_raw
from tests.support.worker import running_worker, until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.gateway.app import Gateway
from threadfold.service.conversation_list import conversations
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser
from threadfold.service.lists import suspensions

CALL = {
    "type": "message",
    "role": "assistant",
    "tool_calls": [{"id": "a", "name": "look", "arguments": "{}"}],
}
TRAP = [
    CALL,
    {"type": "tool.result", "tool_call_id": "a", "content": "trap " * 60},
    message("word " * 400) | {"role": "assistant"},
]
"""Events on the last of which the worker's callable fails."""


@pytest.fixture
async def fragile(settings: Settings) -> AsyncIterator[Settings]:
    await open_generation(settings, FRAGILE)
    yield msgspec.structs.replace(settings, callables={"shorten": "tests.support.fragile:broken"})


def keys_in(partition: int, partitions: int, tenant: str, number: int) -> list[Key]:
    """So many conversations of a tenant that lie in one partition."""
    every = (Key(tenant, f"c{i}") for i in count())
    mine = (key for key in every if partition_of(key, partitions) == partition)
    return [next(mine) for _ in range(number)]


async def command(data: Path, *args: str, release: str = "broken") -> Ran:
    env = {"THREADFOLD_CALLABLES": json.dumps({"shorten": f"tests.support.fragile:{release}"})}
    return await cli(*args, "--data", data, env=env)


async def test_records_that_are_nobodys_stop_nothing_and_are_listed(
    fragile: Settings, tmp_path: Path
) -> None:
    write_config(tmp_path / CONFIG_FILE, fragile)
    key = Key("acme", "beside")
    number = partition_of(key, fragile.partitions)
    broken = keys_in(number, fragile.partitions, "other", 2 * LEAST)
    junk = [(number, b"%010d" % i, b"0123456789") for i in range(400)]
    undecodable = [(number, str(each).encode(), b"{not json") for each in broken]
    sent = await put_raw(fragile, "events", *junk, *undecodable)
    async with running_worker(fragile, compact=False) as runtime:
        await applied(runtime, Position(number, sent[-1].offset))
        await applied(runtime, (await append(runtime, key, [message("still here")]))[0])
        assert runtime.control.state.halted() == {}
        async with gateway(fragile) as (_, client):
            line = f'threadfold_records_set_aside{{partition="{number}"}} 400.0'

            async def counted() -> bool:
                return line in (await client.get("/metrics")).text

            await until(counted, what="the metric")
    listed = await command(tmp_path, "dead-letters", "list")
    assert listed.lines[-1] == f"parked: {2 * LEAST}, records: 400"


@pytest.mark.long
async def test_too_many_failing_folds_halt_their_partition_alone_until_they_are_accepted(
    fragile: Settings, tmp_path: Path
) -> None:
    write_config(tmp_path / CONFIG_FILE, fragile)
    bad = keys_in(0, fragile.partitions, "acme", LEAST)
    other = keys_in(1, fragile.partitions, "other", 1)[0]
    good, gone, unseen = keys_in(0, fragile.partitions, "well", 3)
    async with running_worker(fragile, compact=False) as runtime:
        await append(runtime, good, [message("first")])
        asks = {"type": "suspension", "suspension_id": "s", "kind": "input", "prompt": "a secret?"}
        await append(runtime, gone, [message("a secret"), asks])
        for key in bad:
            last = (await append(runtime, key, TRAP))[-1]
        await until(lambda: _halted(runtime))
        halt = runtime.control.state.halted()[0]
        assert halt.failing >= LEAST and halt.offset <= last.offset
        await append(runtime, unseen, [message("a secret")])
        after = (await append(runtime, good, [message("waits")], 1))[0]
        # Others go on, also in a worker that starts anew, which stays where the first one stopped.
        await applied(runtime, (await append(runtime, other, [message("goes on")]))[0])
    # Also where Redis is new: nobody knows then how far readers have seen.
    store = RedisStore(fragile.redis, fragile.topic_prefix)
    await store.drop_partition(1, 0)
    await store.close()
    async with running_worker(fragile, compact=False) as runtime:
        await applied(runtime, (await append(runtime, other, [message("still")], 1))[0])

        async def healed() -> bool:
            stored = await runtime.store.checkpoint(1, 0)
            return stored is not None and stored.offset == halt.offset and not stored.healing

        await until(healed, what="the partition heals up to where it halted")
        assert halt.offset < after.offset
        looks = await FoldProgress(runtime.projector, runtime.log, runtime.store)()
        assert looks["partition 0"].lag == 0  # the watchdog leaves it alone
        await _seen(fragile, tmp_path, good, after)
        # Of the third nothing is folded yet.
        for key in (gone, unseen):
            await _is_erased_at_once(fragile, key)
        listed = await command(tmp_path, "dead-letters", "list")
        assert f"partition 0 halted after offset {halt.offset}" in listed.out
        parked = [line for line in listed.lines if "  parked  acme/" in line]
        assert len(parked) == halt.failing
        dropped = await command(tmp_path, "dead-letters", "drop", parked[0].split()[0])
        assert (
            dropped.code == 1 and "goes on after `threadfold dead-letters accept 0`" in dropped.out
        )
        refused = await command(tmp_path, "dead-letters", "accept", "1")
        assert refused.code == 2 and "partition 1 is not halted" in refused.said
        accepted = await command(tmp_path, "dead-letters", "accept", "0")
        assert accepted.code == 0 and "partition 0 goes on" in accepted.out, accepted.err
        await applied(runtime, after)
        assert runtime.control.state.halts[0].accepted
        async with ConversationService(fragile) as backend:
            for key in (gone, unseen):
                await Eraser(backend, AsyncMock()).conversation(key.tenant, key.conversation)
    doctor = await command(tmp_path, "doctor")
    assert "halted" not in doctor.out


@asynccontextmanager
async def gateway(
    settings: Settings,
) -> AsyncIterator[tuple[ConversationService, httpx.AsyncClient]]:
    async with ConversationService(settings) as backend:
        transport = httpx.ASGITransport(Gateway.on(backend))
        async with httpx.AsyncClient(transport=transport, base_url="http://t") as client:
            yield backend, client


async def _seen(settings: Settings, data: Path, good: Key, after: Position) -> None:
    """The halt is shown by `doctor`, ``/readyz``, ``/metrics`` and by an append that waits."""
    doctor = await command(data, "doctor")
    (line,) = [line for line in doctor.lines if line.startswith("wrong") and "partition 0" in line]
    assert doctor.code == 1 and "dead-letters accept 0" in line and "max_poison_share" in line
    async with gateway(settings) as (backend, client):
        (halt,) = backend.control.state.halted().values()
        with pytest.raises(
            WaitTimedOut, match=f"partition 0 is halted since {halt.since}"
        ) as raised:
            await backend.wait_for(after, 60)
        # Tenants that share the partition learn that it stands, not whose events failed.
        assert "operator" in str(raised.value)
        assert halt.cause not in str(raised.value) and f"0-{halt.last}" not in str(raised.value)
        ready = await client.get("/readyz")
        assert ready.status_code == 200 and ready.json()["halted"] == [0]
        metrics = (await client.get("/metrics")).text
        assert 'threadfold_partition_halted{partition="0"} 1.0' in metrics
        document = json.loads(await backend.context(good.tenant, good.conversation))
        assert document["halted_since"] == halt.since


async def _is_erased_at_once(settings: Settings, key: Key) -> None:
    """A conversation of a halted partition is refused once its erasure is asked for."""
    async with ConversationService(settings) as backend:
        with pytest.raises(WaitTimedOut, match="halted"):
            await Eraser(backend, AsyncMock()).conversation(key.tenant, key.conversation)
        with pytest.raises(Erased):
            await backend.context(key.tenant, key.conversation)
        with pytest.raises(Erased):
            await backend.append(key.tenant, [(key.conversation, message("more"))])
        listed = await conversations(backend, key.tenant)
        assert key.conversation not in {one["conversation"] for one in listed["conversations"]}
        assert not (await suspensions(backend, key.tenant))["suspensions"]


async def _halted(runtime: Runtime) -> bool:
    return 0 in runtime.control.state.halted()
