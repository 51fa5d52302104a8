"""``rebuild`` and ``generations list|switch|drop``: sets of windows, each under its own rules."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable, Coroutine
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import click

from streams.control.generations import candidate, drop, known_generation
from streams.control.state import Generation, State
from streams.rebuild.build import worthwhile_jobs
from streams.rebuild.preview import SAMPLE, Preview
from streams.rebuild.rebuild import Loss, RebuildReport, WouldLose
from streams.rebuild.rebuild import rebuild as rebuild_windows
from streams.runtime.tune_gc import tune_gc
from streams.settings.policy_file import read_policy
from streams.settings.settings import Settings
from streams.stack import Stack, open_stack
from threadfold.cli.common import (
    Finite,
    data_option,
    flush,
    load_settings,
    print_json,
    print_line,
    read_state,
    run,
    say,
)
from threadfold.cli.policy_report import policy_report
from threadfold.cli.progress import Meter, metered
from threadfold.cli.whole_help import Group

NAMED = 20
"""Tenants that a line names at most."""


@dataclass(frozen=True, slots=True)
class _Options:
    """The options of a rebuild."""

    policy: dict[str, Any] | None = None
    number: int | None = None
    switch: bool = False
    accept_loss: bool = False
    jobs: int | None = None
    dry_run: bool = False
    sample: int = SAMPLE
    price: float | None = None
    as_json: bool = False


_jobs_option = click.option(
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="How many processes fold [default: one per processor, for a long log].",
)


_accept_loss_option = click.option(
    "--accept-loss",
    is_flag=True,
    help="Switch even if conversations lose the content of their summaries.",
)


@click.command()
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The deployment's new policy [default: the live generation's].",
)
@click.option("--switch", is_flag=True, help="Make the new generation live once it is complete.")
@_accept_loss_option
@_jobs_option
@click.option("--dry-run", is_flag=True, help="Only report what the policy would change.")
@click.option(
    "--sample",
    type=click.IntRange(min=0),
    default=SAMPLE,
    show_default=True,
    metavar="N",
    help="How many conversations to compare.",
)
@click.option(
    "--price",
    type=Finite(min=0),
    metavar="X",
    help="The price of a million tokens, for the report's estimate.",
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document.")
@data_option
def rebuild(policy: Path | None, data: Path | None, **given: Any) -> None:
    """Fold the whole log into a new generation of windows. The live one keeps serving.

    With another policy it also folds a sample of conversations under both policies and reports the
    differences. After an interruption, run it again with the same policy: it continues.
    """
    options = _Options(read_policy(policy) if policy else None, **given)
    if options.dry_run and (options.switch or not options.sample):
        raise click.UsageError("--dry-run only compares: leave out --switch and --sample 0")
    if options.accept_loss and not options.switch:
        raise click.UsageError("--accept-loss is of a switch: give --switch, too")
    run_interruptibly(_rebuild(load_settings(data), options))


def run_interruptibly(work: Coroutine[Any, Any, None]) -> None:
    """Run work that SIGTERM and Ctrl-C end in order."""

    async def interruptible() -> None:
        task = asyncio.current_task()

        def end() -> None:
            _Interrupted.requested = True
            if task is not None:
                task.cancel()

        _Interrupted.requested = False
        if os.name == "posix":
            for number in (signal.SIGTERM, signal.SIGINT):
                asyncio.get_running_loop().add_signal_handler(number, end)
        await work

    try:
        run(interruptible())
    except (asyncio.CancelledError, _Interrupted):
        say("interrupted: run the same command again, it goes on from here")
        raise click.Abort from None


class _Interrupted(Exception):
    """A signal requested the end. Needed beside the cancellation: Python 3.11's wait_for, which
    aiokafka uses, can swallow one.
    """

    requested = False


async def _rebuild(settings: Settings, options: _Options) -> None:
    tune_gc()
    async with open_stack(settings) as stack:
        if options.dry_run:
            generation = candidate(stack.control.state, options.policy)[0]
            _say_unsealed(stack.control.state, generation)
            _print_result(await _report(stack, generation, options), None, options)
            return
        report = await _build(
            stack, options, options.number, switch=options.switch and not options.sample
        )
        document = None
        if options.sample and not report.live:
            document = await _report(
                stack, stack.control.state.generations[report.generation], options
            )
        if not options.as_json:
            _print_result(document, None, options)
        if options.switch and not report.live:
            # Only now, so that a reader of the report can still end the command.
            last = await _build(stack, options, report.generation, switch=True)
            report = replace(last, events=report.events + last.events, resumed=report.resumed)
    if options.as_json:
        _print_result(document, report, options)
    else:
        _print_losses("lost by the switch", report.losses or ())
        again = " (continued)" if report.resumed else ""
        state = (
            "live"
            if report.live
            else f"ready: `threadfold generations switch {report.generation}` makes it live"
        )
        click.echo(f"generation {report.generation}{again}: {report.events} events folded, {state}")


async def _build(
    stack: Stack, options: _Options, number: int | None, *, switch: bool
) -> RebuildReport:
    state = stack.control.state
    jobs = await _jobs(stack, options, number)
    if switch:
        built = (
            candidate(state, options.policy)[0]
            if number is None
            else known_generation(state, number)
        )
        _say_unsealed(state, built)
    try:
        with metered("rebuild") as meter:
            return await rebuild_windows(
                stack.settings,
                stack.control,
                stack.log,
                stack.store,
                policy=options.policy,
                number=number,
                switch=switch,
                accept_loss=options.accept_loss,
                jobs=jobs,
                progress=with_estimate(meter),
            )
    except WouldLose as error:
        if options.as_json:
            print_json({"generation": None, "losses": error.losses})
        else:
            _print_losses("a switch would lose", error.losses)
        raise


def _say_unsealed(state: State, generation: Generation) -> None:
    names = state.unsealed_by(generation)
    if names:
        say(
            f"generation {generation.number} does not encrypt {', '.join(names[:NAMED])}"
            f"{', …' * (len(names) > NAMED)}, as the live one does: their new text stays"
            " readable in the log (docs/erasure.md)"
        )


def _print_losses(what: str, losses: tuple[Loss, ...]) -> None:
    """Print every conversation that a switch loses something of, however many there are."""
    for one in losses:
        print_line(f"{what}: {one.conversation}: {one.because}")
    flush()


def _print_result(
    document: dict[str, Any] | None, report: RebuildReport | None, options: _Options
) -> None:
    """Print the result as one JSON document, or the report's lines."""
    if options.as_json:
        print_json(
            {**({"generation": None} if report is None else asdict(report)), "report": document}
        )
    elif document is not None:
        for line in policy_report(document):
            print_line(line)
        flush()
    elif options.dry_run:
        say("nothing to compare: the rules are those of the live generation")


