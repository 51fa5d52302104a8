"""``verify``: do the windows in Redis say what the log says?"""

from __future__ import annotations

from pathlib import Path

import click

from streams.collector import rest_collector
from streams.settings import Settings
from streams.truncation import check_whole
from streams.verify import VerifyReport
from streams.verify import verify as verify_windows
from threadfold.cli.common import data_option, load_settings, run
from threadfold.cli.progress import metered
from threadfold.cli.reach import reach


@click.command()
@click.option("--sample", type=click.IntRange(min=1), metavar="N", help="Compare N conversations chosen at random.")
@click.option("--all", "everything", is_flag=True, help="Compare every conversation (the default).")
@click.option("--deep", is_flag=True, help="Fold from the first event on, trusting no snapshot (what this release always does).")
@data_option
@click.pass_context
def verify(ctx: click.Context, sample: int | None, everything: bool, deep: bool, data: Path | None) -> None:
    """Fold windows from the log and compare them with Redis, byte for byte, while traffic runs.

    Prints one line for each conversation that differs; the last line is `verified: N, differing: N`. Exit 1 if any differs.
    """
    if sample is not None and everything:
        raise click.UsageError("--sample and --all exclude each other")
    report = run(_verify(load_settings(data), sample))
    for name in report.differing:
        click.echo(f"differs: {name}")
    click.echo(f"verified: {report.verified}, differing: {len(report.differing)}")
    ctx.exit(1 if report.differing else 0)


async def _verify(settings: Settings, sample: int | None) -> VerifyReport:
    rest_collector()
    async with reach(settings) as stack:
        await check_whole(stack.log, settings.topic("events"), accept=settings.accept_truncated_log)
        with metered("verify") as meter:
            rules = stack.control.state.rules(stack.generation)
            return await verify_windows(stack.log, stack.store, stack.generation, rules, sample=sample, progress=meter)
