"""Erasing a user while the log, and no window, says whose a conversation is: it is parked, or its
partition is halted.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import msgspec
import pytest

from projections.errors import Conflict, UnknownUser, WaitTimedOut
from projections.events.types import OpenedEvent
from projections.fold.handlers import HANDLERS
from projections.names import Key, Position, make_key, partition_of, users_log
from projections.window import log_progress
from streams.control.control_topic import Control
from streams.control.halts import Halt
from streams.settings.settings import Settings
from tests.support.commands import cli
from tests.support.erasure import no_text, stack
from tests.support.fragile_policy import message
from tests.support.memories import saved
from tests.support.raw_records import put_raw
from tests.support.worker import until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.service import erasure, letters
from threadfold.service.conversations import ConversationService
from threadfold.service.erasure import Eraser
from threadfold.service.lists import of_user

TENANT = "plain"


def opened(user: str) -> dict[str, Any]:
    return {"type": "conversation.opened", "user": user}


async def say(backend: ConversationService, name: str, *flats: dict[str, Any]) -> list[str]:
    """Append to a conversation, wait until the windows include it, and return the positions."""
    appended = await backend.append(TENANT, [(name, flat) for flat in flats])
    await backend.wait_applied(TENANT, name, appended)
    return [str(one.position) for one in appended]


async def park(settings: Settings, backend: ConversationService, name: str) -> str:
    """Park a conversation at bytes that are not an event; returns where."""
    key = make_key(TENANT, name)
    partition = partition_of(key, settings.partitions)
    (sent,) = await put_raw(settings, "events", (partition, str(key).encode(), b'{"bad":'))
    at = Position(partition, sent.offset)
    await backend.wait_for(at, whose=key)
    return str(at)


def is_erased(backend: ConversationService, *names: str) -> list[bool]:
    return [backend.keys.is_erased(str(Key(TENANT, name)).encode()) for name in names]


async def erased(backend: ConversationService, user: str) -> list[str]:
    """The conversations of which an erasure of the user has receipts."""
    return [one.conversation for one in await Eraser(backend, no_text).user(TENANT, user)]


async def test_nothing_of_a_user_is_erased_while_a_parked_conversation_may_become_anothers(
    made: Settings, tmp_path: Path
) -> None:
    write_config(tmp_path / CONFIG_FILE, made)
    async with stack(made) as (_, backend):
        await say(backend, "given", opened("qa"), message("one"))
        await say(backend, "of-qa", opened("qa"))
        await say(backend, "of-qb", opened("qb"))
        at = await park(made, backend, "given")
        await say(backend, "given", opened("qb"), message("a secret of qb"))
        for user in ("qa", "qb"):
            own = users_log(TENANT, user)
            data = msgspec.to_builtins(saved(own, "Likes tea.", user=user))
            await backend.append(TENANT, [(own, {"type": "memory.saved", **data})], operator=True)
            with pytest.raises(Conflict, match=rf"nothing is erased.* given at {at}"):
                await Eraser(backend, no_text).user(TENANT, user)
            assert is_erased(backend, own.conversation, "given", "of-qa", "of-qb") == [False] * 4
        with pytest.raises(UnknownUser):
            await Eraser(backend, no_text).user(TENANT, "qc")
        ran = await cli("erase", TENANT, "--user", "qb", "--data", tmp_path)
        assert ran.code == 2 and f"given at {at}" in ran.said and "its name" in ran.said
        await letters.drop(backend, at)
        own = users_log(TENANT, "qb").conversation
        assert await erased(backend, "qb") == ["given", "of-qb", own]
        assert await erased(backend, "qa") == ["of-qa", users_log(TENANT, "qa").conversation]


async def test_a_rollback_waits_to_an_id_of_which_a_repeat_waits_too(made: Settings) -> None:
    async with stack(made) as (_, backend):
        first = {"id": "k1", **message("of quin")}
        await say(backend, "again", opened("quin"), first, opened("quentin"), message("his"))
        at = await park(made, backend, "again")
        await say(backend, "again", first, {"type": "rollback", "to": "k1"})
        for user in ("quin", "quentin"):
            with pytest.raises(Conflict, match=rf"nothing is erased.* again at {at}"):
                await Eraser(backend, no_text).user(TENANT, user)
        await letters.drop(backend, at)
        assert await erased(backend, "quin") == ["again"]


async def test_a_parked_conversation_that_stays_its_users_is_erased_with_the_user(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend):
        first, _ = await say(backend, "stays", opened("sam"), message("one"))
        await park(made, backend, "stays")
        back = {"type": "rollback", "to": first}
        await say(backend, "stays", message("two"), opened("sam"), back)
        assert await erased(backend, "sam") == ["stays"]


async def test_a_parked_conversation_can_be_erased_by_its_name_and_then_its_users(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend):
        await say(backend, "named", opened("na"))
        await say(backend, "of-nb", opened("nb"))
        await park(made, backend, "named")
        await say(backend, "named", opened("nb"))
        with pytest.raises(Conflict):
            await Eraser(backend, no_text).user(TENANT, "nb")
        await Eraser(backend, no_text).conversation(TENANT, "named")
        assert await erased(backend, "nb") == ["of-nb"]
        with pytest.raises(UnknownUser):
            await Eraser(backend, no_text).user(TENANT, "na")


async def test_a_rollback_that_waits_may_give_a_parked_conversation_back_to_its_former_user(
    made: Settings,
) -> None:
    async with stack(made) as (_, backend):
        _, first = await say(backend, "back", opened("ra"), message("one"))
        await say(backend, "back", opened("rb"), message("two"))
        at = await park(made, backend, "back")
        await say(backend, "back", message("three"), {"type": "rollback", "to": first})
        for user in ("ra", "rb"):
            with pytest.raises(Conflict, match=f"back at {at}"):
                await Eraser(backend, no_text).user(TENANT, user)
        await letters.drop(backend, at)
        assert await erased(backend, "ra") == ["back"]
        assert is_erased(backend, "back") == [True]


async def test_a_parked_conversation_behind_which_too_much_waits_may_be_anybodys(
    made: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_progress, "MAX_WAITING", 1)
    async with stack(made) as (_, backend):
        await say(backend, "much", opened("ma"))
        await say(backend, "of-mb", opened("mb"))
        at = await park(made, backend, "much")
        await say(backend, "much", message("two"), message("three"))
        for user in ("ma", "mb", "nobody"):
            with pytest.raises(Conflict, match=f"much at {at}"):
                await Eraser(backend, no_text).user(TENANT, user)
        assert is_erased(backend, "much", "of-mb") == [False, False]
        await letters.drop(backend, at)
        assert await erased(backend, "mb") == ["of-mb"]


async def test_the_event_at_which_a_conversation_is_parked_may_give_it_away_too(
    made: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise ValueError("a test")

    async with stack(made) as (_, backend):
        await say(backend, "poison", opened("pa"))
        with monkeypatch.context() as patch:
            patch.setitem(HANDLERS, OpenedEvent, HANDLERS[OpenedEvent]._replace(handle=failing))
            (at,) = await say(backend, "poison", opened("pb"))
        for user in ("pa", "pb"):
            with pytest.raises(Conflict, match=f"poison at {at}"):
                await Eraser(backend, no_text).user(TENANT, user)
        await letters.retry(backend, at)
        with pytest.raises(UnknownUser):
            await Eraser(backend, no_text).user(TENANT, "pa")
        assert await erased(backend, "pb") == ["poison"]


async def test_a_conversation_that_is_given_away_after_it_was_listed_is_not_erased(
    made: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with stack(made) as (_, backend):
        for name in ("g1", "g2", "g3"):
            await say(backend, name, opened("ga"))

        async def listed(*args: Any) -> list[str]:
            found = await of_user(*args)
            if "g1" in found:
                await say(backend, "g1", opened("gb"))
            return found

        monkeypatch.setattr(erasure, "of_user", listed)
        assert await erased(backend, "ga") == ["g2", "g3"]
        assert is_erased(backend, "g1", "g2", "g3") == [False, True, True]

        async def parked(*args: Any) -> list[str]:
            found = await of_user(*args)
            await park(made, backend, "g1")
            await say(backend, "g1", opened("gc"))
            return found

        monkeypatch.setattr(erasure, "of_user", parked)
        with pytest.raises(Conflict, match="conversation g1 is not erased"):
            await Eraser(backend, no_text).user(TENANT, "gb")
        assert is_erased(backend, "g1") == [False]


async def test_nothing_of_a_user_is_erased_while_a_partition_is_halted(made: Settings) -> None:
    async with stack(made) as (_, backend):
        (at,) = await say(backend, "h", opened("ha"))
        partition, offset = (int(part) for part in at.split("-"))
        others = (f"h{n}" for n in range(99))
        other = next(
            name
            for name in others
            if partition_of(make_key(TENANT, name), made.partitions) != partition
        )
        await say(backend, other, opened("ha"))
        control = await Control(made).start()
        live = backend.control.state.live
        halt = Halt(live, offset, 1, 1, offset, "a test", "2026-01-31T12:00:00Z")
        await control.write({f"halt/{partition}": halt})
        await until(lambda: asyncio.sleep(0, partition in backend.control.state.halted()))
        await backend.append(TENANT, [("h", opened("hb")), ("h", message("a secret of hb"))])
        for user in ("ha", "hb"):
            with pytest.raises(WaitTimedOut, match=r"nothing is erased yet.* halted"):
                await Eraser(backend, no_text).user(TENANT, user)
        assert is_erased(backend, "h", other) == [False, False]
        await control.write({f"halt/{partition}": halt.accept()})
        await control.stop()
        assert await erased(backend, "ha") == [other]
        assert await erased(backend, "hb") == ["h"]
