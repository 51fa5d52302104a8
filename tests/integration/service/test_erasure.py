"""Erasures on real Kafka and Redis that are asked for, cut off, raced with and repeated."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from typing import Any

import httpx
import pytest

from projections.errors import Erased, UnknownUser, WaitTimedOut
from projections.names import make_key, partition_of
from streams.control.control_topic import Control
from streams.control.halts import Halt
from streams.encryption.key_table import Erasure
from streams.maintenance.verify import verify
from streams.settings.settings import Settings
from tests.support.erasure import SECRET, no_text, renders_body, say, stack, talk
from tests.support.grep import raw_records
from tests.support.worker import running_worker, until
from threadfold.gateway import create_gateway
from threadfold.service import erasure, erasure_receipt, erasure_verdict
from threadfold.service.conversations import ERASURES, ConversationService
from threadfold.service.drafts import Conditions
from threadfold.service.erasure import Eraser
from threadfold.service.lists import of_user
from threadfold.streaming import Live


async def test_every_route_of_an_erased_conversation_answers_410_and_erasing_needs_its_scope(
    made: Settings,
) -> None:
    control = await Control(made).start()
    keys = {
        scope: await control.add_key("sealed", [scope]) for scope in ("append", "read", "erase")
    }
    other = await control.add_key("plain", ["erase"])
    await control.stop()
    app = create_gateway(made)
    async with AsyncExitStack() as open_:
        await open_.enter_async_context(running_worker(made))
        await open_.enter_async_context(app.router.lifespan_context(app))
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        http = await open_.enter_async_context(
            httpx.AsyncClient(transport=transport, base_url="http://gateway")
        )

        async def call(scope: str, method: str, path: str, body: Any = None) -> httpx.Response:
            return await http.request(
                method,
                f"/v1{path}",
                json=body,
                headers={"Authorization": f"Bearer {keys.get(scope, scope)}"},
            )

        async def ready() -> bool:
            return (await http.get("/readyz")).status_code == 200

        await until(ready)
        path = "/conversations/routes"
        said = await call("append", "POST", f"{path}/events?wait=applied", talk(1))
        assert said.status_code == 200
        position = said.json()["position"]
        render = (await call("append", "POST", f"{path}/renders", renders_body(position))).json()[
            "id"
        ]
        assert (
            await call("read", "GET", f"{path}/context")
        ).status_code == 200  # cached here from now on
        assert (await call("read", "DELETE", path)).status_code == 403
        assert (await call(other, "DELETE", path)).status_code == 404
        erased = await call("erase", "DELETE", path)
        assert erased.status_code == 200, erased.text
        assert erased.json()["stores"]["keys"]["state"] == "deleted"
        assert set(erased.json()) == {"conversation", "position", "erased_at", "log", "stores"}
        again = await call("erase", "DELETE", path)
        assert (again.status_code, again.json()) == (200, erased.json())
        assert (await call("erase", "DELETE", "/conversations/unknown")).status_code == 404
        say_again = {"type": "message", "role": "user", "content": "again"}
        for scope, method, place, body in (
            ("read", "GET", f"{path}/context", None),
            ("read", "GET", f"{path}/context?format=anthropic", None),
            ("read", "GET", f"{path}/history", None),
            ("read", "GET", f"{path}/events/{position}", None),
            ("read", "GET", f"/renders/{render}", None),
            ("read", "GET", f"{path}/renders", None),
            ("append", "POST", f"{path}/events", say_again),
            ("append", "POST", f"{path}/messages", {"role": "user", "content": "again"}),
            ("append", "POST", "/events", [{"conversation": "routes", **say_again}]),
            ("append", "POST", f"{path}/close", None),
        ):
            answer = await call(scope, method, place, body)
            assert answer.status_code == 410, (place, answer.text)
            assert SECRET not in answer.text


@pytest.mark.long
async def test_an_erasure_that_was_cut_off_goes_on_where_it_was(made: Settings) -> None:
    async with ConversationService(made) as backend:
        # No worker runs: the window cannot take it.
        eraser = Eraser(backend, no_text)
        async with running_worker(made):
            await say(backend, "sealed", "cut", talk(1))
        name = b"sealed/cut"
        await backend.keys.put_erasure(name, Erasure("begun", "2026-01-31T12:00:00Z", "opaque"))
        with pytest.raises(Erased):
            await backend.context("sealed", "cut")
        with pytest.raises(WaitTimedOut):
            await asyncio.wait_for(eraser.conversation("sealed", "cut"), 30)
        assert backend.keys.table.has(name)
        async with running_worker(made):
            receipt = await eraser.conversation("sealed", "cut")
        assert receipt.erased_at == "2026-01-31T12:00:00Z"
        assert not backend.keys.table.has(name)
        # Died after the record that it is done, before the tombstones: whoever follows the topic
        # deletes the keys.
        assert await eraser.conversation("sealed", "cut") == receipt
    rows = dict(await raw_records(made, "keys"))
    assert [
        value
        for key, value in rows.items()
        if key.startswith(name + b"/") and not key.endswith(b"/erased")
    ] == [None]


@pytest.mark.long
async def test_an_erasure_begins_also_while_windows_are_behind(made: Settings) -> None:
    async with ConversationService(made) as backend, AsyncExitStack() as open_:
        eraser, live = Eraser(backend, no_text), Live(backend)
        open_.push_async_callback((await live.start()).stop)
        async with running_worker(made):
            await say(backend, "sealed", "behind", talk(1))
        follower = await live.open("sealed", "behind")
        # No worker runs, as where Redis takes nothing: nobody knows whether this one counts.
        last = Conditions(expect=f"{partition_of(make_key('sealed', 'behind'), made.partitions)}-0")
        await backend.append("sealed", [("behind", talk(1)[0])], conditions=last)
        await backend.append("sealed", [("behind", flat) for flat in talk(1)])
        with pytest.raises(WaitTimedOut):
            await asyncio.wait_for(eraser.conversation("sealed", "behind"), 40)
        async with asyncio.timeout(20):
            got = [sse async for batch in follower.batches() for sse in batch]
        assert b"conversation.erased" in got[-2].data
        assert not any(SECRET.encode() in sse.data for sse in got)
        with pytest.raises(Erased):
            await backend.context("sealed", "behind")
        with pytest.raises(Erased):
            await live.open("sealed", "behind")
        with pytest.raises(Erased):
            await live.partial("sealed", "behind", "turn", "a text")
        async with running_worker(made):
            assert (await eraser.conversation("sealed", "behind")).log == "opaque"


@pytest.mark.long
async def test_a_repeat_finishes_an_erasure_with_the_event_of_the_first_request(
    made: Settings,
) -> None:
    name = str(key := make_key("sealed", "cut-off")).encode()
    async with ConversationService(made) as backend:
        eraser = Eraser(backend, no_text)
        async with running_worker(made):
            await say(backend, "sealed", "cut-off", talk(1))
        with pytest.raises(WaitTimedOut):
            await asyncio.wait_for(eraser.conversation("sealed", "cut-off"), 40)
        begun = backend.keys.table.erasure(name)
        assert begun is not None and begun.position is not None
        async with running_worker(made):
            receipt = await eraser.conversation("sealed", "cut-off")
        assert receipt.position == begun.position
    of_it = [
        value for name, value in await raw_records(made, "events") if name == str(key).encode()
    ]
    assert sum(b"conversation.erased" in (value or b"") for value in of_it) == 1


@pytest.mark.long
async def test_windows_that_are_too_far_behind_delay_an_erasure_unless_their_partition_is_halted(
    made: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(erasure_verdict, "MOST_BEHIND", 0)
    control = await Control(made).start()
    async with ConversationService(made) as backend:
        eraser, key = Eraser(backend, no_text), make_key("sealed", "far-behind")
        async with running_worker(made):
            await say(backend, "sealed", "far-behind", talk(1))
        await backend.append("sealed", [("far-behind", flat) for flat in talk(1)])

        async def erase() -> None:
            with pytest.raises(WaitTimedOut):
                await asyncio.wait_for(eraser.conversation("sealed", "far-behind"), 40)

        await erase()
        assert not backend.keys.table.is_erased(str(key).encode())
        partition = partition_of(key, made.partitions)
        halt = Halt(backend.control.state.live, -1, 1, 1, 0, "a test", "2026-01-31T12:00:00Z")
        await control.write({f"halt/{partition}": halt})
        await until(lambda: asyncio.sleep(0, partition in backend.control.state.halted()))
        await erase()
        assert backend.keys.table.is_erased(str(key).encode())
        await control.write({f"halt/{partition}": halt.accept()})
        async with running_worker(made):
            assert (await eraser.conversation("sealed", "far-behind")).log == "opaque"
    await control.stop()


async def test_a_key_that_comes_after_the_erasure_is_void_and_deleted_by_whoever_sees_it(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend), ConversationService(made) as late:
        await say(backend, "sealed", "race", talk(1))
        stolen = next(
            value
            for key, value in await raw_records(made, "keys")
            if key.startswith(b"sealed/race/")
        )
        await Eraser(backend, no_text).conversation("sealed", "race")
        place = b"sealed/race/AAAAAAAAAAAAAAAA"
        await backend.keys.write({place: stolen})

        async def deleted() -> bool:
            return dict(await raw_records(made, "keys"))[place] is None

        await until(deleted)
        assert not late.keys.table.has(b"sealed/race")


@pytest.mark.long
async def test_appends_that_race_with_an_erasure_end_up_unreadable_or_refused(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend), ConversationService(made) as rival:
        await say(backend, "sealed", "busy", talk(1))
        stop = asyncio.Event()
        refused = 0

        async def talker(at: ConversationService) -> None:
            nonlocal refused
            while not stop.is_set():
                try:
                    await at.append(
                        "sealed",
                        [("busy", {"type": "message", "role": "user", "content": f"late {SECRET}"})]
                        * 3,
                    )
                except Erased:
                    refused += 1
                    return

        talkers = [asyncio.create_task(talker(at)) for at in (backend, rival, rival)]
        receipt = await Eraser(backend, no_text).conversation("sealed", "busy")
        await asyncio.wait(talkers, timeout=10)
        stop.set()
        await asyncio.gather(*talkers)
        assert refused == 3
        assert receipt.log == "opaque"
        await rival.keys.sync()
        assert not rival.keys.table.has(b"sealed/busy")
        await backend.caught_up(range(made.partitions))
        assert not any(
            key == b"sealed/busy" and SECRET.encode() in (value or b"")
            for key, value in await raw_records(made, "events")
        )
        report = await verify(
            backend.log, backend.store, backend.control.state.live_generation, backend.live_rules()
        )
        assert report.differing == []


async def test_all_conversations_of_a_user_are_erased_and_a_repeat_answers_the_same_receipts(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend):
        for name, user in (("u1", "bob/1"), ("u2", "bob/1"), ("u3", "eve")):
            await backend.append(
                "sealed",
                [(name, {"type": "conversation.opened", "user": user}), (name, talk(1)[1])],
            )
        eraser = Eraser(backend, no_text)
        # One was erased before the rest: as if it had been cut off in between.
        first = await eraser.conversation("sealed", "u1", user="bob/1")
        receipts = await eraser.user("sealed", "bob/1")
        assert [receipt.conversation for receipt in receipts] == ["u1", "u2"]
        assert receipts[0] == first
        assert await eraser.user("sealed", "bob/1") == receipts
        assert (await backend.window("sealed", "u3")).meta.count == 2
        for tenant, user in (("sealed", "nobody"), ("plain", "bob/1")):
            with pytest.raises(UnknownUser):
                await eraser.user(tenant, user)
    assert not any(
        b"bob/1" in (value or b"") + key for key, value in await raw_records(made, "keys")
    )


async def test_what_another_request_erases_meanwhile_has_its_receipt_too(
    made: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stack(made) as (_, backend):
        for name in ("m1", "m2", "m3"):
            opened = {"type": "conversation.opened", "user": "mia"}
            await backend.append("sealed", [(name, opened), (name, talk(1)[1])])
        eraser, others = Eraser(backend, no_text), ["m3", "m1"]

        async def listed(*args: Any) -> list[str]:
            if others:
                await eraser.conversation("sealed", others.pop(), user="mia")
            return await of_user(*args)

        monkeypatch.setattr(erasure, "of_user", listed)
        receipts = await eraser.user("sealed", "mia")
        assert [receipt.conversation for receipt in receipts] == ["m1", "m2", "m3"]


async def test_a_repeat_answers_also_what_another_request_has_begun_to_erase_by_name(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend):
        for name in ("n1", "n2"):
            opened = {"type": "conversation.opened", "user": "noa"}
            await backend.append("sealed", [(name, opened), (name, talk(1)[1])])
        begun = Erasure("begun", "2026-01-31T12:00:00.000Z", "kept")
        key = str(make_key("sealed", "n1")).encode()
        await backend.keys.put_erasure(key, begun)
        eraser = Eraser(backend, no_text)
        receipts = await eraser.user("sealed", "noa")
        assert [receipt.conversation for receipt in receipts] == ["n1", "n2"]
        await backend.keys.put_erasure(key, begun)  # of the other request, which knows no user
        assert await eraser.user("sealed", "noa") == receipts


@pytest.mark.long
async def test_a_tenants_erasures_are_few_at_a_time_and_read_the_topics_settings_once(
    made: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = most = read = 0
    configs = erasure_receipt.topic_configs

    async def counted(*args: Any) -> dict[str, dict[str, str]]:
        nonlocal read
        read += 1
        return await configs(*args)

    async def forget(*_: object) -> None:
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0)
        running -= 1

    monkeypatch.setattr(erasure_receipt, "topic_configs", counted)
    names = [f"f{n}" for n in range(12)]
    async with stack(made) as (_, backend):
        for name in names:
            await say(backend, "sealed", name, talk(1))
        at_once, verdict = asyncio.Barrier(ERASURES + 1), erasure.verdict_of

        async def meet(*args: Any) -> Any:
            await at_once.wait()
            return await verdict(*args)

        monkeypatch.setattr(erasure, "verdict_of", meet)
        eraser = Eraser(backend, forget)
        tasks = [asyncio.create_task(eraser.conversation("sealed", name)) for name in names]
        for _ in range(3):
            await until(lambda: asyncio.sleep(0, at_once.n_waiting >= ERASURES))
            assert at_once.n_waiting == ERASURES, "the others wait for their turn"
            await at_once.wait()
        receipts = await asyncio.gather(*tasks)
    assert [receipt.conversation for receipt in receipts] == names
    assert 0 < most <= ERASURES and read == 1


async def test_conversations_of_a_user_do_not_wait_for_each_other(made: Settings) -> None:
    async with stack(made) as (_, backend):
        for name in ("s1", "s2", "s3"):
            await backend.append("sealed", [(name, {"type": "conversation.opened", "user": "kim"})])
        all_there = asyncio.Barrier(3)

        async def meet(*_: object) -> None:
            await all_there.wait()

        receipts = await asyncio.wait_for(Eraser(backend, meet).user("sealed", "kim"), 60)
        assert [receipt.conversation for receipt in receipts] == ["s1", "s2", "s3"]


async def test_a_user_who_opens_on_and_on_meanwhile_does_not_hold_up_the_erasure(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend):
        opened = 0

        async def open_another(*_: object) -> None:
            nonlocal opened
            opened += 1
            event = {"type": "conversation.opened", "user": "zoe"}
            (one,) = await backend.append("sealed", [(f"z{opened}", event)])
            await backend.wait_applied("sealed", f"z{opened}", [one])

        await open_another()
        receipts = await asyncio.wait_for(Eraser(backend, open_another).user("sealed", "zoe"), 60)
        erased = [receipt.conversation for receipt in receipts]
        assert erased[0] == "z1" and len(erased) < opened
