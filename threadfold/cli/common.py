"""Shared by the commands: finding and opening a stack, running a coroutine, printing."""

from __future__ import annotations

import asyncio
import logging
import math
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
import msgspec

from projections.errors import InvalidSettings, UnknownConversation, UnknownUser
from streams.control.control_topic import Control
from streams.control.state import State
from streams.recovery.snapshot_topic import KafkaSnapshots
from streams.settings.settings import PREFIX, Settings
from streams.stack import Stack

if TYPE_CHECKING:
    from threadfold.service.conversations import ConversationService

T = TypeVar("T")
Command = TypeVar("Command", bound=Callable[..., Any])
CONFIG_FILE = "threadfold.toml"
DEFAULT_DATA = Path("threadfold-data")


def data_option(command: Command) -> Command:
    """The option ``--data DIR`` of every command that talks to a stack."""
    return click.option(
        "--data",
        type=click.Path(file_okay=False, path_type=Path),
        metavar="DIR",
        help="The data folder of a stack started by `threadfold up --data DIR`.",
    )(command)


def not_empty(ctx: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    """The callback of options that select whose something is: empty, as a shell's variable without
    a value, they would select all.
    """
    if value == "":
        raise click.BadParameter("expected 1 or more characters", ctx=ctx, param=parameter)
    return value


def configuration_of(data: Path | None) -> Path | None:
    """The file that a command's settings come from beside the environment: ``DIR/threadfold.toml``,
    or None for ``THREADFOLD_CONFIG``. By default it is the stack in ``./threadfold-data``, as for
    ``up``.

    Raises:
        InvalidSettings: the folder has no stack.
    """
    if data is None and not any(
        os.environ.get(PREFIX + name) for name in ("CONFIG", "KAFKA", "REDIS")
    ):
        data = DEFAULT_DATA if (DEFAULT_DATA / CONFIG_FILE).exists() else None
    if data is None:
        return None
    config = data / CONFIG_FILE
    if not config.exists():
        raise InvalidSettings(
            f"{data} has no {CONFIG_FILE}: start a stack there with `threadfold up --data {data}`"
        )
    return config


def load_settings(data: Path | None, **overrides: Any) -> Settings:
    """The settings of a command's stack: the environment over its file
    (:func:`configuration_of`).

    Raises:
        InvalidSettings: the folder has no stack, a setting is wrong, or no Kafka or Redis is named.
    """
    return Settings.load(config=configuration_of(data), **overrides).require()


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a command's coroutine. ``THREADFOLD_DEBUG=1`` shows the clients' log lines."""
    root = logging.getLogger()
    if os.environ.get("THREADFOLD_DEBUG", "") not in ("", "0"):
        logging.basicConfig(level=logging.INFO)
    elif not root.handlers:
        root.addHandler(logging.NullHandler())
    return asyncio.run(coroutine)


class Finite(click.FloatRange):
    """A finite number within a range; click's own type accepts "nan"."""

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        number = float(super().convert(value, param, ctx))
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number", param, ctx)
        return number


class OutputClosed(Exception):
    """The reader has closed stdout (``| head``). Not an OSError: brokers raise those."""


def print_line(raw: bytes | str) -> None:
    """Print one line on stdout; raises :class:`OutputClosed` when the reader has closed it."""
    try:
        sys.stdout.buffer.write((raw.encode() if isinstance(raw, str) else raw) + b"\n")
    except BrokenPipeError as error:
        raise OutputClosed from error


def flush() -> None:
    """Flush stdout; raises :class:`OutputClosed` when the reader has closed it."""
    try:
        sys.stdout.flush()
    except BrokenPipeError as error:
        raise OutputClosed from error


def print_json(value: object, *, pretty: bool = False) -> None:
    """Print a value (structs too), or JSON bytes as they are, on one line or indented."""
    raw = value if isinstance(value, bytes) else msgspec.json.encode(value)
    print_line(msgspec.json.format(raw, indent=2) if pretty else raw)


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


def read_state(data: Path | None) -> State:
    """What the control topic says now."""

    async def read(settings: Settings) -> State:
        async with open_control(settings) as control:
            return control.state

    return run(read(load_settings(data)))


def on_service(
    data: Path | None, tenant: str | None, work: Callable[[ConversationService], Awaitable[T]]
) -> T:
    """The result of ``work`` on a started conversation service.

    Raises:
        UnknownTenant: what ``work`` asks for is not known, because ``tenant`` is not.
    """

    async def go(settings: Settings) -> T:
        from threadfold.service.conversations import ConversationService

        async with ConversationService(settings) as service:
            try:
                return await work(service)
            except (UnknownConversation, UnknownUser):
                if tenant is not None:
                    service.control.state.tenant(tenant)
                raise

    return run(go(load_settings(data)))


@asynccontextmanager
async def open_snapshots(stack: Stack) -> AsyncIterator[KafkaSnapshots | None]:
    """The snapshots topic while the block runs; None if it cannot be used."""
    snapshots = KafkaSnapshots(stack.settings, stack.log.partitions)
    try:
        yield snapshots if await snapshots.usable() is None else None
    finally:
        await snapshots.stop()


def say(text: str) -> None:
    """Print a line for a person on stderr; stdout is for results."""
    click.echo(text, err=True)
