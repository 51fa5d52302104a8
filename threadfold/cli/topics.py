"""``topics create|check``: the topics with the settings that correctness needs."""

from __future__ import annotations

from pathlib import Path

import click

from streams.log.topics import check_topics, create_topics, partition_count
from streams.settings.settings import Settings
from threadfold.cli.common import data_option, load_settings, open_control, run
from threadfold.cli.whole_help import Group


@click.group(cls=Group)
def topics() -> None:
    """Create or check the topics."""


@topics.command()
@data_option
@click.pass_context
def create(ctx: click.Context, data: Path | None) -> None:
    """Create the missing topics and the first generation. Existing topics stay as they are."""
    made, wrong = run(prepare(load_settings(data)))
    for name in made:
        click.echo(f"created {name}")
    ctx.exit(_report(wrong))


@topics.command()
@data_option
@click.pass_context
def check(ctx: click.Context, data: Path | None) -> None:
    """Check that every topic exists with the settings it needs; exit 1 if not."""
    ctx.exit(_report(run(check_topics(load_settings(data)))))


async def prepare(settings: Settings) -> tuple[list[str], list[str]]:
    """Create missing topics and the first generation; returns the new topics and all faults."""
    made, wrong = await create_topics(settings), await check_topics(settings)
    async with open_control(settings) as control:
        await control.ensure_generation(await partition_count(settings))
    return made, wrong


def _report(wrong: list[str]) -> int:
    for sentence in wrong:
        click.echo(f"wrong: {sentence}")
    if not wrong:
        click.echo("topics: ok")
    return 1 if wrong else 0
