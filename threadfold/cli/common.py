"""What the commands share: finding the stack, running a coroutine, printing JSON."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import click
import orjson

from projections.errors import InvalidSettings
from streams.control.follower import Control
from streams.settings.settings import PREFIX, Settings

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
CONFIG_FILE = "threadfold.toml"
DEFAULT_DATA = Path("threadfold-data")


def data_option(command: Command) -> Command:
    """The option ``--data DIR`` that every command has which talks to a stack."""
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="The folder of a stack that `threadfold up --data DIR` started.",
    )(command)


def load_settings(data: Path | None, **overrides: Any) -> Settings:
    """The settings of the stack a command talks to: the environment over ``DIR/threadfold.toml``,
    or over ``THREADFOLD_CONFIG``.

    Where nothing at all is configured, the stack in ``./threadfold-data`` is meant, the folder that
    ``up`` takes by default.

    Raises:
        InvalidSettings: the folder holds no stack, a setting is wrong, or no Kafka or Redis is
            named.
    """
    if data is None and not any(
        os.environ.get(PREFIX + name) for name in ("CONFIG", "KAFKA", "REDIS")
    ):
        data = DEFAULT_DATA if (DEFAULT_DATA / CONFIG_FILE).exists() else None
    if data is None:
        return Settings.load(**overrides).require()
    config = data / CONFIG_FILE
    if not config.exists():
        raise InvalidSettings(
            f"{data} has no {CONFIG_FILE}, so it is no stack's folder: start one with `threadfold"
            f" up --data {data}`"
        )
    return Settings.load(os.environ, config, **overrides).require()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine to its end. The clients' own log lines are no part of its output
    (``THREADFOLD_DEBUG=1`` shows them).
    """
    root = logging.getLogger()
    if os.environ.get("THREADFOLD_DEBUG", "") not in ("", "0"):
        logging.basicConfig(level=logging.INFO)
    elif not root.handlers:
        root.addHandler(logging.NullHandler())
    return asyncio.run(coroutine)


class Finite(click.FloatRange):
    """A number within a range; click's own takes "nan" for one within any."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is no number to work with", param, ctx)
        return number


class OutputClosed(Exception):
    """Nobody reads stdout any more (``| head``). No OSError, so that nobody takes it for a failing
    broker.
    """


def print_line(raw: bytes | str) -> None:
    """Print one line on stdout, as the bytes it is; raises :class:`OutputClosed` when nobody reads
    it.
    """
    try:
        sys.stdout.buffer.write((raw.encode() if isinstance(raw, str) else raw) + b"\n")
    except BrokenPipeError as error:
        raise OutputClosed from error


def flush() -> None:
    """Hand what was printed to the reader now; raises :class:`OutputClosed` when there is none."""
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error


def print_json(value: object, *, pretty: bool = False) -> None:
    """Print a value as JSON on one line, or indented."""
    print_line(orjson.dumps(value, option=orjson.OPT_INDENT_2 if pretty else 0))


async def ensure_tenant(control: Control, tenant: str) -> None:
    """Make sure that the tenant is recorded; says so if it was not."""
    if tenant not in control.state.tenants:
        say(f"tenant {tenant} does not exist yet: it is created")
    await control.ensure_tenant(tenant)


@asynccontextmanager
async def open_control(settings: Settings) -> AsyncIterator[Control]:
    """The control topic, read to its end and followed while the block runs."""
    control = Control(settings)
    try:
        yield await control.start()
    finally:
        await control.stop()


def say(text: str) -> None:
    """Tell a person something; stdout is kept for results."""
    click.echo(text, err=True)
