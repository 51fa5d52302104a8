"""Reads stored windows of the live generation. Windows that are older than what this process has
served are refused.
"""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from typing import NamedTuple, TypeVar

from projections.errors import ConversationParked, Healing
from projections.names import Key, Position, partition_of
from projections.storage.card import CARD, decode_card
from projections.storage.layout import HEAD, decode_head
from projections.storage.protocol import WindowReader
from projections.storage.records import Checkpoint, Stored, stored_form
from projections.storage.stubs import STUB, decode_stub
from projections.window.meta import Quarantine
from streams.control.control_topic import Control
from streams.log.log import Log
from streams.runtime.keyed_limit import KeyedLimit
from threadfold.service.former_generation import FormerGeneration
from threadfold.service.previews import Previews
from threadfold.service.window_cache import WindowCache

Found = TypeVar("Found")
LARGE_READS = 2
"""Reads of whole windows, or of large parts, that one tenant may have under way, up to the end of
the work on them: others share the connections, the processors and the memory.
"""


class Owner(NamedTuple):
    """The ``user`` of a conversation's last ``conversation.opened`` that stands, if it has one.
    ``parked``: where the conversation is parked. Whose it is from there on is not known.
    """

    user: str | None
    parked: Position | None = None
    quarantine: Quarantine | None = None
    """What waits there, if it is."""

    def known_at(self, position: Position) -> bool:
        """Whether this owner is the one of what stands at a position that the window includes."""
        return self.parked is None or position < self.parked

    def check_known(self, key: Key, what: str) -> None:
        """Raise :class:`ConversationParked` while it is not known whose the conversation is now.

        Args: ``what`` the caller gets instead, as ``nothing was appended``.
        """
        if self.parked is not None:
            raise ConversationParked(
                f"{key.shown} is parked at {self.parked}: {what}, repeat it once it goes on"
            )


PARKED = b'"parked":{'
"""What the context document of a parked conversation holds."""


