"""``play``: appends conversation files to the log and waits until all events are applied."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path

import click
import msgspec
import orjson

from projections.errors import InvalidEvent, KafkaUnavailable, WaitTimedOut
from projections.events.times import present
from projections.events.validation import Record, make_record
from projections.fold.apply import id_hash_of
from projections.names import Key, check_name, partition_of
from projections.policy.policy import Policy
from projections.storage.records import Checkpoint
from streams.log.log import Log
from streams.settings.settings import Settings
from streams.stack import Stack, open_stack
from threadfold.cli.common import Finite, data_option, ensure_tenant, load_settings, run
from threadfold.cli.inputs import message_event, open_lines, parse_object
from threadfold.cli.progress import Meter, metered

DEFAULT_ENCODING = Policy().encoding
"""The encoding in which files are counted while they are checked, before the stack is opened. If
the tenant's policy has another, they are counted again.
"""
IN_FLIGHT = 32
"""Conversations played at the same time."""
LIST = 100
"""Events appended at once, per conversation."""
STANDSTILL = 60.0
"""Seconds without any event applied after which waiting is given up."""
ATTEMPTS = 3
"""How often the same records are appended before an outage of Kafka ends the play."""


@dataclass(slots=True)
class Conversation:
    """One conversation to play: its records, in order."""

    key: Key
    records: list[Record]


@dataclass(slots=True)
class Player:
    """Appends records to a log and counts them.

    Of ``total`` events this run appended ``appended``; ``present`` were in the log before. ``last``
    is the offset of each partition that the windows must include.
    """

    log: Log
    total: int
    appended: int = 0
    present: int = 0
    last: dict[int, int] = field(default_factory=dict)

    @property
    def done(self) -> int:
        """Events that are in the log."""
        return self.appended + self.present

    async def append(self, records: list[Record]) -> None:
        """Append records. Tries again after an outage: a repeat has the same ids and changes
        nothing.
        """
        for attempt in range(1, ATTEMPTS + 1):
            try:
                positions = await self.log.append(records)
                break
            except KafkaUnavailable:
                if attempt == ATTEMPTS:
                    raise
        self.appended += len(positions)
        for position in positions:
            last = self.last.get(position.partition, -1)
            self.last[position.partition] = max(position.offset, last)

    def left(self, checkpoints: Mapping[int, Checkpoint | None]) -> int:
        """How many records of the log the windows have not applied yet, up to ``last``."""
        return sum(
            offset + 1 if c is None else max(0, max(offset, c.target) - c.offset)
            for offset, c in ((offset, checkpoints[p]) for p, offset in self.last.items())
        )


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE..."
)
@click.option("--tenant", required=True, metavar="T", help="The tenant to play for.")
@click.option(
    "--rate",
    type=Finite(min=0, min_open=True),
    metavar="N",
    help="Append at most N events a second in total.",
)
@click.option(
    "--copies",
    type=click.IntRange(1, 10_000),
    default=1,
    show_default=True,
    metavar="K",
    help="Play each conversation K times, as ID, ID.2, ... ID.K.",
)
@data_option
def play(
    files: tuple[Path, ...], tenant: str, rate: float | None, copies: int, data: Path | None
) -> None:
    """Play conversation files. Each line is `{"conversation": ID, "messages": [OpenAI messages]}`.

    The command checks all files before it appends anything, and returns when all events are
    applied. Event ids derive from tenant, conversation and place, so a repeated or interrupted play
    appends only the missing events.
    """
    check_name("tenant", tenant)
    settings = load_settings(data)
    begun = time.monotonic()
    source = Source(files, tenant, copies, settings.max_event_bytes)
    conversations = source.read()
    played = run(_play(settings, source, conversations, rate))
    seconds = time.monotonic() - begun
    note = f" ({played.present} existed already)" if played.present else ""
    count = len(conversations) * copies
    noun = "conversation" if count == 1 else "conversations"
    click.echo(
        f"played: {played.done} events, {count} {noun}, {seconds:.1f}"
        f" s, {played.appended / max(seconds, 1e-3):.0f} events/s{note}"
    )


# -- reading
# ------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Source:
    """What to play: files, tenant, copies of each conversation; ``max_bytes`` limits one event."""

    files: tuple[Path, ...]
    tenant: str
    copies: int
    max_bytes: int

    def read(self, encoding: str = DEFAULT_ENCODING) -> list[Conversation]:
        """Read and check all files; count tokens in ``encoding``.

        Raises:
            MalformedInput, InvalidEvent, InvalidName, EventTooLarge: the message names file, line,
                message and field.
        """
        found: dict[Key, Conversation] = {}
        now = present()
        for path in self.files:
            for number, line in open_lines(path):
                where = f"{path}, line {number}"
                conversation = self._conversation(parse_object(line, where), where, now, encoding)
                if conversation.key in found:
                    raise InvalidEvent(
                        f"{where}: conversation {conversation.key.conversation} occurs twice"
                    )
                found[conversation.key] = conversation
        for key in found:
            for copy in range(2, self.copies + 1):
                if _copy_key(key, copy) in found:
                    raise InvalidEvent(
                        f"conversation {key.conversation}: its copy"
                        f" {_copy_key(key, copy).conversation} is a conversation of the files;"
                        " rename one, or use fewer --copies"
                    )
            check_name("conversation", _copy_key(key, self.copies).conversation)
        return list(found.values())

    def _conversation(
        self, value: dict[str, object], where: str, now: str, encoding: str
    ) -> Conversation:
        if value.get("conversation") is None:
            raise InvalidEvent(f"{where}: field conversation: missing")
        key = Key(self.tenant, check_name(f"{where}: conversation", value["conversation"]))
        messages = value.get("messages")
        if not isinstance(messages, list):
            raise InvalidEvent(f"{where}: field messages: expected a list of OpenAI messages")
        records = []
        for i, message in enumerate(messages):
            place = f"{where}: message {i + 1}"
            flat = {**message_event(message, place), "id": event_id(key, i)}
            records.append(
                make_record(
                    key,
                    flat,
                    where=place,
                    now=now,
                    new_id="",
                    encoding=encoding,
                    max_bytes=self.max_bytes,
                )
            )
        return Conversation(key, records)


def event_id(key: Key, index: int) -> str:
    """The id of a played event, derived from tenant, conversation (or copy) and place."""
    return f"play-{sha256(f'{key}/{index}'.encode()).hexdigest()[:32]}"


def _copy_key(key: Key, copy: int) -> Key:
    return key if copy == 1 else Key(key.tenant, f"{key.conversation}.{copy}")


def copied(conversation: Conversation, copy: int) -> Conversation:
    """A conversation under its copy's name; tokens are not counted again."""
    if copy == 1:
        return conversation
    key = _copy_key(conversation.key, copy)
    records = []
    for i, record in enumerate(conversation.records):
        envelope = orjson.loads(record.value)
        envelope["id"], envelope["source"] = event_id(key, i), key.source
        records.append(
            msgspec.structs.replace(
                record, key=key, id=envelope["id"], value=orjson.dumps(envelope)
            )
        )
    return Conversation(key, records)


