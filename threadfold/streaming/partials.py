"""Taking in assistant text in progress, and ending it: with its message, by a later turn, or when
its writer says nothing more.

Redis holds the text (``threadfold.streaming.partial_store``). Whoever ends it closes it first, so
that it takes nothing more; what is kept becomes a message whose id derives from conversation, turn
and beginning, so that two gateways that end the same text make a duplicate and not two messages.
"""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from hashlib import sha256

import msgspec

from projections.errors import (
    Erased,
    PartialConflict,
    RedisUnavailable,
    RequestTooLarge,
    ThreadfoldError,
)
from projections.events.types import full_type
from projections.events.validation import Record
from projections.names import Key, Position, partition_of
from streams.runtime.tasks import end_tasks
from threadfold.service.appended import Appended
from threadfold.service.conversations import ConversationService
from threadfold.streaming.channel import Channel
from threadfold.streaming.decoding import told
from threadfold.streaming.partial_store import MOST_TEXT, PartialStore, Text
from threadfold.streaming.windows import Windows

logger = logging.getLogger(__name__)
ATTEMPTS = 50
CLOSING = 0.1
"""How often a delta is tried that meets a text being ended, and the seconds in between."""
_MESSAGE = full_type("message")
_KEPT = re.compile(r"partial-[0-9a-f]{32}")


class _Role(msgspec.Struct):
    role: str


class _Said(msgspec.Struct):
    data: _Role


_said = msgspec.json.Decoder(_Said)


class Writing:
    """A conversation that somebody writes to through this process: its channel is held, so that the
    message is seen that ends the text.
    """

    __slots__ = ("channel", "since", "touched", "turn")

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.turn: str | None = None
        self.since = -1
        self.touched = time.monotonic()


