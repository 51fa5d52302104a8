"""``verify``: compares the windows in Redis with the log."""

from __future__ import annotations

from pathlib import Path

import click

from streams.log.retention import check_whole
from streams.maintenance.verify import VerifyReport
from streams.maintenance.verify import verify as verify_windows
from streams.recovery.callable_failures import failed_callables, failure_lines
from streams.runtime.tune_gc import tune_gc
from streams.settings.settings import Settings
from streams.stack import open_stack
from threadfold.cli.common import data_option, load_settings, open_snapshots, run
from threadfold.cli.progress import metered


@click.command()
@click.option(
    "--sample",
    type=click.IntRange(min=1),
    metavar="N",
    help="Compare N conversations chosen at random.",
)
@click.option("--all", "everything", is_flag=True, help="Compare every conversation (the default).")
@click.option("--deep", is_flag=True, help="Fold from the first event, without snapshots.")
@click.option(
    "--repair",
    is_flag=True,
    help="Write windows that differ again, folded from the first event, and compare them again.",
)
@data_option
@click.pass_context
def verify(
    ctx: click.Context,
    sample: int | None,
    everything: bool,
    deep: bool,
    repair: bool,
    data: Path | None,
) -> None:
    """Fold windows from the log and compare them with Redis, byte for byte, while traffic runs.

    It folds from the latest snapshots, with --deep from the first event. It prints a line for each
    difference: conversation, position, what differs. The last line is `verified: N, differing: N`,
    as before any repair. Exit 1 if a window differed, repaired or not. Run it again to see whether
    all agree.
    """
    if sample is not None and everything:
        raise click.UsageError("--sample and --all exclude each other")
    report = run(_verify(load_settings(data), sample, deep, repair))
    for line in failure_lines(failed_callables(report.failures)):
        click.echo(line)
    for found in report.differences:
        click.echo(f"differs: {found.key} at {found.position or '-'}: {found.what}")
    failed = set(map(str, report.failures))
    for name in report.differing if repair else ():
        why = " (a callable of its policy failed here)" if name in failed else ""
        if name in report.kept:
            why = " (the log has lost events of it: its window is all there is)"
        done = name in report.repaired
        click.echo(f"repaired: {name}" if done else f"not repaired: {name}{why}")
    click.echo(f"verified: {report.verified}, differing: {len(report.differing)}")
    ctx.exit(1 if report.differing else 0)


async def _verify(settings: Settings, sample: int | None, deep: bool, repair: bool) -> VerifyReport:
    tune_gc()
    async with open_stack(settings) as stack:
        await check_whole(stack.log, settings.topic("events"), accept=settings.accept_truncated_log)
        async with open_snapshots(stack) as snapshots:
            with metered("verify") as meter:
                return await verify_windows(
                    stack.log,
                    stack.store,
                    stack.generation,
                    stack.control.state.rules(stack.generation),
                    sample=sample,
                    progress=meter,
                    snapshots=snapshots,
                    deep=deep,
                    repair=repair,
                )
