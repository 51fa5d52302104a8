"""``topics create|check|copy|drop``: the topics with the settings that correctness needs, and with
another number of partitions.
"""

from __future__ import annotations

from pathlib import Path

import click

from streams.log.topics import check_topics, create_topics, partition_count
from streams.maintenance.repartition import copy_topics, drop_topics
from streams.settings.settings import Settings
from threadfold.cli.common import data_option, load_settings, open_control, run
from threadfold.cli.progress import metered
from threadfold.cli.whole_help import Group


@click.group(cls=Group)
def topics() -> None:
    """Create or check the topics, or copy their log into more partitions."""


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


@topics.command("copy")
@click.option("--to", "prefix", required=True, metavar="PREFIX", help="The new topics' prefix.")
@click.option(
    "--partitions",
    type=click.IntRange(1, 10_000),
    required=True,
    metavar="N",
    help="The new topics' partitions.",
)
@data_option
def copy_(prefix: str, partitions: int, data: Path | None) -> None:
    """Copy the log into topics of another prefix, with N partitions, and check the result.

    Stop the workers first. Appends are refused (503) from the start of the copy on, even after its
    end: then start workers and gateways with THREADFOLD_TOPIC_PREFIX=PREFIX. `threadfold
    maintenance off` goes back to the old topics. If the copy is interrupted, repeat it: it
    continues.
    """
    settings = load_settings(data)
    with metered("copy", "records") as meter:
        report = run(copy_topics(settings, prefix, partitions, meter))
    if report.resumed:
        click.echo(f"from an earlier attempt: {report.resumed} events")
    if report.strays:
        click.echo(f"not copied: {report.strays} records that belong to no conversation")
    click.echo(f"copied: {report.events} events, in the same order, into {partitions} partitions")
    click.echo(f"start workers and gateways with THREADFOLD_TOPIC_PREFIX={prefix}")


@topics.command()
@click.argument("prefix")
@data_option
def drop(prefix: str, data: Path | None) -> None:
    """Delete the topics of PREFIX and their data in Redis. PREFIX must be an unfinished copy, or a
    log that `topics copy` has copied elsewhere.
    """
    for name in run(drop_topics(load_settings(data), prefix)):
        click.echo(f"deleted {name}")


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
