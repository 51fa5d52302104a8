"""``append``: appends events or OpenAI-format messages to one conversation."""

from __future__ import annotations

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
    lines = [
        (number, flat_event(parse_object(line, f"line {number}"), f"line {number}"))
        for number, line in open_lines(file)
    ]
    if not lines:
        say("nothing to append: the input is empty")
        return
    run(_append(settings, tenant, conversation, lines))


async def _append(
    settings: Settings, tenant: str, conversation: str, lines: list[tuple[int, dict[str, Any]]]
) -> None:
    async with ConversationService(settings) as backend:
        drafter = Drafter(
            tenant, backend.live_rules(), backend.log.partitions, settings.max_event_bytes
        )
        drafts = [_draft(drafter, conversation, number, flat) for number, flat in lines]
        await backend.check_pinned(_joined(drafts))
        await ensure_tenant(backend.control, tenant)
        for i in range(0, len(drafts), LIST):
            try:
                positions = await append_drafts(backend.log, _joined(drafts[i : i + LIST]))
            except KafkaUnavailable as error:
                done = (
                    f"{i} lines are appended (see the printed positions); from line"
                    f" {lines[i][0]} on it is unknown: "
                    if i
                    else ""
                )
                raise KafkaUnavailable(f"{done}{error}") from error
            for position in positions:
                print_line(str(position))
            flush()


def _draft(drafter: Drafter, conversation: str, number: int, flat: dict[str, Any]) -> Drafts:
    """Check one line. An error names its number in the file, blank lines counted."""
    try:
        drafts = drafter.drafts([(conversation, flat)], "line", False, None)
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
