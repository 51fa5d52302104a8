"""``maintenance on|off|show``: refuse what callers append, for a while."""

from __future__ import annotations

from pathlib import Path

import click

from projections.events.times import present
from streams.control.state import Maintenance
from streams.settings.settings import Settings
from threadfold.cli.common import data_option, load_settings, open_control, read_state, run
from threadfold.cli.whole_help import Group

_tenant = click.option("--tenant", metavar="T", help="Of this tenant alone.")


@click.group(cls=Group)
def maintenance() -> None:
    """Refuse appends for a while (503 with Retry-After); reads go on."""


@maintenance.command("on")
@_tenant
@click.option("--reason", default="", metavar="TEXT", help="The reason that callers get.")
@data_option
def on(tenant: str | None, reason: str, data: Path | None) -> None:
    """Refuse appends from now on, in all gateways and commands.

    Workers still end sessions and make summaries: stop them if nothing at all may come.
    """
    run(_set(load_settings(data), tenant, Maintenance(present("seconds"), reason)))


@maintenance.command("off")
@_tenant
@data_option
def off(tenant: str | None, data: Path | None) -> None:
    """Take appends again."""
    run(_set(load_settings(data), tenant, None))


@maintenance.command("show")
@data_option
def show(data: Path | None) -> None:
    """List what is under maintenance: tenant (or `all`), since when and why, joined by tabs."""
    for tenant, found in sorted(read_state(data).maintenance.items()):
        click.echo(f"{tenant or 'all'}\t{found.since}\t{found.reason}")


async def _set(settings: Settings, tenant: str | None, record: Maintenance | None) -> None:
    async with open_control(settings) as control:
        if tenant is not None:
            control.state.tenant(tenant)
        await control.write({f"maintenance/{tenant or ''}": record})
