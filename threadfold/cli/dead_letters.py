"""``dead-letters list|inspect|retry|drop|accept``: events that could not be applied."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click
import msgspec

from projections.errors import InvalidPosition, ThreadfoldError
from projections.names import Key, Position, parse_key, parse_position, partition_of
from projections.window.meta import Quarantine
from streams.control.halts import Halt
from streams.log.clients import TopicPartition, kafka_errors, sequential_consumer
from streams.log.kafka_log import KafkaLog
from streams.log.log import Raw
from streams.log.topics import partition_count
from streams.maintenance.dead_letters import DeadLetters, QuarantinedHere, decoded
from streams.maintenance.open_records import OpenRecord
from streams.partition.step import POISON, RECORD, read_row
from streams.projector.effect_sink import Publisher
from streams.settings.settings import Settings
from streams.stack import Stack, open_stack
from threadfold.cli.common import (
    Finite,
    data_option,
    load_settings,
    open_snapshots,
    print_json,
    print_line,
    run,
)
from threadfold.cli.whole_help import Group
from threadfold.service.letters import close_record, key_at, readable_record, shown_key, standing

FIRST_BYTES = 400
PAUSE = 3.0
"""For how many times as long as a retry took the next one waits: the owner of the partition loads
its checkpoint after each, and others' events wait for that.
"""


@click.group("dead-letters", cls=Group)
def dead_letters() -> None:
    """List, inspect, retry or drop events that cannot be applied; continue halted partitions."""


@asynccontextmanager
async def opened(settings: Settings) -> AsyncIterator[tuple[Stack, DeadLetters]]:
    """The dead letters of a stack's live generation."""
    async with open_stack(settings) as stack:
        letters = KafkaLog(
            settings, await partition_count(settings, "dead-letters"), "dead-letters"
        )
        sink = Publisher(settings, stack.log)
        try:
            async with open_snapshots(stack) as snapshots:
                yield (
                    stack,
                    DeadLetters(
                        stack.log,
                        letters,
                        stack.store,
                        stack.generation.number,
                        stack.control.state.rules(stack.generation),
                        sink,
                        snapshots,
                        accept=settings.accept_truncated_log,
                    ),
                )
        finally:
            await sink.stop()
            await letters.stop()


@dead_letters.command("list")
@click.option("--tenant", metavar="T", help="Only this tenant's.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object on each line.")
@data_option
def list_(tenant: str | None, as_json: bool, data: Path | None) -> None:
    """List parked conversations with their waiting events, and records that belong to no
    conversation. The last line counts both. Halted partitions come first.

    A conversation is listed while it is parked, a record while the topic keeps its letter.
    """

    async def look() -> tuple[dict[int, Halt], list[QuarantinedHere], list[OpenRecord]]:
        async with opened(load_settings(data)) as (stack, letters):
            if tenant is not None:
                stack.control.state.tenant(tenant)
            halted = stack.control.state.halted()
            return halted, await letters.quarantined(tenant), await letters.records(tenant)

    halted, quarantined, records = run(look())
    for number, halt in halted.items():
        if as_json:
            print_json({"kind": "halted", "partition": number, **msgspec.to_builtins(halt)})
        else:
            print_line(halt.sentence(number))
    for one in quarantined:
        at, name, waiting, cause = str(one.position), str(one.key), one.waiting, one.cause
        if as_json:
            whole = {"conversation": name, "waiting": waiting, "cause": cause}
            print_json({"kind": "parked", "position": at, **whole})
        else:
            print_line(f"{at}  parked  {name}, {waiting} waiting: {cause}")
    for record in records:
        at, key = str(record.position), shown_key(record.key)
        if as_json:
            print_json({"kind": RECORD, "position": at, "key": key, "cause": record.cause})
        else:
            print_line(f"{at}  record  key {key!r}: {record.cause}")
    if not as_json:
        print_line(f"parked: {len(quarantined)}, records: {len(records)}")


@dead_letters.command()
@click.argument("position")
@data_option
def inspect(position: str, data: Path | None) -> None:
    """Show the record at POSITION as JSON: key, headers, size, first bytes, decoded form, state and
    cause.

    The text is shown as it is in Kafka: encrypted payloads stay encrypted. A record of an erased
    conversation is not shown.
    """
    at = parse_position(position)

    async def look() -> dict[str, Any]:
        settings = load_settings(data)
        async with opened(settings) as (stack, letters):
            raw = await readable_record(letters, at)
            role, quarantine = await letters.role(at, raw)
            cause = await letters.why(at, raw) if role in (POISON, RECORD) else ""
            return {
                **_shown(raw, await _headers(settings, at)),
                **decoded(read_row(stack.log.seals, raw)),
                **standing(role, quarantine, at, cause),
            }

    print_json(run(look()), pretty=True)


def _shown(raw: Raw, headers: list[tuple[str, str]]) -> dict[str, Any]:
    value = raw.value
    return {
        "position": str(raw.position),
        "key": None if raw.key is None else shown_key(raw.key),
        "timestamp": raw.timestamp,
        "headers": dict(headers),
        "bytes": None if value is None else len(value),
        "begins": (
            None if value is None else value[:FIRST_BYTES].decode("utf-8", "backslashreplace")
        ),
    }


