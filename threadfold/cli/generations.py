"""``rebuild`` and ``generations list|drop``: complete sets of windows under one version of the rules."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from projections.errors import ThreadfoldError
from streams.collector import rest_collector
from streams.control import State
from streams.rebuild import RebuildReport
from streams.rebuild import rebuild as rebuild_windows
from streams.settings import Settings, read_policy
from threadfold.cli.common import data_option, load_settings, run
from threadfold.cli.progress import metered
from threadfold.cli.reach import reach
from threadfold.cli.tenants import open_control


class UnknownGeneration(ThreadfoldError):
    """No generation has this number."""

    exit_code = 1


class LiveGeneration(ThreadfoldError):
    """The generation is the one that readers see."""


@click.command()
@click.option("--policy", type=click.Path(path_type=Path), metavar="FILE", help="The deployment's new policy [default: the live one's].")
@click.option("--switch", is_flag=True, help="Make the new generation live when it is complete.")
@data_option
def rebuild(policy: Path | None, switch: bool, data: Path | None) -> None:
    """Fold the whole log into a new generation of windows beside the live one, which serves on.

    A rebuild that was cut off goes on where it was when it is started again with the same policy.
    """
    values = read_policy(policy) if policy else None
    report = run(_rebuild(load_settings(data), values, switch))
    again = " (went on with one that was begun)" if report.resumed else ""
    state = "live" if report.live else "ready: make it live with `threadfold rebuild --switch` and the same policy"
    click.echo(f"generation {report.generation}{again}: {report.events} events folded, {state}")


async def _rebuild(settings: Settings, policy: dict[str, Any] | None, switch: bool) -> RebuildReport:
    rest_collector()
    async with reach(settings) as stack:
        with metered("rebuild") as meter:
            return await rebuild_windows(
                settings, stack.control, stack.log, stack.store, policy=policy, switch=switch, progress=meter
            )  # fmt: skip


@click.group()
def generations() -> None:
    """List or drop generations."""


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


@generations.command()
@click.argument("number", type=click.IntRange(min=1))
@data_option
def drop(number: int, data: Path | None) -> None:
    """Delete a generation's windows from Redis, and its record. The live one cannot be dropped; the log is not touched."""
    keys = run(_drop(load_settings(data), number))
    click.echo(f"dropped generation {number}: {keys} keys")


async def _drop(settings: Settings, number: int) -> int:
    async with reach(settings) as stack:
        state = stack.control.state
        if number == state.live:
            raise LiveGeneration(f"generation {number} is live: switch to another first (`threadfold rebuild --switch`)")
        if number not in state.generations:
            raise UnknownGeneration(f"there is no generation {number}: `threadfold generations list` names those there are")
        partitions = state.generations[number].partitions
        # The record goes first, so that nobody begins to read or build windows that are being deleted.
        await stack.control.write({f"generation/{number}": None})
        return await stack.store.drop_generation(number, partitions)
