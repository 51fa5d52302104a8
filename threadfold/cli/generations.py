"""``rebuild`` and ``generations list|switch|drop``: complete sets of windows under one version of
the rules.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from streams.control.follower import Generation, State
from streams.control.generations import candidate, drop
from streams.rebuild.build import left_to_fold
from streams.rebuild.preview import SAMPLE, Preview
from streams.rebuild.rebuild import RebuildReport
from streams.rebuild.rebuild import rebuild as rebuild_windows
from streams.runtime.tune_gc import tune_gc
from streams.settings.settings import Settings, read_policy
from streams.stack import Stack, reach
from threadfold.cli.common import (
    Finite,
    data_option,
    flush,
    load_settings,
    open_control,
    print_json,
    print_line,
    run,
    say,
)
from threadfold.cli.policy_report import policy_report
from threadfold.cli.progress import Meter, metered

WORTH_A_PROCESS = 50_000
"""Records from which on another process folds them sooner than it starts."""


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a rebuild was asked for."""

    policy: dict[str, Any] | None = None
    number: int | None = None
    switch: bool = False
    jobs: int | None = None
    dry_run: bool = False
    sample: int = SAMPLE
    price: float | None = None
    as_json: bool = False


@click.command()
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The deployment's new policy [default: the live one's].",
)
@click.option("--switch", is_flag=True, help="Make the new generation live when it is complete.")
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that fold [default: processors, for a log worth it].",
)
@click.option(
    "--dry-run", is_flag=True, help="Build nothing: only report what the policy would change."
)
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=SAMPLE,
    show_default=True,
    metavar="N",
    help="Conversations compared; 0: none.",
)
@click.option(
    "--price",
    type=Finite(min=0),
    metavar="X",
    help="What a million tokens cost, for the report's estimate.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@data_option
def rebuild(
    policy: Path | None,
    switch: bool,
    jobs: int | None,
    dry_run: bool,
    sample: int,
    price: float | None,
    as_json: bool,
    data: Path | None,
) -> None:
    """Fold the whole log into a new generation of windows beside the live one, which serves on.

    Under another policy it first reports what that changes, by conversations folded under both. A
    rebuild that was cut off goes on where it was when it is started again with the same policy.
    """
    if dry_run and (switch or not sample):
        raise click.UsageError(
            "--dry-run builds nothing, and compares: leave out --switch, and --sample 0"
        )
    asked = _Asked(
        read_policy(policy) if policy else None, None, switch, jobs, dry_run, sample, price, as_json
    )
    _run(_rebuild(load_settings(data), asked))


def _run(work: Coroutine[Any, Any, None]) -> None:
    """Run it; SIGTERM and Ctrl-C end it in order."""

    async def interruptible() -> None:
        task = asyncio.current_task()

        def end() -> None:
            _Told.to_end = True
            if task is not None:
                task.cancel()

        _Told.to_end = False
        if os.name == "posix":
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, end)
        await work

    try:
        run(interruptible())
    except (asyncio.CancelledError, _Told):
        raise click.Abort from None


class _Told(Exception):
    """The command was told to end: Python 3.11's wait_for, which aiokafka uses, can swallow a
    cancellation, so that is looked at, too.
    """

    to_end = False


async def _rebuild(settings: Settings, asked: _Asked) -> None:
    tune_gc()
    async with reach(settings) as stack:
        if asked.dry_run:
            _reported(
                await _report(stack, candidate(stack.control.state, asked.policy)[0], asked),
                None,
                asked,
            )
            return
        report = await _build(stack, asked, asked.number, switch=asked.switch and not asked.sample)
        document = None
        if asked.sample and not report.live:
            document = await _report(
                stack, stack.control.state.generations[report.generation], asked
            )
        if not asked.as_json:
            _reported(document, None, asked)
        if asked.switch and not report.live:
            # Only now, so that whoever reads the report can still end the command.
            last = await _build(stack, asked, report.generation, switch=True)
            report = replace(last, events=report.events + last.events, resumed=report.resumed)
    if asked.as_json:
        _reported(document, report, asked)
    else:
        again = " (went on with one that was begun)" if report.resumed else ""
        state = (
            "live"
            if report.live
            else f"ready: `threadfold generations switch {report.generation}` makes it live"
        )
        click.echo(f"generation {report.generation}{again}: {report.events} events folded, {state}")


