"""A list of conversations shows what is its user's, also of one that is handed over meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from projections.events import types as events
from projections.fold.apply import apply
from projections.fold.replay import replay
from projections.names import Key
from projections.storage.records import Checkpoint, Stored, Verdict, write_of
from projections.window.window import Window
from streams.control.state import Generation
from streams.settings.settings import Settings
from tests.support.histories import RULES, make_event
from tests.support.partitions import NUMBER, keys_of
from threadfold.service.conversation_list import Filter, conversations
from threadfold.service.conversations import ConversationService
from threadfold.service.lists import of_user
from threadfold.service.stored_windows import StoredWindows
from threadfold.testing import MemoryLog, MemoryStore

KEY = Key("acme", "c")
SAID = [
    (n, make_event(data, f"e{n}"))
    for n, data in enumerate([events.Opened(user="ann"), events.Message("user", "Ann's words.")])
]
GIVEN = [events.Opened(user="bob"), events.Message("user", "Bob's words.")]


class HandedOver(MemoryStore):
    """A store in which the conversation becomes Bob's, who says something, after so many reads of
    it.
    """

    def __init__(self, after: int) -> None:
        super().__init__()
        self.window = Window(KEY, 0, RULES)
        self._after = after

    async def say(self, *said: object) -> None:
        for data in said:
            offset = self.window.meta.position + 1
            apply(self.window, offset, make_event(data, f"e{offset}"))
        position = self.window.meta.position
        revision = "" if (known := await self.checkpoint(1, 0)) is None else known.revision
        write = write_of(self.window, at_ms=1)
        assert (await self.apply(1, 0, Checkpoint(revision, position), [write])).verdict is (
            Verdict.APPLIED
        )

    async def fields(
        self, generation: int, partition: int, key: Key, names: list[bytes]
    ) -> tuple[Checkpoint | None, dict[bytes, bytes]]:
        if not self._after:
            await self.say(*GIVEN)
        self._after -= 1
        return await super().fields(generation, partition, key, names)


def service_over(store: MemoryStore, partitions: int = 1) -> ConversationService:
    settings = Settings.load(env={}, kafka="127.0.0.1:1", redis="redis://127.0.0.1:1/0")
    service = ConversationService(settings)
    service.log = MemoryLog(partitions)  # type: ignore[assignment]
    service.store = store  # type: ignore[assignment]
    service.windows = StoredWindows(store, service.control, lambda: service.log, 0)
    service.control.state.put(b"generation/1", msgspec.json.encode(Generation(1, 1)))
    service.control.state.put(b"generation/live", b"1")
    return service


async def listed(store: HandedOver) -> list[tuple[str, str | None]]:
    page = await conversations(service_over(store), "acme", only=Filter("ann"))
    return [
        (one["user"], one["last_message"] and one["last_message"]["text"])
        for one in page["conversations"]
    ]


@pytest.mark.parametrize(
    ("after", "shown"), [(2, [("ann", "Ann's words.")]), (1, [("ann", None)]), (0, [])]
)
async def test_a_conversation_that_is_handed_over_meanwhile_shows_none_of_its_new_users_words(
    after: int, shown: list[tuple[str, str | None]]
) -> None:
    store = HandedOver(after)
    await store.say(events.Opened(user="ann"), events.Message("user", "Ann's words."))
    assert await listed(store) == shown


async def test_a_conversation_without_a_message_is_not_read_again_for_the_next_list() -> None:
    store, reads = HandedOver(-1), list[Key]()
    await store.say(events.Opened(user="ann"), events.Suspension("s1", "approval", "Really?"))
    service = service_over(store)
    read = store.read

    async def counted(
        generation: int, partition: int, keys: Sequence[Key], **more: Any
    ) -> tuple[Checkpoint | None, list[Stored | None]]:
        reads.extend(keys)
        return await read(generation, partition, keys, **more)

    store.read = counted  # type: ignore[method-assign, assignment]
    for _ in range(3):
        (one,) = (await conversations(service, "acme", only=Filter("ann")))["conversations"]
        assert one["last_message"] is None
    assert reads == [KEY]


async def test_a_list_goes_on_behind_what_a_former_release_folded_in_a_wrong_partition() -> None:
    store, at_home = MemoryStore(), keys_of("acme", 3)
    strangers = [key for number in (0, 1, 3) for key in keys_of("acme", 4, number)]
    for number in range(4):
        windows = [*at_home, *strangers] if number == NUMBER else []
        writes = [
            write_of(replay(key, number, RULES, SAID), at_ms=1_000 + (key in strangers))
            for key in windows
        ]
        await store.apply(1, number, Checkpoint("", 1), writes)
    service = service_over(store, 4)
    names, before = list[str](), None
    while True:
        page = await conversations(service, "acme", before=before, limit=1)
        names += [one["conversation"] for one in page["conversations"]]
        if (before := page["next_before"]) is None:
            break
    assert sorted(names) == [key.conversation for key in at_home]
    assert sorted(await of_user(service, "acme", "ann", 2)) == sorted(names)[-2:]


async def test_a_conversation_parked_at_its_first_event_is_listed_without_a_position() -> None:
    store, window = MemoryStore(), Window(KEY, 0, RULES)
    window.quarantine(0, "no event")
    await store.apply(1, 0, Checkpoint("", 0), [write_of(window, at_ms=1)])
    (one,) = (await conversations(service_over(store), "acme"))["conversations"]
    assert (one["conversation"], one["position"], one["count"]) == ("c", None, 0)
