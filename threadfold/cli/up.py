"""``up``: the whole stack in one foreground command."""

from __future__ import annotations

import errno
import os
import signal
import time
from functools import partial
from pathlib import Path
from types import FrameType

import click
import msgspec

from projections.errors import EmbeddedUnavailable, InvalidSettings, TopicMismatch
from streams.encryption.master_keys import new_master
from streams.log.topics import check_shapes, create_topics, lost_beginning, partition_count
from streams.memory.store_folder import absolute_store
from streams.settings.settings import PREFIX, Settings
from threadfold.cli.common import CONFIG_FILE, DEFAULT_DATA, open_control, run, say
from threadfold.cli.configuration import used_own_master_keys, write_config
from threadfold.cli.fleet import Fleet
from threadfold.embedded.folder import DataFolder, write_private
from threadfold.embedded.ports import HOST, ReservedPort
from threadfold.embedded.stack import EmbeddedStack
from threadfold.gateway.key_sets import check_source, is_url
from threadfold.gateway.tls import certificate_of

DEMO_TENANT = "demo"
MASTER_KEYS = "master.keys"
MEMORIES = "memories"
END = 20.0
"""Seconds from SIGTERM to the end of everything."""
KILLING = 5.0
"""Of those, seconds for what is killed to end and for this process to exit, on a busy machine."""
LEAST_GRACE = 1.0
SERVICES_END = END - KILLING - LEAST_GRACE
"""Seconds that the services have to end. They need a few, and more where servers hang."""


class _Stop(BaseException):
    """SIGTERM or Ctrl-C. Not an Exception, so that no handler catches it."""


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="The gateway's port; 0: any free port [default: 8080].",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DATA,
    show_default=True,
    metavar="DIR",
    help="The data folder. Only one `up` can use it at a time.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="How many workers.",
)
@click.option(
    "--metrics-port",
    type=click.IntRange(1, 65535),
    metavar="PORT",
    help="The port of the first worker's Prometheus metrics (/metrics); the second worker uses the"
    " next port, and so on [default: none].",
)
def up(port: int | None, data: Path, workers: int, metrics_port: int | None) -> None:
    """Start Kafka, Redis, topics, workers and the gateway; print `ready: URL` when serving. Ctrl-C
    or SIGTERM stops everything.

    It uses the servers of THREADFOLD_KAFKA and THREADFOLD_REDIS if they are set, and otherwise
    starts its own with their data in DIR. Other commands find this stack with --data DIR. The first
    start prints a key for tenant demo. A service that ends is restarted.
    """
    data = data.absolute()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    folder = DataFolder(data, own=("stack", "logs", MEMORIES))
    stack: EmbeddedStack | None = None
    fleet: Fleet | None = None
    reserved: ReservedPort | None = None
    try:
        folder.acquire()
        if folder.note:
            say(folder.note)
        base = configured(data)
        reserved = reserve_port(base.gateway_port if port is None else port)
        certificate_of(base)
        stack = EmbeddedStack(
            data / "stack", kafka=base.kafka or None, redis=base.redis or None, passwords=True
        )
        settings = _start(stack, base, data, reserved.number)
        # The services hold the folder as well: if this process is killed, the folder is free once
        # the last of them has ended.
        fleet = Fleet(
            settings,
            data,
            workers=workers,
            metrics_port=metrics_port or base.metrics_port or None,
            servers=stack.servers,
            hold=(folder.descriptor,),
        )
        fleet.start()
        fleet.wait_ready(partial(_announce, settings))
        fleet.watch()
    except _Stop:
        say("stopping")
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise EmbeddedUnavailable(
            f"the data folder {data} cannot be written to ({error.strerror}): free disk space, or"
            " choose another folder with --data"
        ) from error
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, _stops_already)
        since = time.monotonic()
        if fleet is not None:
            fleet.stop(SERVICES_END)
        if stack is not None:
            stack.stop(grace_after(time.monotonic() - since))
        if reserved is not None:
            reserved.release()
        folder.release()


def grace_after(spent: float) -> float:
    """Seconds that the servers have to end after the services took so many. Services that end late
    waited for servers that hang; and one that is killed loses nothing that it wrote.
    """
    return max(LEAST_GRACE, END - KILLING - spent)


def _stop(number: int, frame: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, _stops_already)
    raise _Stop


def _stops_already(number: int, frame: FrameType | None) -> None:
    """Not SIG_IGN: Python reports a signal that is pending when it is set, as an error."""


