"""Writes assistant text in progress, and ends it: with its message, by a later turn, by a rollback,
or when its writer sends nothing more.

Redis stores the text (``threadfold.streaming.partial_store``). Whoever ends a text closes it first,
so that it takes nothing more. A text without a message becomes an interrupted message. Its id
derives from conversation, turn and beginning: two gateways that end the same text append a
duplicate, not two messages.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec

from projections.errors import (
    Erased,
    PartialConflict,
    QuotaExceeded,
    RedisUnavailable,
    RequestTooLarge,
    ThreadfoldError,
)
from projections.events.codec import full_type
from projections.events.validation import Record
from projections.names import Key, Position, one_line, partition_of
from streams.runtime.keyed_limit import KeyedLimit
from streams.runtime.tasks import end_tasks
from threadfold.service.append_result import Appended
from threadfold.service.conversations import ConversationService
from threadfold.streaming.channel import Channel
from threadfold.streaming.channels import Channels
from threadfold.streaming.partial_end import Ending, Rollback, ends_text, kept_id
from threadfold.streaming.partial_repeats import whole_delta
from threadfold.streaming.partial_store import MOST_TEXT, PartialStore, Text, Verdict
from threadfold.streaming.text_endings import TextEndings
from threadfold.streaming.windows import Windows

logger = logging.getLogger(__name__)
ATTEMPTS = 50
CLOSING = 0.1
"""How often a delta is tried while its text is being closed, and the seconds in between."""
WITHOUT = frozenset({"begin", "gap", "other"})
"""Verdicts where no text of the turn is stored."""
BEGINNINGS, ENDINGS = 8, 2
"""Texts of a tenant that its requests begin, and of which it is found out whether they have ended,
at a time. Each takes several calls of Redis and Kafka: many at once held up other tenants by
100 ms.
"""
PATIENCE = 10.0
"""Seconds for which a request waits for its tenant's turn to do so; then it is refused."""
MOST_TEXTS = 64 << 20
"""Bytes of a tenant's texts in progress that are written through this process."""
_MESSAGE = full_type("message")


class _Role(msgspec.Struct):
    role: str


class _Message(msgspec.Struct):
    data: _Role


_decode_role = msgspec.json.Decoder(_Message).decode


class Writing:
    """A conversation that somebody writes to through this process. Its channel stays open, so that
    the message that ends the text is seen.
    """

    __slots__ = ("channel", "since", "size", "touched", "turn")

    def __init__(self, channel: Channel) -> None:
        self.channel = channel
        self.turn: str | None = None
        self.since = -1
        self.size = 0
        """Bytes of its text that came through this process."""
        self.touched = time.monotonic()