async def _report(stack: Stack, generation: Generation, options: _Options) -> dict[str, Any] | None:
    """The report on a sample of conversations; None if the rules equal the live generation's."""
    state = stack.control.state
    before, after = state.rules(state.live_generation), state.rules(generation)
    if (before.deployment, before.tenants) == (after.deployment, after.tenants):
        return None
    preview = Preview(stack.control, stack.log, before, after, sample=options.sample)
    with metered("compare") as meter:
        await preview.run(with_estimate(meter))
    return {"live": state.live, **preview.document(options.price)}


async def _jobs(stack: Stack, options: _Options, number: int | None) -> int:
    """How many processes fold: the option, else one a processor if each has enough to do."""
    if options.jobs is not None:
        return min(options.jobs, stack.log.partitions)
    number = candidate(stack.control.state, options.policy)[0].number if number is None else number
    return await worthwhile_jobs(stack.control, stack.log, stack.store, number)


def with_estimate(meter: Meter) -> Callable[[int, int], None]:
    """The meter, with the remaining time at the rate so far."""

    def show(done: int, total: int) -> None:
        if _Interrupted.requested:
            raise _Interrupted
        left = (total - done) / max(1.0, meter.rate(done))
        meter(done, total, f"about {_time(left)} left" if done and done < total else "")

    return show


def _time(seconds: float) -> str:
    if seconds < 90:
        return f"{max(1, round(seconds))} s"
    return f"{round(seconds / 60)} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


@click.group(cls=Group)
def generations() -> None:
    """List generations, switch to one or drop one."""


@generations.command("list")
@data_option
def list_(data: Path | None) -> None:
    """Print one line per generation: number, state (live, building, ready or retired), partitions,
    the keys that its policy sets, when it was begun and when it last became live.
    """
    state = read_state(data)
    for number, generation in sorted(state.generations.items()):
        policy = ",".join(sorted(generation.policy)) or "-"
        stage = state.stage_of(generation)
        since = "live since" if stage == "live" else "last live from"
        click.echo(
            f"{number}\t{stage}\tpartitions: {generation.partitions}"
            f"\tpolicy: {policy}\tcreated: {generation.created or '-'}"
            f"\t{since}: {generation.live_at or '-'}"
        )


@generations.command("switch")
@click.argument("number", type=click.IntRange(min=1))
@_accept_loss_option
@_jobs_option
@data_option
def switch(number: int, accept_loss: bool, jobs: int | None, data: Path | None) -> None:
    """Make an existing generation live: a new one that is ready, or the previous one.

    The command first folds it up to the live one's position, under its own rules. It ends with exit
    code 1 if conversations would lose what their windows hold.
    """
    run_interruptibly(
        _rebuild(
            load_settings(data),
            _Options(number=number, switch=True, accept_loss=accept_loss, jobs=jobs, sample=0),
        )
    )


@generations.command("drop")
@click.argument("number", type=click.IntRange(min=1))
@data_option
def drop_(number: int, data: Path | None) -> None:
    """Delete a generation's windows from Redis, and its record. The log stays. The live generation
    cannot be dropped.
    """
    keys = run(_drop(load_settings(data), number))
    click.echo(f"dropped generation {number}: {keys} keys")


async def _drop(settings: Settings, number: int) -> int:
    async with open_stack(settings) as stack:
        return await drop(stack.control, stack.store, number)
