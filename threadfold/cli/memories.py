"""``memories``: saves, finds, shows and deletes records of the long-term memory."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import TypeVar

import click

from projections.events.memories import MEMORY_TYPES, MemorySaved
from projections.events.times import parse_micros
from projections.names import check_name
from streams.memory.store import Filter
from threadfold.cli.common import data_option, ensure_tenant, not_empty, on_service, print_json
from threadfold.cli.memory_stores import diff, rebuild, verify
from threadfold.cli.whole_help import Group
from threadfold.service.conversations import ConversationService
from threadfold.service.memories import KINDS, MAX_LISTED, Memories
from threadfold.service.question import Question
from threadfold.service.recall_answers import hit_document
from threadfold.service.whose import Whose

T = TypeVar("T")
_user = click.option("--user", metavar="U", callback=not_empty, help="Whose memory.")
_channel = click.option("--channel", metavar="C", callback=not_empty, help="Of which channel.")
_as_of = click.option("--as-of", metavar="TIME", help="Use what was known at this time (RFC 3339).")
_limit = click.option(
    "--limit", type=click.IntRange(1, MAX_LISTED), default=10, show_default=True, metavar="N"
)


@click.group(cls=Group)
def memories() -> None:
    """Save, find, show and delete records of the long-term memory. A worker must run to save.

    Each command first reads the topic of memories into a temporary store. It starts from a copy of
    the gateway's store if the setting memory_store names its folder.
    """


@memories.command()
@click.argument("tenant")
@click.argument("text")
@click.option("--type", "kind", type=click.Choice(MEMORY_TYPES), default="fact", show_default=True)
@_user
@_channel
@click.option(
    "--conversation", metavar="C", callback=not_empty, help="The conversation that taught it."
)
@click.option("--topic", metavar="T", callback=not_empty, help="Revise the record of this topic.")
@data_option
def save(
    tenant: str,
    text: str,
    kind: str,
    user: str | None,
    channel: str | None,
    conversation: str | None,
    topic: str | None,
    data: Path | None,
) -> None:
    """Save TEXT as a record and print its id and status, once a search finds it."""
    record = MemorySaved(
        memory_id="",
        memory_type=kind,
        text=text,
        normalized_text="",
        trust="user",
        topic=topic,
    )
    whose = Whose(tenant, user, channel, conversation)
    items = [(whose, record)]
    for saved in _on_memories(tenant, data, lambda m: m.save(items, _free, wait=True), new=True):
        print_json(saved)


@memories.command()
@click.argument("tenant")
@click.argument("query")
@_user
@_channel
@_as_of
@_limit
@data_option
def search(
    tenant: str,
    query: str,
    user: str | None,
    channel: str | None,
    as_of: str | None,
    limit: int,
    data: Path | None,
) -> None:
    """Print the records, skills and turns that match QUERY, best first, one on each line."""
    question = Question(Filter(tenant, user, channel, as_of=_time(as_of)), query, limit=limit)
    answer = _on_memories(tenant, data, lambda m: m.ask(question))
    for one in answer.found:
        print_json(hit_document(one, explain=True))


@memories.command("list")
@click.argument("tenant")
@_user
@_channel
@_limit
@data_option
def list_(
    tenant: str, user: str | None, channel: str | None, limit: int, data: Path | None
) -> None:
    """Print the newest records, one on each line."""
    only = Filter(tenant, user, channel, kinds=KINDS)
    for record in _on_memories(tenant, data, lambda m: m.page(only, None, limit)).records:
        print_json(record.document())


@memories.command()
@click.argument("tenant")
@click.argument("memory_id", metavar="ID")
@_as_of
@data_option
def show(tenant: str, memory_id: str, as_of: str | None, data: Path | None) -> None:
    """Print one record, even if it is superseded."""
    at = _time(as_of)
    found = _on_memories(tenant, data, lambda m: m.get(Whose(tenant), memory_id, at))
    print_json(found.document(), pretty=True)


@memories.command()
@click.argument("tenant")
@click.argument("memory_id", metavar="ID")
@click.option("--before", type=click.IntRange(0, 100), default=5, show_default=True, metavar="N")
@click.option("--after", type=click.IntRange(0, 100), default=5, show_default=True, metavar="N")
@data_option
def timeline(tenant: str, memory_id: str, before: int, after: int, data: Path | None) -> None:
    """Print a record and its neighbours in time, oldest first, one on each line."""
    found, _ = _on_memories(
        tenant, data, lambda m: m.timeline(Whose(tenant), memory_id, before, after)
    )
    for record in found:
        print_json(record.document())


@memories.command()
@click.argument("tenant")
@click.argument("memory_id", metavar="ID")
@click.option("--hard", is_flag=True, help="Delete its text from every store, for good.")
@data_option
def delete(tenant: str, memory_id: str, hard: bool, data: Path | None) -> None:
    """Delete a record or a skill and print it as it was."""
    gone = _on_memories(
        tenant, data, lambda m: m.delete(Whose(tenant), memory_id, _free, hard=hard)
    )
    print_json(gone.document())


@memories.command()
@click.argument("tenant")
@_user
@_channel
@data_option
def stats(tenant: str, user: str | None, channel: str | None, data: Path | None) -> None:
    """Print how many records there are, by type."""
    print_json(_on_memories(tenant, data, lambda m: m.stats(Whose(tenant, user, channel))))


for command in (rebuild, verify, diff):
    memories.add_command(command)


def _on_memories(
    tenant: str,
    data: Path | None,
    work: Callable[[Memories], Awaitable[T]],
    *,
    new: bool = False,
) -> T:
    """The result of ``work`` on the memories; ``new``: of a tenant that may have to be created.

    Raises:
        UnknownTenant: there is no such tenant.
    """
    check_name("tenant", tenant)

    async def on(service: ConversationService) -> T:
        if new:
            await ensure_tenant(service.control, tenant)
        else:
            service.control.state.tenant(tenant)
        opened = Memories(service)
        try:
            return await work(opened)
        finally:
            await opened.stop()

    return on_service(data, tenant, on)


def _time(text: str | None) -> int | None:
    if text is None:
        return None
    found = parse_micros(text)
    if found is None:
        raise click.BadParameter(f"{text[:40]!r} is not a time: write it like 2026-01-31T12:00:00Z")
    return found


def _free(appended: Sequence[object]) -> None:
    """Charge nothing: commands have no quota."""