class StoredWindows:
    """Checked reads of windows, for one event loop.

    Every read raises :class:`Healing` while the partition is behind what was served,
    :class:`CorruptWindow` or :class:`RedisUnavailable`.
    """

    def __init__(
        self,
        reader: WindowReader,
        control: Control,
        log: Callable[[], Log],
        cache_bytes: int,
        turns: KeyedLimit | None = None,
    ) -> None:
        """Args: ``log`` returns the connected log; ``cache_bytes`` of text are cached; ``turns``
        are those of reads of large windows.
        """
        self._reader = reader
        self._control = control
        self._log = log
        self._former = FormerGeneration(reader, control, log)
        self._served: dict[int, int] = {}
        self._checked: dict[int, Checkpoint] = {}
        """The checkpoint of each partition with which something was served last."""
        self.cache = WindowCache(cache_bytes, turns)
        self.previews = Previews()

    async def read(self, key: Key, *, recent_ids: bool = True) -> tuple[Checkpoint, Stored | None]:
        """A conversation's window, erased or not, with its checkpoint, in the generation that is
        live when this returns.

        Args:
            recent_ids: whether its recent ids are read, too.
        """

        async def read(generation: int) -> tuple[Checkpoint | None, Stored | None]:
            checkpoint, (found,) = await self._reader.read(
                generation, self._partition(key), [key], recent_ids=recent_ids
            )
            return checkpoint, found

        return await self._of_live(key, read)

    async def head(self, key: Key) -> tuple[Checkpoint, Stored | None]:
        """The same as :meth:`read`, but of the window its head and its recent ids alone."""
        partition = self._partition(key)
        return await self._of_live(
            key, lambda generation: self._reader.head(generation, partition, key)
        )

    async def fields(self, key: Key, names: list[bytes]) -> dict[bytes, bytes]:
        """Some fields of a window (``projections.storage.layout``)."""
        return await self._fields(self._generation, self._partition(key), key, names)

    async def _fields(
        self, generation: int, partition: int, key: Key, names: list[bytes]
    ) -> dict[bytes, bytes]:
        before = self.served(partition)
        checkpoint, fields = await self._reader.fields(generation, partition, key, names)
        await self.check_served(key, partition, checkpoint, before)
        return fields

    async def owner(self, key: Key) -> Owner | None:
        """Whose the conversation is; None if there is none, or if it was erased."""
        fields = await self.fields(key, [HEAD, STUB, CARD])
        with stored_form(key):
            if STUB in fields:
                return Owner(decode_card(decode_stub(fields[STUB]).card).user)
            if HEAD not in fields:
                return None
            head = decode_head(fields[HEAD])
            if head.erased:
                return None
            user, at = decode_card(fields.get(CARD, b"")).user, head.quarantine
            # A quarantined window never sleeps: a stub is of none.
            parked = None if at is None else Position(self._partition(key), at.offset)
            return Owner(user, parked, at)

    async def check_includes(self, key: Key, position: Position) -> None:
        """Check that what stands at a position does not wait in a parked conversation, to which
        the checkpoint may have come all the same; raises :class:`ConversationParked`.
        """
        owner = await self.owner(key)
        if owner is not None and not owner.known_at(position):
            owner.check_known(key, f"its window does not include {position}")

    async def context(self, key: Key, max_tokens: int | None) -> bytes | None:
        """The context document in OpenAI's format, joined from stored bytes. Of a window that was
        read before, only what changed is read.

        Returns None if there is no window, or if it has to be rendered.
        """
        generation, partition = self._generation, self._partition(key)
        place = (generation, key)
        cached = self.cache.get(place)
        with stored_form(key):
            if cached is not None:
                fields = await self._fields(generation, partition, key, cached.names)
                if HEAD in fields:
                    head = decode_head(fields[HEAD])
                    if missing := cached.missing(head, fields):
                        # A field that the head names stays as it is or is deleted. Its replacement
                        # has another checksum and is not used.
                        found = await self._reader.fields(generation, partition, key, missing)
                        fields |= found[1]
                    document = await self.cache.context(place, partition, head, fields, max_tokens)
                    if document is not None:
                        return document
            _, stored = await self.read(key, recent_ids=False)
            if stored is None:
                return None
            head = decode_head(stored.fields[HEAD])
            return await self.cache.context(place, partition, head, stored.fields, max_tokens)

    def forget(self, key: Key) -> None:
        """Keep nothing of a conversation."""
        self.previews.forget(key)
        if self._control.state.live is not None:
            self.cache.drop((self._generation, key))

    def forget_all(self) -> None:
        """Forget what was served and cached."""
        self._served.clear()
        self._checked.clear()
        self.cache.clear()
        self.previews = Previews()

    def served(self, partition: int) -> int:
        """The offset up to which this process has served windows of a partition. Call it before a
        read, and :meth:`check_served` after it.
        """
        return self._served.get(partition, -1)

    def served_of(self, key: Key) -> int:
        """The same of one conversation: where it is being restored, up to before its rollback."""
        partition = self._partition(key)
        checked = self._checked.get(partition)
        if checked is None or not checked.restoring:
            return self.served(partition)
        return checked.applied_to(key)

    async def checkpoint(self, partition: int) -> Checkpoint:
        """How far the stored windows of a partition are folded."""
        found = await self._reader.checkpoint(self._generation, partition)
        return Checkpoint() if found is None else found

    async def applied(self, partition: int) -> int:
        """The offset up to which they are, but for those that are being restored; -1: none is."""
        return (await self.checkpoint(partition)).latest

    async def check_served(
        self, whose: Key | str, partition: int, checkpoint: Checkpoint | None, before: int
    ) -> Checkpoint:
        """The checkpoint of what was read; raises :class:`Healing` if that must not be served.

        Args:
            whose: the conversation whose window was read, or the tenant of all that were.
            before: what :meth:`served` returned before the read. Of two concurrent reads, the one
                that is answered last may be older.
        """
        if (
            checkpoint is None
            or checkpoint.heals(whose)
            or checkpoint.withheld_until > time.time() * 1000
            or await self._former.is_ahead(whose, partition, checkpoint)
            or await self._stepped_back(partition, checkpoint.latest, before)
        ):
            raise Healing(
                f"windows of partition {partition} are healing from the log: try again shortly"
            )
        self._checked[partition] = checkpoint
        return checkpoint

    @property
    def _generation(self) -> int:
        return self._control.state.live_generation.number

    def _partition(self, key: Key) -> int:
        return partition_of(key, self._log().partitions)

    async def _of_live(
        self, key: Key, read: Callable[[int], Awaitable[tuple[Checkpoint | None, Found]]]
    ) -> tuple[Checkpoint, Found]:
        """What ``read`` finds of a conversation in the generation that is live when this
        returns.
        """
        partition = self._partition(key)
        while True:
            before, generation = self.served(partition), self._generation
            checkpoint, found = await read(generation)
            checked = await self.check_served(key, partition, checkpoint, before)
            # Otherwise the live generation changed meanwhile: the caller uses the live rules.
            if generation == self._control.state.live:
                return checked, found

    async def _stepped_back(self, partition: int, offset: int, before: int) -> bool:
        """Whether windows at ``offset`` are older than what was served (Redis was set back, or the
        generation was switched).
        """
        if offset >= before:
            self._served[partition] = max(self.served(partition), offset)
            return False
        # A recreated topic is shorter than what was served: there is nothing to wait for.
        before = min(before, (await self._log().last_records())[partition] - 1)
        self._served[partition] = max(before, offset)
        return offset < before