# -- playing
# ------------------------------------------------------------------------------------------


async def _play(
    settings: Settings, source: Source, conversations: list[Conversation], rate: float | None
) -> Player:
    copies = source.copies
    async with open_stack(settings) as stack:
        await ensure_tenant(stack.control, source.tenant)
        rules = stack.control.state.rules(stack.generation)
        encoding = rules.for_conversation(source.tenant, None).encoding
        if encoding != DEFAULT_ENCODING:
            conversations = source.read(encoding)
        player = Player(stack.log, sum(len(c.records) for c in conversations) * copies)
        # The windows know what an interrupted play appended, so they must include it first.
        player.last = {p: end - 1 for p, end in (await stack.log.last_records()).items()}
        with metered("play") as meter:
            await _wait_applied(stack, player, meter)
            waiting = iter([(c, copy) for copy in range(1, copies + 1) for c in conversations])
            pace = _Pace(rate)

            async def play_some() -> None:
                for conversation, copy in waiting:
                    await _play_one(stack, copied(conversation, copy), pace, player, meter)

            async with asyncio.TaskGroup() as group:
                for _ in range(min(IN_FLIGHT, len(conversations) * copies)):
                    group.create_task(play_some())
            await _wait_applied(stack, player, meter)
    return player


async def _play_one(
    stack: Stack, conversation: Conversation, pace: _Pace, player: Player, meter: Meter
) -> None:
    start = await _present(stack, conversation)
    player.present += start
    size = LIST if pace.rate is None else max(1, min(LIST, int(pace.rate / 10)))
    for i in range(start, len(conversation.records), size):
        batch = conversation.records[i : i + size]
        await pace.take(len(batch))
        await player.append(batch)
        meter(player.done, player.total)


async def _present(stack: Stack, conversation: Conversation) -> int:
    """The number of the conversation's records in the log, by the window's recent ids. Exact unless
    over 1,024 other events followed.
    """
    generation = stack.generation
    partition = partition_of(conversation.key, generation.partitions)
    _, (stored,) = await stack.store.reader.read(generation.number, partition, [conversation.key])
    if stored is None:
        return 0
    recent_ids = stored.recent_ids(conversation.key)
    for i in range(len(conversation.records) - 1, -1, -1):
        if recent_ids.find(id_hash_of(conversation.records[i].id)) is not None:
            return i + 1
    return 0


class _Pace:
    """Limits the rate of all conversations together; None: no limit."""

    def __init__(self, rate: float | None) -> None:
        self.rate = rate
        self._next = time.monotonic()

    async def take(self, events: int) -> None:
        if self.rate is None:
            return
        now = time.monotonic()
        at = max(now, self._next)
        self._next = at + events / self.rate
        await asyncio.sleep(at - now)


async def _wait_applied(stack: Stack, player: Player, meter: Meter) -> None:
    """Wait until the live generation's windows have applied all up to the player's last offsets.

    Raises:
        WaitTimedOut: nothing was applied for :data:`STANDSTILL` seconds.
    """
    moved, before = time.monotonic(), -1
    while left := player.left(
        {p: await stack.store.checkpoint(stack.generation.number, p) for p in player.last}
    ):
        if left != before:
            moved, before = time.monotonic(), left
        elif time.monotonic() - moved > STANDSTILL:
            raise WaitTimedOut(
                f"{left} events are in the log but not applied, and none was applied for"
                f" {STANDSTILL:.0f} s: start a worker (`threadfold worker`), then run this play"
                " again; it appends only what is missing"
            )
        meter(player.done, player.total, f"{left} to apply")
        await asyncio.sleep(0.05)
