"""``append``: appends events or OpenAI-format messages to one conversation."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from projections.errors import KafkaUnavailable, ThreadfoldError
from projections.names import make_key
from streams.settings.settings import Settings
from threadfold.cli.common import (
    data_option,
    ensure_tenant,
    flush,
    load_settings,
    print_line,
    run,
    say,
)
from threadfold.cli.inputs import flat_event, open_lines, parse_object
from threadfold.service.conversations import ConversationService
from threadfold.service.drafts import Drafter
from threadfold.service.spill import Drafts, append_drafts

LIST = 500
"""Events appended at once."""

Line = tuple[int, bytes]
"""A line and its number in the file."""


@click.command()
@click.argument("tenant")
@click.argument("conversation")
@click.argument("file", required=False, type=click.Path(path_type=Path), metavar="[FILE|-]")
@data_option
def append(tenant: str, conversation: str, file: Path | None, data: Path | None) -> None:
    """Append JSON lines to a conversation and print one position a line, in order.

    A line is a flat event (`{"type": "message", "role": "user", ...}`) or an OpenAI-format message
    (`{"role": "user", ...}`). The command reads FILE, or stdin. It checks all lines before it
    appends any. It skips blank lines and accepts an empty input.
    """
    make_key(tenant, conversation)
    settings = load_settings(data)
    lines = list(open_lines(file))
    for line in lines:
        _flat(line)
    if not lines:
        say("nothing to append: the input is empty")
        return
    run(_append(settings, tenant, conversation, lines))


async def _append(settings: Settings, tenant: str, conversation: str, lines: list[Line]) -> None:
    async with ConversationService(settings) as backend:
        await _check(backend, tenant, conversation, lines)
        await ensure_tenant(backend.control, tenant)
        done = 0
        for drafts in _drafts(backend, tenant, conversation, lines):
            try:
                positions = await append_drafts(backend.log, drafts)
            except KafkaUnavailable as error:
                before = (
                    f"{done} lines are appended (see the printed positions); from line"
                    f" {lines[done][0]} on it is unknown: "
                    if done
                    else ""
                )
                raise KafkaUnavailable(f"{before}{error}") from error
            for position in positions:
                print_line(str(position))
            flush()
            done += len(positions)


async def _check(
    backend: ConversationService, tenant: str, conversation: str, lines: list[Line]
) -> None:
    """Check all lines. Their drafts take many times their bytes: none are kept."""
    excess = [
        each
        for drafts in _drafts(backend, tenant, conversation, lines)
        for each in drafts.pinned_excess
    ]
    await backend.check_pinned(Drafts([], [], [], pinned_excess=excess))


def _drafts(
    backend: ConversationService, tenant: str, conversation: str, lines: list[Line]
) -> Iterator[Drafts]:
    """The drafts of the lines, :data:`LIST` lines at a time."""
    rules, partitions = backend.live_rules(), backend.log.partitions
    drafter = Drafter(tenant, rules, partitions, backend.settings.max_event_bytes)
    for i in range(0, len(lines), LIST):
        yield _joined([_draft(drafter, conversation, line) for line in lines[i : i + LIST]])


def _flat(line: Line) -> dict[str, Any]:
    """The event of a line, as far as it can be read without its conversation."""
    number, text = line
    return flat_event(parse_object(text, f"line {number}"), f"line {number}")


def _draft(drafter: Drafter, conversation: str, line: Line) -> Drafts:
    """Check one line. An error names its number in the file, blank lines counted."""
    number, _ = line
    try:
        drafts = drafter.drafts([(conversation, _flat(line))], "line", False, None)
    except ThreadfoldError as error:
        raise type(error)(str(error).replace("line 1:", f"line {number}:", 1)) from None
    excess = [each._replace(where=f"line {number}") for each in drafts.pinned_excess]
    return drafts._replace(pinned_excess=excess)


def _joined(lists: list[Drafts]) -> Drafts:
    """Lists of one event each as one list."""
    spilled = [each._replace(at=i) for i, d in enumerate(lists) for each in d.spilled]
    excess = [each for d in lists for each in d.pinned_excess]
    records, tokens = [d.records[0] for d in lists], [d.tokens[0] for d in lists]
    return Drafts(records, spilled, tokens, pinned_excess=excess)