class Partials:
    """Text in progress, for one process.

    Args:
        timeout: seconds without a delta after which a text becomes an interrupted message.
    """

    def __init__(
        self,
        backend: ConversationService,
        store: PartialStore,
        windows: Windows,
        channels: Channels,
        endings: TextEndings,
        timeout: float,
    ) -> None:
        self._backend = backend
        self._store = store
        self._windows = windows
        self._channels = channels
        self._timeout = timeout
        self._endings = endings
        self._beginnings = KeyedLimit(BEGINNINGS)
        self._turns_to_end = KeyedLimit(ENDINGS, PATIENCE)
        self._writing: dict[Key, Writing] = {}
        self._sizes = Counter[str]()
        """Bytes of texts in progress by tenant."""
        self._ending: set[asyncio.Task[None]] = set()
        self.on_kept: Callable[[str, Sequence[Appended]], None] = lambda tenant, appended: None
        """Called for each text that became a message, with the tenant and what was appended."""

    async def post(self, key: Key, turn: str, delta: str, offset: int | None) -> int:
        """Add ``delta`` to the text of ``turn``; returns how many characters the text has now.

        Args:
            offset: the characters before the delta; what is stored already is not added twice.
                Without it the delta is added at the end.

        Raises:
            PartialConflict: the delta leaves a gap or differs from the stored text, or its turn is
                over.
            RequestTooLarge: the text would be over 1 MiB.
            QuotaExceeded: the tenant's texts would be over 64 MiB.
            Erased: the conversation was erased.
            RedisUnavailable, KafkaUnavailable, Healing, WaitTimedOut, Overloaded: try again later.
        """
        self._check_size(key, delta)
        since: int | None = None
        for _ in range(ATTEMPTS):
            verdict = await self._store.append(key, turn, delta, offset, since)
            if verdict.name in WITHOUT and verdict.turn != turn and offset is not None:
                whole = await self._whole(key, turn, delta, offset)
                if whole is None:
                    return offset + len(delta)
                if whole != delta:
                    offset, delta = 0, whole
                    continue
            match verdict.name:
                case "ok":
                    await self._note(key, turn, verdict.since, len(delta.encode()))
                    return verdict.chars
                case "begin":
                    async with self._beginnings.of(key.tenant):
                        since = await self._beginning(key)
                case "other":
                    async with self._turns_to_end.of(key.tenant):
                        await self.finish(key, text=(verdict.turn, verdict.since), superseded=True)
                    since = None  # this text begins behind the message that the other one became
                case "closing":
                    await asyncio.sleep(CLOSING)
                case "overlap":
                    offset, delta = await self._rest(key, turn, verdict.since, delta, offset or 0)
                    if not delta:
                        return offset
                case _:
                    raise _refusal(key, turn, offset, verdict)
        raise PartialConflict(f"turn {turn}: its text is being ended: try again shortly")

    async def appended(self, records: Sequence[Record], positions: Sequence[Position]) -> None:
        """End the texts that these records end, before their appender is answered. It costs nothing
        while no text is in progress here.
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
                if _decode_role(record.value).data.role == "assistant":
                    await self._end(record.key, writing.turn, writing.since)
            except (msgspec.DecodeError, RedisUnavailable) as error:
                # Encrypted, or Redis is away: the tail sees the message, too, and at last the
                # sweeper does.
                logger.debug("the text in progress of %s is ended later: %s", record.key, error)

    def on_message(self, key: Key, turn: str, since: int) -> None:
        """End a text whose message came in the log."""
        self._in_background(key, self._end, turn, since)

    def on_rollback(self, key: Key, rollback: Rollback) -> None:
        """End the conversation's text if this rollback goes to before it."""
        self._in_background(key, self._roll_back, rollback)

    async def finish(self, key: Key, *, text: tuple[str, int], superseded: bool = False) -> None:
        """End this text now: it becomes an interrupted message, unless it has its message. Raises
        what appending raises.
        """
        closed = await self._store.close(key, text=text, superseded=superseded)
        if closed is not None:
            await self.settle(key, closed, await self._endings.find(key, closed))

    async def settle(self, key: Key, closed: Text, ending: Ending | None) -> None:
        """Append a closed text as a message, unless it has one already or is empty; then delete it.

        Args:
            ending: what has ended it, if anything has (``TextEndings.find``).
        """
        self._over(key, closed.turn, closed.since)
        keep = ending is None and bool(closed.text)
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
                logger.warning("the text in progress of %s cannot become a message: %s", key, error)
                keep = False
        dropped = not keep if ending is None else ending.unknown
        if ending is not None and ending.rollback:
            # Its writer may not know: it would begin the text anew, after the rollback.
            await self._store.close(key, text=(closed.turn, closed.since), superseded=True)
            dropped = True
        await self._store.end(key, closed.turn, closed.since, dropped=dropped)

    async def forget(self, key: Key, erased: bool = False) -> bool:
        """Delete a conversation's text in progress; returns whether there was any."""
        return await self._store.forget(key, erased)

    def expire(self) -> None:
        """Release the channels of conversations that nobody writes to any more."""
        before = time.monotonic() - self._timeout - 5.0
        for key, writing in list(self._writing.items()):
            if writing.touched < before:
                del self._writing[key]
                self._resize(key, writing, 0)
                self._channels.release(writing.channel)

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

    def _check_size(self, key: Key, delta: str) -> None:
        """Before Redis, which serves everybody, is sent it."""
        size = len(delta.encode())
        if size > MOST_TEXT:
            raise _too_large(key)
        if self._sizes[key.tenant] + size > MOST_TEXTS:
            raise QuotaExceeded(
                f"texts in progress of tenant {key.tenant}: over {MOST_TEXTS >> 20} MiB in this"
                " gateway: append the messages of some, or try again later",
                retry_after=5,
            )

    async def _note(self, key: Key, turn: str, since: int, more: int) -> None:
        writing = await self._watched(key)
        if (writing.turn, writing.since) != (turn, since):
            self._resize(key, writing, 0)
        self._resize(key, writing, writing.size + more)
        writing.turn, writing.since, writing.touched = turn, since, time.monotonic()

    def _resize(self, key: Key, writing: Writing, size: int) -> None:
        self._sizes[key.tenant] += size - writing.size
        if not self._sizes[key.tenant]:
            del self._sizes[key.tenant]
        writing.size = size

    def _over(self, key: Key, turn: str, since: int) -> None:
        """A text has ended."""
        writing = self._writing.get(key)
        if writing is not None and (writing.turn, writing.since) == (turn, since):
            writing.turn = None
            self._resize(key, writing, 0)

    async def _watched(self, key: Key) -> Writing:
        writing = self._writing.get(key)
        if writing is None:
            channel = await self._channels.acquire(key)
            writing = self._writing.get(key)
            if writing is not None:
                self._channels.release(channel)  # another delta was quicker
            else:
                writing = self._writing[key] = Writing(channel)
        return writing

    async def _rest(
        self, key: Key, turn: str, since: int, delta: str, offset: int
    ) -> tuple[int, str]:
        """The part of a delta that is not stored yet, with its offset. If the stored text differs,
        see whether it has ended.
        """
        text = await self._store.read(key)
        if text is None or (text.turn, text.since) != (turn, since):
            return offset, delta
        stored = text.text[offset : offset + len(delta)]
        if delta.startswith(stored):
            return offset + len(stored), delta[len(stored) :]
        if offset == 0:
            async with self._turns_to_end.of(key.tenant):
                ending = await self._endings.find(key, text)
                if ending is not None:
                    await self.settle(key, text, ending)
                    return 0, delta
        raise _conflict(turn, f"another text is stored at offset {offset}", len(text.text))

    async def _end(self, key: Key, turn: str, since: int) -> None:
        await self._store.end(key, turn, since)
        self._over(key, turn, since)

    async def _roll_back(self, key: Key, rollback: Rollback) -> None:
        offset = rollback.offset
        text = await self._store.read(key)
        if text is not None and text.since <= offset:
            partition = partition_of(key, self._backend.log.partitions)
            await self._windows.reach(key, Position(partition, offset))
            if rollback.goes_before(text.since, await self._windows.recent_ids(key, offset)):
                await self.settle(key, text, Ending(offset, rollback=True))

    def _in_background(self, key: Key, work: Callable[..., Awaitable[None]], *args: Any) -> None:
        async def end() -> None:
            try:
                await work(key, *args)
            except ThreadfoldError as error:
                logger.debug("the text in progress of %s is ended later: %s", key, error)

        task = asyncio.create_task(end(), name="partial-end")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    async def _whole(self, key: Key, turn: str, delta: str, offset: int) -> str | None:
        """What ``whole_delta`` says of a delta. What repeats an ended text is noted there."""
        texts = await self._store.ended(key, turn)
        upto = offset + len(delta)
        for text in texts:
            if offset <= text.repeated < upto and text.has(delta, offset):
                await self._store.repeated(key, text, upto)
        return whole_delta(texts, delta, offset)


def _refusal(key: Key, turn: str, offset: int | None, verdict: Verdict) -> ThreadfoldError:
    match verdict.name:
        case "large":
            return _too_large(key)
        case "erased":
            return Erased(f"conversation {key.conversation} was erased")
        case "over":
            return PartialConflict(
                f"turn {turn} is over: a later one took its place, or a rollback went to before its"
                " text"
            )
    why = f"{verdict.chars} characters are stored, and the offset given is {offset}"
    return _conflict(turn, why, verdict.chars)


def _conflict(turn: str, why: str, stored: int) -> PartialConflict:
    return PartialConflict(
        f"turn {one_line(turn)}: {why}: continue at offset {stored}, or start again at 0 once its"
        " message is appended"
    )


def _too_large(key: Key) -> RequestTooLarge:
    return RequestTooLarge(
        f"text in progress of {key.conversation}: over the limit of {MOST_TEXT} bytes: append the"
        " message"
    )
