"""``projection run|rebuild|verify|list|drop``: a team's own projections (``threadfold.custom``)."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from projections.errors import InvalidProjection
from streams.control.follower import State
from streams.custom.projection import Projection, check_projection
from streams.runtime.tune_gc import tune_gc
from streams.settings.settings import Settings
from threadfold.cli.common import data_option, load_settings, open_control, run
from threadfold.cli.progress import metered
from threadfold.custom import access


def load_projection(name: str) -> Projection:
    """The projection ``module:Class`` (or ``module:object``), found as Python finds modules, the
    working folder first.

    Raises:
        InvalidProjection: there is no such module or name, or it is no projection.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InvalidProjection(
            f"{name!r} names no projection: write module:Class, like usage:Usage for a class Usage"
            " in usage.py"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InvalidProjection(
            f"{name}: there is no module {error.name} here, nor among what is installed"
        ) from None
    except (Exception, SystemExit) as error:
        raise InvalidProjection(
            f"{name}: importing {module} failed: {type(error).__name__}: {error}"
        ) from error
    if not hasattr(imported, attribute):
        raise InvalidProjection(f"{name}: module {module} has no {attribute}")
    found = getattr(imported, attribute)
    try:
        projection = found() if isinstance(found, type) else found
    except (Exception, SystemExit) as error:
        raise InvalidProjection(
            f"{name}: making one without arguments failed: {type(error).__name__}: {error}"
        ) from error
    if not hasattr(projection, "apply"):
        raise InvalidProjection(f"{name} has no method apply, so it is no projection")
    return check_projection(projection)


@click.group()
def projection() -> None:
    """Run, rebuild, verify, list or drop your own projections: classes that inherit from
    threadfold.custom.Projection.
    """


@projection.command("run")
@click.argument("name", metavar="MODULE:CLASS")
@data_option
def run_(name: str, data: Path | None) -> None:
    """Keep a projection's results up with the log. SIGTERM or Ctrl-C stops it; any number of
    processes share the partitions.

    When the class' version was raised, its results are built anew beside the live ones, and become
    live when they are complete.
    """
    settings, own = load_settings(data), load_projection(name)
    tune_gc()
    click.echo(f"running: {own.name}, version {own.version}")
    run(access.run(settings, own, signals=True))


@projection.command()
@click.argument("name", metavar="MODULE:CLASS")
@data_option
@click.pass_context
def rebuild(ctx: click.Context, name: str, data: Path | None) -> None:
    """Fold the whole log into new results beside the live ones, and make them live when they are
    complete.

    One that was cut off goes on where it was when it is started again; processes that run the
    projection go over by themselves.
    """

    async def work(settings: Settings, own: Projection) -> access.Rebuilt:
        with metered("rebuild") as meter:
            return await access.rebuild(settings, own, signals=True, progress=meter)

    settings, own = load_settings(data), load_projection(name)
    tune_gc()
    report = run(work(settings, own))
    click.echo(
        f"generation {report.generation}:"
        f" {'live' if report.live else 'not complete: start this again to go on'}"
    )
    ctx.exit(0 if report.live else 130)


@projection.command()
@click.argument("name", metavar="MODULE:CLASS")
@data_option
@click.pass_context
def verify(ctx: click.Context, name: str, data: Path | None) -> None:
    """Fold the log from its first event and compare every value with Redis, byte for byte, while
    traffic runs.

    Prints one line for each value that differs; the last line is `verified: N, differing: N`. Exit
    1 if any differs.
    """
    settings, own = load_settings(data), load_projection(name)
    tune_gc()
    report = run(access.verify(settings, own))
    for cell in report.differing:
        click.echo(f"differs: {cell}")
    click.echo(f"verified: {report.verified}, differing: {len(report.differing)}")
    ctx.exit(1 if report.differing else 0)


@projection.command("list")
@data_option
def list_(data: Path | None) -> None:
    """Print one generation of a projection's results a line: name, number, state, version."""

    async def read() -> State:
        async with open_control(load_settings(data)) as control:
            return control.state

    for name, record in sorted(run(read()).views.items()):
        for number, generation in sorted(record.generations.items()):
            state = (
                "live"
                if number == record.live
                else "building"
                if number > (record.live or 0)
                else "old"
            )
            click.echo(f"{name}\t{number}\t{state}\tversion: {generation.version}")


@projection.command()
@click.argument("name")
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="The live results too: nothing of the projection is kept.",
)
@data_option
def drop(name: str, everything: bool, data: Path | None) -> None:
    """Delete a projection's old results from Redis. The log is not touched."""
    gone = run(access.drop(load_settings(data), name, everything=everything))
    click.echo(f"dropped: {', '.join(map(str, gone)) or 'nothing'}")