class Partials:
    """Text in progress, for one process.

    Args:
        hold, release: of a conversation's channel.
        timeout: seconds without a word after which a text is kept as it is.
    """

    def __init__(
        self,
        backend: ConversationService,
        held: PartialStore,
        windows: Windows,
        hold: Callable[[Key], Awaitable[Channel]],
        release: Callable[[Channel], None],
        timeout: float,
    ) -> None:
        self._backend = backend
        self._held = held
        self._windows = windows
        self._hold = hold
        self._release = release
        self._timeout = timeout
        self._writing: dict[Key, Writing] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self.on_kept: Callable[[str, Sequence[Appended]], None] = lambda tenant, appended: None
        """Told of each text that was kept as a message: the tenant, and what was appended."""

    async def post(self, key: Key, turn: str, delta: str, offset: int | None) -> int:
        """Add ``delta`` to what ``turn`` is saying; returns the characters held.

        Args:
            offset: the characters before the delta: what of it is held already is not added twice.
                Without it, it is added at the end.

        Raises:
            PartialConflict: it does not go on where the text ends, says something else than what is
            held, or its turn is over. RequestTooLarge: the text would be over 1 MiB. Erased: the
            conversation was erased. RedisUnavailable, KafkaUnavailable, Healing: it cannot be taken
            now.
        """
        since: int | None = None
        for _ in range(ATTEMPTS):
            verdict = await self._held.append(key, turn, delta, offset, since)
            match verdict.name:
                case "ok":
                    await self._note(key, turn, verdict.since)
                    return verdict.chars
                case "begin":
                    since = await self._beginning(key)
                case "other":
                    await self.finish(key, text=(verdict.turn, verdict.since), superseded=True)
                case "closing":
                    await asyncio.sleep(CLOSING)
                case "held":
                    offset, delta = await self._rest(key, turn, verdict.since, delta, offset or 0)
                    if not delta:
                        return offset
                case "large":
                    raise RequestTooLarge(
                        f"text in progress of {key.conversation}: over the limit of {MOST_TEXT}"
                        " bytes: append the message"
                    )
                case "over":
                    raise PartialConflict(f"turn {turn} is over: a later one took its place")
                case _:
                    raise _conflict(
                        turn,
                        f"{verdict.chars} characters are held, and the offset given is {offset}",
                        verdict.chars,
                    )
        raise PartialConflict(f"turn {turn}: its text is being ended: try again shortly")

    async def appended(self, records: Sequence[Record], positions: Sequence[Position]) -> None:
        """End the texts that these records end, before whoever appended them is answered; costs
        nothing where none is in progress here.
        """
        if not self._writing:
            return
        for record, position in zip(records, positions, strict=True):
            writing = self._writing.get(record.key)
            if (
                writing is None
                or writing.turn is None
                or record.type != _MESSAGE
                or position.offset < writing.since
            ):
                continue
            if not ends_text(record.id, record.key, writing.turn, writing.since):
                continue
            try:
                if _said.decode(record.value).data.role == "assistant":
                    await self._end(record.key, writing.turn, writing.since)
            except (msgspec.DecodeError, RedisUnavailable) as error:
                # Sealed, or Redis is away: the tail sees the message, too, and in the end the
                # sweeper does.
                logger.debug("the text in progress of %s is ended later: %s", record.key, error)

    def ended_by_message(self, key: Key, turn: str, since: int) -> None:
        """A message came in the log that ends this text."""
        task = asyncio.create_task(self._end_quietly(key, turn, since), name="partial-end")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def finish(self, key: Key, *, text: tuple[str, int], superseded: bool = False) -> None:
        """End this text now: keep it as an interrupted message, unless it has its message; raises
        what appending raises.
        """
        closed = await self._held.close(key, text=text, superseded=superseded)
        if closed is not None:
            partition = partition_of(key, self._backend.log.partitions)
            await self.settle(key, closed, await self.came_since(partition, {key: closed}))

    async def came_since(self, partition: int, wanted: Mapping[Key, Text]) -> dict[Key, int]:
        """Of texts of a partition's conversations the last message (or erasure) that ends them,
        where there is one.
        """
        log = self._backend.log
        names = {str(key).encode(): key for key in wanted}
        found: dict[Key, int] = {}
        end = (await log.end_offsets())[partition]
        async for raw in log.scan(partition, min(text.since for text in wanted.values()), end - 1):
            key = names.get(raw.key or b"")
            if key is not None and raw.offset >= wanted[key].since:
                what = told(raw, partition, key, log.seals)
                if what is None or (what.ends is None and not what.last):
                    continue
                if what.last or ends_text(what.id, key, wanted[key].turn, wanted[key].since):
                    found[key] = raw.offset
        return found

    async def settle(self, key: Key, closed: Text, ended: Mapping[Key, int]) -> None:
        """Keep a closed text as a message, unless it has one already or says nothing; then take it
        away.
        """
        writing = self._writing.get(key)
        if writing is not None and (writing.turn, writing.since) == closed[:2]:
            writing.turn = None
        keep = key not in ended and bool(closed.text)
        if keep:
            flat = {
                "type": "message",
                "id": kept_id(key, closed.turn, closed.since),
                "role": "assistant",
                "content": closed.text,
                "status": "interrupted",
            }
            try:
                self.on_kept(
                    key.tenant, await self._backend.append(key.tenant, [(key.conversation, flat)])
                )
            except ThreadfoldError as error:
                if error.problem >= 500:
                    raise
                logger.warning("the text in progress of %s cannot be kept: %s", key, error)
                keep = False
        dropped = key not in ended and not keep
        await self._held.end(key, closed.turn, closed.since, dropped=dropped)

    async def forget(self, key: Key) -> bool:
        """Delete what is held of a conversation; returns whether there was anything."""
        return await self._held.forget(key)

    def expire(self) -> None:
        """Let go of conversations that nobody writes to any more."""
        before = time.monotonic() - self._timeout - 5.0
        for key, writing in list(self._writing.items()):
            if writing.touched < before:
                del self._writing[key]
                self._release(writing.channel)

    async def stop(self) -> None:
        """End what is under way."""
        await end_tasks(self._ending)

    async def _beginning(self, key: Key) -> int:
        if await self._windows.erased(key):
            raise Erased(f"conversation {key.conversation} was erased")
        # The channel first: no message from the beginning on is missed then.
        await self._watched(key)
        return (await self._backend.log.end_offsets())[
            partition_of(key, self._backend.log.partitions)
        ]

    async def _note(self, key: Key, turn: str, since: int) -> None:
        writing = await self._watched(key)
        writing.turn, writing.since, writing.touched = turn, since, time.monotonic()

    async def _watched(self, key: Key) -> Writing:
        writing = self._writing.get(key)
        if writing is None:
            channel = await self._hold(key)
            writing = self._writing.get(key)
            if writing is not None:
                self._release(channel)  # another delta was quicker
            else:
                writing = self._writing[key] = Writing(channel)
        return writing

    async def _rest(
        self, key: Key, turn: str, since: int, delta: str, offset: int
    ) -> tuple[int, str]:
        """What of a delta is not held yet, with its offset; where something else is held, see
        whether that text has had its message.
        """
        text = await self._held.read(key)
        if text is None or (text.turn, text.since) != (turn, since):
            return offset, delta
        held = text.text[offset : offset + len(delta)]
        if delta.startswith(held):
            return offset + len(held), delta[len(held) :]
        if offset == 0:
            found = await self.came_since(
                partition_of(key, self._backend.log.partitions), {key: text}
            )
            if found:
                await self._end(key, turn, since)
                return 0, delta
        raise _conflict(turn, f"something else is held at offset {offset}", len(text.text))

    async def _end(self, key: Key, turn: str, since: int) -> None:
        await self._held.end(key, turn, since)
        writing = self._writing.get(key)
        if writing is not None and (writing.turn, writing.since) == (turn, since):
            writing.turn = None

    async def _end_quietly(self, key: Key, turn: str, since: int) -> None:
        try:
            await self._end(key, turn, since)
        except RedisUnavailable as error:
            logger.debug("the text in progress of %s is ended later: %s", key, error)


def kept_id(key: Key, turn: str, since: int) -> str:
    """The id of the message that a text is kept as: whoever keeps it says the same."""
    return "partial-" + sha256("\n".join((str(key), turn, str(since))).encode()).hexdigest()[:32]


def ends_text(id: str, key: Key, turn: str, since: int) -> bool:  # noqa: A002
    """Whether an assistant's message of that id ends this text. One that another text was kept as
    does not: where two ended that text, the second such message may come when the next text has
    begun.
    """
    return _KEPT.fullmatch(id) is None or id == kept_id(key, turn, since)


def _conflict(turn: str, why: str, held: int) -> PartialConflict:
    return PartialConflict(
        f"turn {turn}: {why}: go on at offset {held}, or begin again at 0 once its message is"
        " appended"
    )