def reserve_port(port: int) -> ReservedPort:
    """Reserve the gateway's port before anything starts: Kafka takes seconds to start, and
    connections of other programs get ports in the meantime.

    Raises:
        InvalidSettings: the gateway cannot listen there; the message says what to do.
    """
    try:
        return ReservedPort(port)
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidSettings(
            f"the gateway cannot listen on port {port} of {HOST} ({reason}): stop the program that"
            " uses it, or choose another with --port"
        ) from None


def configured(data: Path) -> Settings:
    """The settings configured by hand, without the file that an earlier ``up`` wrote."""
    env = dict(os.environ)
    config = env.get(PREFIX + "CONFIG")
    if config and Path(config).absolute() == data / CONFIG_FILE:
        del env[PREFIX + "CONFIG"]
    return Settings.load(env)


def _announce(settings: Settings) -> None:
    """Say where it serves, and how to sign in to the console. The key itself was printed by the
    first start: only its hash is kept.
    """
    how = (
        "no key is needed"
        if settings.auth == "off"
        else f"sign in with the key that the first start printed for tenant {DEMO_TENANT}; another:"
        f" `threadfold tenants add {DEMO_TENANT}`"
    )
    say(f"console: {settings.gateway_url}/console ({how})")
    click.echo(f"ready: {settings.gateway_url}")


def _start(stack: EmbeddedStack, base: Settings, data: Path, port: int) -> Settings:
    """Start the servers, create topics, generation and demo tenant, and write the configuration;
    returns the settings.
    """
    masters = "" if base.master_keys else base.master_keys_file or str(master_key_file(data))
    names = [
        name for name, address in (("Kafka", base.kafka), ("Redis", base.redis)) if not address
    ]
    if names:
        say(
            f"starting {' and '.join(names)} in {data} (the first start on a machine downloads"
            " Kafka, 43 MB)"
        )
    stack.start()
    for server in stack.servers:
        if server.note:
            say(server.note)
    url = f"{'https' if base.gateway_certificate else 'http'}://{HOST}:{port}"
    changes = {
        **stack.addresses,
        "gateway_host": HOST,
        "gateway_port": port,
        "gateway_url": url,
        "metrics_port": 0,  # each worker has its own
        "memory_store": absolute_store(base.memory_store or str(data / MEMORIES)),
    }
    if not base.kafka:
        changes |= {"replication": 1, "min_isr": 1}
    if masters:
        changes["master_keys_file"] = str(Path(masters).absolute())
    for name in ("policy", "gateway_certificate", "gateway_private_key"):
        if getattr(base, name):
            changes[name] = str(Path(getattr(base, name)).absolute())
    if base.jwt_keys and not is_url(base.jwt_keys):
        changes["jwt_keys"] = keys = str(Path(base.jwt_keys).absolute())
        check_source(keys)
    settings = Settings.load({}, **{**msgspec.structs.asdict(base), **changes})
    partitions, key = run(prepare(settings))
    settings = Settings.load({}, **{**msgspec.structs.asdict(settings), "partitions": partitions})
    write_config(data / CONFIG_FILE, settings)
    if key is not None:
        click.echo(f"key for tenant {DEMO_TENANT}: {key}")
    return settings


def master_key_file(data: Path) -> Path:
    """The folder's file of master keys, made at its first start and readable by its owner only, so
    that encryption works from the start.

    Raises:
        InvalidSettings: a former start used it, and it is missing.
    """
    path = data / MASTER_KEYS
    if not path.exists():
        if used_own_master_keys(data / CONFIG_FILE, MASTER_KEYS):
            raise InvalidSettings(
                f"the master keys of this folder, {path}, are missing: put the file back, as what"
                " is encrypted here cannot be read without it; if nothing is encrypted, make a new"
                f" one: `threadfold keys new-master > {path}`"
            )
        write_private(
            path,
            "# Master keys, the current one first. Without them, all that is encrypted here is"
            f" lost.\n{new_master()}\n",
        )
    return path


async def prepare(settings: Settings) -> tuple[int, str | None]:
    """Create topics, first generation and demo tenant; returns the log's partition count, and on
    the first start the demo tenant's key.
    """
    await create_topics(settings)
    if wrong := await check_shapes(settings):
        raise TopicMismatch("; ".join(wrong))
    # The stack starts nevertheless: existing windows stay readable.
    for sentence in [] if settings.accept_truncated_log else await lost_beginning(settings):
        say(sentence)
    partitions = await partition_count(settings)
    async with open_control(settings) as control:
        await control.ensure_generation(partitions)
        key = None
        if DEMO_TENANT not in control.state.tenants:
            # The key comes before the tenant's record: after an interruption in between, the next
            # start makes and shows another key.
            key = await control.add_key(DEMO_TENANT)
            await control.ensure_tenant(DEMO_TENANT)
        return partitions, key
