"""``memories rebuild``, ``verify`` and ``diff``: the store of the long-term memory made anew from
its topic, and compared with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from contextlib import AsyncExitStack, asynccontextmanager, closing
from pathlib import Path
from typing import TypeVar

import click

from projections.errors import InvalidSettings, TopicMismatch
from projections.names import make_key
from streams.compaction.summarizers.registry import Summarizers
from streams.control.control_topic import Control
from streams.control.key_ring import KeyRing, encrypting
from streams.log.kafka_log import KafkaLog
from streams.log.retention import check_whole
from streams.log.topics import lost_memories
from streams.maintenance.extraction_preview import ByModel, extracted
from streams.maintenance.republish import republish
from streams.memory.erasures import erased_by
from streams.memory.model_extraction import SpanExtraction
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store import MemoryStore
from streams.memory.store_build import (
    Built,
    StoreReport,
    copy_of,
    live_copy,
    rebuild_store,
    require_store,
    verify_store,
)
from streams.memory.store_differences import (
    Difference,
    differing_records,
    extraction_differences,
)
from streams.projector.effect_sink import Publisher
from streams.runtime.tune_gc import tune_gc
from streams.settings.settings import Settings
from threadfold.cli.common import data_option, load_settings, open_control, print_json, run, say
from threadfold.cli.progress import metered

T = TypeVar("T")
_tenant = click.option("--tenant", metavar="T", help="Only this tenant's records.")


@click.command()
@click.option(
    "--from-logs",
    is_flag=True,
    help="First publish the memory events of the conversations' logs to the topic again.",
)
@data_option
def rebuild(from_logs: bool, data: Path | None) -> None:
    """Build a new memory store from the topic beside the live one, then switch to it in one step.

    Readers keep using the live store; a gateway switches within seconds. If the command is
    interrupted, the live store stays: run it again. --from-logs fills a topic that is lost or lacks
    records; records that it already has count once. The last line has the digest over all scopes.
    """

    async def work(settings: Settings, control: Control, keys: KeyRing) -> Built:
        require_store(settings)
        if not from_logs and (lost := await lost_memories(settings)):
            raise TopicMismatch(lost)
        if from_logs:
            count = await _republish(settings, control, keys)
            say(f"published again: {count} records")
        tune_gc()
        with metered("memories", "records") as meter:
            return await rebuild_store(settings, keys, meter)

    built = _on_keys(data, work)
    click.echo(
        f"rebuilt: {built.records} records, {len(built.digests)} scopes, {built.seconds:.1f} s,"
        f" {built.records / max(built.seconds, 1e-3):.0f} records/s, digest {built.digest}"
    )


async def _republish(settings: Settings, control: Control, keys: KeyRing) -> int:
    generation = control.state.live_generation
    log = KafkaLog(settings, generation.partitions, seals=keys)
    publisher = Publisher(settings, log)
    try:
        await check_whole(log, settings.topic("events"), accept=settings.accept_truncated_log)
        with metered("logs") as meter:
            return await republish(log, control.state.rules(generation), publisher, meter)
    finally:
        await publisher.stop()
        await log.stop()


@click.command()
@_tenant
@data_option
@click.pass_context
def verify(ctx: click.Context, tenant: str | None, data: Path | None) -> None:
    """Compare the live store with a new one, filled from the topic's beginning, scope by scope,
    while traffic runs.

    It prints a line for each scope that differs. The last line is `verified: N, differing: N`, in
    scopes. Exit 1 if one differs: `threadfold memories rebuild` repairs it.
    """

    async def work(settings: Settings, control: Control, keys: KeyRing) -> StoreReport:
        _check_known(control, tenant)
        if lost := await lost_memories(settings):
            say(lost)
        with metered("verify", "records") as meter:
            return await verify_store(settings, keys, tenant, meter)

    report = _on_keys(data, work)
    for scope in report.differing:
        click.echo(f"differs: {_shown(scope)}")
    click.echo(f"verified: {report.verified}, differing: {len(report.differing)}")
    ctx.exit(1 if report.differing else 0)


@click.command()
@click.option(
    "--before",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="A store's file [default: the live store].",
)
@click.option(
    "--after",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Another store's file [default: a new store, filled from the topic].",
)
@click.option(
    "--rules",
    is_flag=True,
    help="Compare the extracted records with those that this release's rules find in the logs.",
)
@click.option(
    "--model",
    metavar="NAME",
    help="The same with records that this endpoint of `summarizers` finds in some conversations.",
)
@click.option(
    "--conversation",
    "conversations",
    multiple=True,
    metavar="C",
    help="With --model: a conversation of the tenant; may be repeated.",
)
@_tenant
@data_option
@click.pass_context
def diff(
    ctx: click.Context,
    before: Path | None,
    after: Path | None,
    rules: bool,
    model: str | None,
    conversations: tuple[str, ...],
    tenant: str | None,
    data: Path | None,
) -> None:
    """Compare two stores record by record.

    It prints a line of JSON for each record that only one store has (`removed`, `added`) or that
    differs (`changed`, with its fields). The last line counts them. Exit 1 if there are any.
    --rules and --model write nothing: they show what another extraction of the same logs would
    change. The cost of a model here counts against no tenant's budget.
    """
    given = {"--rules": rules, "--model": model is not None, "--after": after is not None}
    if sum(given.values()) > 1:
        raise click.UsageError(f"{' and '.join(filter(given.get, given))} exclude each other")
    if (model is not None) != bool(conversations) or (model is not None and tenant is None):
        raise click.UsageError("--model needs --tenant and --conversation, and --conversation it")
    counts = {"removed": 0, "added": 0, "changed": 0}

    async def work(settings: Settings, control: Control, keys: KeyRing) -> list[Difference]:
        _check_known(control, tenant)
        if rules or model is not None:
            async with _asked(settings, model, tenant, conversations) as asked:
                return await _extraction_differences(settings, control, keys, before, tenant, asked)
        with metered("diff", "records") as meter:
            return await differing_records(settings, keys, before, after, tenant, meter)

    for found in _on_keys(data, work):
        counts[found.how] += 1
        print_json(found.document())
    click.echo(", ".join(f"{how}: {count}" for how, count in counts.items()))
    ctx.exit(1 if any(counts.values()) else 0)


@asynccontextmanager
async def _asked(
    settings: Settings, model: str | None, tenant: str | None, conversations: Collection[str]
) -> AsyncIterator[ByModel | None]:
    """The model that finds, where one is named; raises InvalidSettings, InvalidName."""
    if model is None or tenant is None:
        yield None
        return
    if model not in settings.summarizers:
        known = ", ".join(sorted(settings.summarizers)) or "none"
        raise InvalidSettings(f"summarizers has no endpoint {model!r}: it has {known}")
    keys = frozenset(make_key(tenant, name) for name in conversations)
    summarizers = Summarizers(settings)
    try:
        extraction = SpanExtraction(summarizers.models, 2 * settings.summary_time_cap)
        yield ByModel(extraction, model, keys)
    finally:
        await summarizers.close()


async def _extraction_differences(
    settings: Settings,
    control: Control,
    keys: KeyRing,
    before: Path | None,
    tenant: str | None,
    model: ByModel | None,
) -> list[Difference]:
    only = None if model is None else {key.conversation for key in model.conversations}
    async with AsyncExitStack() as opened:
        if before is None:
            one: MemoryStore = await opened.enter_async_context(live_copy(settings))
        else:
            one = opened.enter_context(closing(await copy_of(before)))
        other = opened.enter_context(closing(SqliteMemories()))
        generation = control.state.live_generation
        log = KafkaLog(settings, generation.partitions, seals=keys)
        try:
            with metered("logs") as meter:
                await extracted(log, control.state.rules(generation), other, meter, model)
        finally:
            await log.stop()
        return await asyncio.to_thread(
            extraction_differences, one, other, tenant, only, erased_by(keys)
        )


def _on_keys(data: Path | None, work: Callable[[Settings, Control, KeyRing], Awaitable[T]]) -> T:
    """The result of ``work`` with the control topic and the data keys."""

    async def go(settings: Settings) -> T:
        async with open_control(settings) as control:
            keys = KeyRing(settings, encrypting(control))
            try:
                await keys.start()
                return await work(settings, control, keys)
            finally:
                await keys.stop()

    return run(go(load_settings(data)))


def _check_known(control: Control, tenant: str | None) -> None:
    if tenant is not None:
        control.state.tenant(tenant)  # raises UnknownTenant


def _shown(scope: tuple[str | None, ...]) -> str:
    names = ("tenant", "user", "channel", "conversation")
    return " ".join(
        f"{name}={value}" for name, value in zip(names, scope, strict=True) if value is not None
    )
