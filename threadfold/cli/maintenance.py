"""``maintenance on|off|show``: refuse what callers append, for a while."""

from __future__ import annotations

from pathlib import Path

import click

from projections.events.times import present
from streams.control.state import Maintenance
from streams.settings.settings import Settings
from threadfold.cli.common import data_option, load_settings, open_control, read_state, run
from threadfold.cli.whole_help import Group

_tenant = click.option("--tenant", metavar="T", help="Only for this tenant.")


@click.group(cls=Group)
def maintenance() -> None:
    """Refuse appends (503 with Retry-After) and accept them again; reads go on."""


@maintenance.command("on")
@_tenant
@click.option("--reason", default="", metavar="TEXT", help="The reason that callers see.")
@data_option
def on(tenant: str | None, reason: str, data: Path | None) -> None:
    """Refuse appends from now on, in all gateways and commands.

    Workers still close sessions and make summaries: stop them if nothing at all may be appended.
    """
    run(_set(load_settings(data), tenant, Maintenance(present("seconds"), reason)))


@maintenance.command("off")
@_tenant
@data_option
def off(tenant: str | None, data: Path | None) -> None:
    """Accept appends again."""
    run(_set(load_settings(data), tenant, None))


@maintenance.command("show")
@data_option
def show(data: Path | None) -> None:
    """List tenants under maintenance (or `all`), with time and reason, separated by tabs."""
    for tenant, found in sorted(read_state(data).maintenance.items()):
        click.echo(f"{tenant or 'all'}\t{found.since}\t{found.reason}")


async def _set(settings: Settings, tenant: str | None, record: Maintenance | None) -> None:
    async with open_control(settings) as control:
        if tenant is not None:
            control.state.tenant(tenant)
        await control.write({f"maintenance/{tenant or ''}": record})