async def _headers(settings: Settings, at: Position) -> list[tuple[str, str]]:
    """The headers of a record; the other reads leave them out."""
    tp = TopicPartition(settings.topic("events"), at.partition)
    async with (
        kafka_errors(settings, "reading the log"),
        sequential_consumer(settings, [tp]) as consumer,
    ):
        consumer.seek(tp, at.offset)
        rows = (
            await consumer.getmany(
                tp, timeout_ms=int(settings.append_timeout * 1000), max_records=1
            )
        ).get(tp, [])
        return [
            (name, value.decode("utf-8", "backslashreplace"))
            for row in rows
            if row.offset == at.offset
            for name, value in row.headers
        ]


@dead_letters.command()
@click.argument("what", metavar="[TENANT/CONVERSATION|POSITION]", required=False)
@click.option("--all", "everything", is_flag=True, help="Every parked conversation.")
@data_option
@click.pass_context
def retry(ctx: click.Context, what: str | None, everything: bool, data: Path | None) -> None:
    """Fold parked conversations from the log again, with the code of this release. Exit 1 if one
    stays parked.

    A conversation whose event still fails does not change. Workers may run: the partition's owner
    loads the result. Several are retried with pauses, so that other conversations go on.
    """
    if (what is None) != everything:
        raise click.UsageError("give a conversation or a position, or --all")

    async def go() -> bool:
        async with opened(load_settings(data)) as (_, letters):
            every = [one.key for one in await letters.quarantined()] if what is None else []
            keys = every if what is None else [await _meant(letters, what)]
            return await retry_each(letters, keys)

    ctx.exit(0 if run(go()) else 1)


async def retry_each(letters: DeadLetters, keys: Sequence[Key]) -> bool:
    """Retry these one after the other; returns whether none of them is parked now."""
    clock = asyncio.get_running_loop().time
    well = True
    for i, key in enumerate(keys):
        began = clock()
        well = await _retried(letters, key) and well
        if i + 1 < len(keys):
            await asyncio.sleep(PAUSE * (clock() - began))
    return well


async def _meant(letters: DeadLetters, what: str) -> Key:
    key = parse_key(what.encode())
    if key is not None:
        return key
    at = parse_position(what)
    raw = await letters.record(at)
    return key_at(letters, at, raw, (await letters.role(at, raw))[0])


async def _retried(letters: DeadLetters, key: Key) -> bool:
    try:
        folded, quarantine = await letters.retry(key)
    except ThreadfoldError as error:
        print_line(f"{key}: {error}")
        return False
    if quarantine is None:
        print_line(f"{key}: continues, {folded} events folded")
        return True
    print_line(_again(letters, key, quarantine, folded))
    return False


def _again(letters: DeadLetters, key: Key, quarantine: Quarantine, folded: int) -> str:
    number = f"{folded} events folded, then" if folded else "still"
    at = Position(partition_of(key, letters.log.partitions), quarantine.offset)
    return f"{key}: {number} parked at {at} ({quarantine.count} waiting): {quarantine.cause}"


@dead_letters.command()
@click.argument("position")
@click.option("--reason", metavar="TEXT", help="The reason, kept in the log.")
@click.option(
    "--wait",
    "seconds",
    type=Finite(min=0),
    default=15.0,
    show_default=True,
    help="Seconds to wait for a worker.",
)
@data_option
@click.pass_context
def drop(
    ctx: click.Context, position: str, reason: str | None, seconds: float, data: Path | None
) -> None:
    """Drop the event at POSITION: append an event that says so. The fold skips it and continues
    with the waiting events.

    The record stays in the log. A record that belongs to no conversation is only removed from
    the list. Exit 1 if the conversation is parked again, its partition is halted, or no worker
    folds the drop in time.
    """
    at = parse_position(position)

    async def go() -> bool:
        settings = load_settings(data)
        async with opened(settings) as (stack, letters):
            raw = await letters.record(at)
            if (await letters.role(at, raw))[0] == RECORD:
                await close_record(settings, at, raw)
                print_line(f"{at}: off the list; it belongs to no conversation")
                return True
            key, place = await letters.drop(at, reason)
            if at.partition in (await stack.control.sync()).halted():
                print_line(
                    f"{key}: dropped by the event at {place}, but partition {at.partition} is"
                    " halted: it goes on after `threadfold dead-letters accept"
                    f" {at.partition}`"
                )
                return False
            folded, quarantine = await letters.gone_on(key, at, place, seconds)
            if not folded:
                print_line(
                    f"{key}: dropped by the event at {place}, but no worker folded it within"
                    f" {seconds:g} s: start one (`threadfold worker`)"
                )
            elif quarantine is None:
                print_line(f"{key}: dropped by the event at {place}; it continues")
            else:
                print_line(_again(letters, key, quarantine, 0))
            return folded and quarantine is None

    ctx.exit(0 if run(go()) else 1)


@dead_letters.command()
@click.argument("partition", type=click.IntRange(min=0))
@data_option
def accept(partition: int, data: Path | None) -> None:
    """Continue the halted PARTITION, and record this in the control topic.

    Failures so far no longer count. If as many events fail again, the partition halts again.
    """

    async def go() -> None:
        async with opened(load_settings(data)) as (stack, _):
            halt = (await stack.control.sync()).halted().get(partition)
            if halt is None:
                raise InvalidPosition(
                    f"partition {partition} is not halted: `threadfold doctor` names halted"
                    " partitions"
                )
            await stack.control.write({f"halt/{partition}": halt.accept()})
            print_line(
                f"partition {partition} goes on after offset {halt.offset}; {halt.failing} events"
                " that failed stay parked: `threadfold dead-letters list`"
            )

    run(go())