async def _build(stack: Stack, asked: _Asked, number: int | None, *, switch: bool) -> RebuildReport:
    jobs = await _jobs(stack, asked, number)
    with metered("rebuild") as meter:
        return await rebuild_windows(
            stack.settings,
            stack.control,
            stack.log,
            stack.store,
            policy=asked.policy,
            number=number,
            switch=switch,
            jobs=jobs,
            progress=_with_estimate(meter),
        )


def _reported(document: dict[str, Any] | None, report: RebuildReport | None, asked: _Asked) -> None:
    """Print what is known: as one document, or the report's lines."""
    if asked.as_json:
        print_json(
            {**({"generation": None} if report is None else asdict(report)), "report": document}
        )
    elif document is not None:
        for line in policy_report(document):
            print_line(line)
        flush()
    elif asked.dry_run:
        say("nothing to compare: these are the live generation's rules")


async def _report(stack: Stack, generation: Generation, asked: _Asked) -> dict[str, Any] | None:
    """What the generation's rules change for a sample of conversations; None where they are the
    live generation's.
    """
    state = stack.control.state
    before, after = state.rules(state.live_generation), state.rules(generation)
    if (before.deployment, before.tenants) == (after.deployment, after.tenants):
        return None
    preview = Preview(stack.control, stack.log, before, after, sample=asked.sample)
    with metered("compare") as meter:
        await preview.run(_with_estimate(meter))
    return {"live": state.live, **preview.document(asked.price)}


async def _jobs(stack: Stack, asked: _Asked, number: int | None) -> int:
    """How many processes fold: as many as were asked for, else as there are processors, but each
    with enough to do.
    """
    if asked.jobs is not None:
        return min(asked.jobs, stack.log.partitions)
    number = candidate(stack.control.state, asked.policy)[0].number if number is None else number
    left = sum((await left_to_fold(stack.control, stack.log, stack.store, number)).values())
    return max(1, min(_processors(), stack.log.partitions, left // WORTH_A_PROCESS))


def _processors() -> int:
    """Processors this process may run on."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _with_estimate(meter: Meter) -> Callable[[int, int], None]:
    """The meter, with the time that is left at the rate so far."""

    def tell(done: int, total: int) -> None:
        if _Told.to_end:
            raise _Told
        left = (total - done) / max(1.0, meter.rate(done))
        meter(done, total, f"about {_time(left)} left" if done and done < total else "")

    return tell


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@click.group()
def generations() -> None:
    """List, switch to or drop generations."""


@generations.command("list")
@data_option
def list_(data: Path | None) -> None:
    """Print one generation a line: number, state, partitions, the keys its policy sets."""

    async def read() -> State:
        async with open_control(load_settings(data)) as control:
            return control.state

    state = run(read())
    for number, generation in sorted(state.generations.items()):
        shown = "live" if number == state.live else generation.state
        policy = ",".join(sorted(generation.policy)) or "-"
        click.echo(f"{number}\t{shown}\tpartitions: {generation.partitions}\tpolicy: {policy}")


@generations.command("switch")
@click.argument("number", type=click.IntRange(min=1))
@click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="Processes that fold [default: processors, for a log worth it].",
)
@data_option
def switch(number: int, jobs: int | None, data: Path | None) -> None:
    """Make a generation live that is there: a new one that is ready, or the old one again.

    It is brought up to where the live one is first, under its own rules; readers see the switch and
    nothing before.
    """
    _run(_rebuild(load_settings(data), _Asked(number=number, switch=True, jobs=jobs, sample=0)))


@generations.command("drop")
@click.argument("number", type=click.IntRange(min=1))
@data_option
def drop_(number: int, data: Path | None) -> None:
    """Delete a generation's windows from Redis, and its record. The live one cannot be dropped; the
    log is not touched.
    """
    keys = run(_drop(load_settings(data), number))
    click.echo(f"dropped generation {number}: {keys} keys")


async def _drop(settings: Settings, number: int) -> int:
    async with reach(settings) as stack:
        return await drop(stack.control, stack.store, number)
