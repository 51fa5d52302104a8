"""``projection run|rebuild|verify|list|drop``: a team's own projections (``threadfold.custom``)."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import click

from projections.errors import InvalidProjection
from streams.custom.projection import Projection, check_projection
from streams.runtime.tune_gc import tune_gc
from streams.settings.settings import Settings
from threadfold.cli.common import data_option, load_settings, read_state, run
from threadfold.cli.progress import metered
from threadfold.cli.whole_help import Group
from threadfold.custom import access


def load_projection(name: str) -> Projection:
    """The projection ``module:Class`` (or ``module:object``), imported from the working folder or
    from Python's path.

    Raises:
        InvalidProjection: there is no such module or name, or it is not a projection.
    """
    module, _, attribute = name.partition(":")
    if not module or not attribute:
        raise InvalidProjection(
            f"{name!r} does not name a projection: write module:Class, such as usage:Usage for the"
            " class Usage in usage.py"
        )
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        imported = importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise InvalidProjection(
            f"{name}: module {error.name} is neither in this folder nor installed"
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
            f"{name}: calling {attribute}() failed: {type(error).__name__}: {error}"
        ) from error
    if not hasattr(projection, "apply"):
        raise InvalidProjection(f"{name} is not a projection: it has no method apply")
    return check_projection(projection)


@click.group(cls=Group)
def projection() -> None:
    """Run, rebuild, verify, list or drop your own projections: subclasses of
    threadfold.custom.Projection.
    """


@projection.command("run")
@click.argument("name", metavar="MODULE:CLASS")
@data_option
def run_(name: str, data: Path | None) -> None:
    """Fold the log into a projection's results as it grows. Processes share the partitions. SIGTERM
    or Ctrl-C stops it.

    If the class has a higher version, new results are built beside the live ones and become live
    when complete.
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
    """Fold the whole log into new results beside the live ones, and make them live when complete.

    After an interruption, run it again: it continues. Processes that run the projection switch by
    themselves.
    """

    async def work(settings: Settings, own: Projection) -> access.Rebuilt:
        with metered("rebuild") as meter:
            return await access.rebuild(settings, own, signals=True, progress=meter)

    settings, own = load_settings(data), load_projection(name)
    tune_gc()
    report = run(work(settings, own))
    click.echo(
        f"generation {report.generation}:"
        f" {'live' if report.live else 'incomplete: run this again to continue'}"
    )
    ctx.exit(0 if report.live else 130)


@projection.command()
@click.argument("name", metavar="MODULE:CLASS")
@data_option
@click.pass_context
def verify(ctx: click.Context, name: str, data: Path | None) -> None:
    """Fold the log from its first event and compare every value with Redis, byte for byte, while
    traffic runs.

    It prints a line for each value that differs. The last line is `verified: N, differing: N`. Exit
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
    """Print one line per generation of results: name, number, state, version."""
    for name, record in sorted(read_state(data).projections.items()):
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
@click.option("--all", "everything", is_flag=True, help="Delete the live results as well.")
@data_option
def drop(name: str, everything: bool, data: Path | None) -> None:
    """Delete a projection's old results from Redis. The log stays."""
    dropped = run(access.drop(load_settings(data), name, everything=everything))
    click.echo(f"dropped: {', '.join(map(str, dropped)) or 'nothing'}")
