"""``up``: the whole stack in one foreground command."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from types import FrameType

import click

from projections.errors import InvalidSettings, TopicMismatch
from streams.encryption.master_keys import new_master
from streams.log.topics import check_shapes, create_topics, lost_beginning, partition_count
from streams.settings.settings import PREFIX, Settings
from threadfold.cli.common import CONFIG_FILE, DEFAULT_DATA, open_control, run, say
from threadfold.cli.configuration import write_config
from threadfold.cli.fleet import Fleet
from threadfold.embedded.folder import DataFolder
from threadfold.embedded.ports import HOST, free_port
from threadfold.embedded.stack import EmbeddedStack
from threadfold.gateway.key_sets import check_source, is_url

DEMO_TENANT = "demo"
MASTER_KEYS = "master.keys"


class _Stop(BaseException):
    """SIGTERM or Ctrl-C came; no Exception, so that nothing on the way takes it for a failure."""


@click.command()
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    help="The gateway's port, 0 for any free one [default: 8080].",
)
@click.option(
    "--data",
    type=click.Path(file_okay=False, path_type=Path),
    default=DEFAULT_DATA,
    show_default=True,
    metavar="DIR",
    help="Where everything is kept; one `up` at a time.",
)
@click.option(
    "--workers",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    metavar="N",
    help="How many workers.",
)
def up(port: int | None, data: Path, workers: int) -> None:
    """Start Kafka, Redis, topics, workers and the gateway; prints `ready: URL` when serving. Ctrl-C
    or SIGTERM stops all of it.

    What THREADFOLD_KAFKA and THREADFOLD_REDIS name is used as it is; what they do not is started
    here and keeps its data in DIR. Other commands reach this stack with --data DIR. The first start
    prints a key for tenant demo. A service that dies is started again.
    """
    data = data.absolute()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _stop)
    folder = DataFolder(data)
    stack: EmbeddedStack | None = None
    fleet: Fleet | None = None
    try:
        folder.acquire()
        wanted = configured(data)
        chosen = wanted.gateway_port if port is None else port or free_port()
        check_port(chosen)
        stack = EmbeddedStack(
            data / "stack", kafka=wanted.kafka or None, redis=wanted.redis or None
        )
        settings = _start(stack, wanted, data, chosen)
        # The services hold the folder, too: after a sudden death of this process the folder is free
        # when the last of them is gone.
        fleet = Fleet(
            settings, data, workers=workers, servers=stack.servers, hold=(folder.descriptor,)
        )
        fleet.start()
        fleet.wait_ready(lambda: click.echo(f"ready: {settings.gateway_url}"))
        fleet.watch()
    except _Stop:
        say("stopping")
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)
        if fleet is not None:
            fleet.stop()
        if stack is not None:
            stack.stop()
        folder.release()


def _stop(number: int, frame: FrameType | None) -> None:
    for each in (signal.SIGTERM, signal.SIGINT):
        signal.signal(each, signal.SIG_IGN)
    raise _Stop


def check_port(port: int) -> None:
    """Make sure, before anything is started, that the gateway will be able to listen.

    Raises:
        InvalidSettings: it would not; the message says what to do.
    """
    try:
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((HOST, port))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        raise InvalidSettings(
            f"port {port} on {HOST} cannot be listened on ({reason}): stop what uses it or name"
            " another with --port"
        ) from None


def configured(data: Path) -> Settings:
    """What was configured by hand; the file that the last ``up`` wrote into its own folder is
    not.
    """
    env = dict(os.environ)
    config = env.get(PREFIX + "CONFIG")
    if config and Path(config).absolute() == data / CONFIG_FILE:
        del env[PREFIX + "CONFIG"]
    return Settings.load(env)


def _start(stack: EmbeddedStack, wanted: Settings, data: Path, port: int) -> Settings:
    """Start the servers, make topics, generation and the demo tenant, and write the configuration;
    returns the settings in force.
    """
    names = [
        name for name, address in (("Kafka", wanted.kafka), ("Redis", wanted.redis)) if not address
    ]
    if names:
        say(
            f"starting {' and '.join(names)} in {data} (the first start on a machine fetches Kafka,"
            " 43 MB)"
        )
    stack.start()
    url = f"http://{HOST}:{port}"
    changes = {
        "kafka": stack.kafka,
        "redis": stack.redis,
        "gateway_host": HOST,
        "gateway_port": port,
        "gateway_url": url,
    }
    if not wanted.kafka:
        changes |= {"replication": 1, "min_isr": 1}
    if not wanted.master_keys:
        changes["master_keys_file"] = str(
            Path(wanted.master_keys_file).absolute()
            if wanted.master_keys_file
            else _master_key_file(data)
        )
    if wanted.policy:
        changes["policy"] = str(Path(wanted.policy).absolute())
    if wanted.jwt_keys and not is_url(wanted.jwt_keys):
        changes["jwt_keys"] = keys = str(Path(wanted.jwt_keys).absolute())
        check_source(keys)
    settings = Settings.load(
        {}, **{**{name: getattr(wanted, name) for name in wanted.__struct_fields__}, **changes}
    )
    partitions, key = run(_prepare(settings))
    settings = Settings.load(
        {},
        **{
            **{name: getattr(settings, name) for name in settings.__struct_fields__},
            "partitions": partitions,
        },
    )
    write_config(data / CONFIG_FILE, settings)
    if key is not None:
        click.echo(f"key for tenant {DEMO_TENANT}: {key}")
    return settings


def _master_key_file(data: Path) -> Path:
    """The folder's own file of master keys, made where there is none, for its owner's eyes only:
    encryption works here from the start.
    """
    path = data / MASTER_KEYS
    if not path.exists():
        part = path.with_suffix(".part")
        descriptor = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="ascii") as file:
            file.write(
                "# Master keys, the current one first. Whoever loses them loses all that is"
                f" encrypted here.\n{new_master()}\n"
            )
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    return path


async def _prepare(settings: Settings) -> tuple[int, str | None]:
    """Topics, first generation and demo tenant; returns the log's partition count, and the demo
    tenant's key on the first start.
    """
    await create_topics(settings)
    if wrong := await check_shapes(settings):
        raise TopicMismatch("; ".join(wrong))
    # No reason not to start: what was folded before is served on.
    for sentence in [] if settings.accept_truncated_log else await lost_beginning(settings):
        say(sentence)
    partitions = await partition_count(settings)
    async with open_control(settings) as control:
        await control.ensure_generation(partitions)
        key = None
        if DEMO_TENANT not in control.state.tenants:
            # The key comes before the record that stops the next one: cut off in between, the next
            # start makes and shows another.
            key = await control.add_key(DEMO_TENANT)
            await control.ensure_tenant(DEMO_TENANT)
        return partitions, key
