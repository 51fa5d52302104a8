"""``tenants add|list|revoke``: who may use the gateway, and with which policy."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import click

from projections.errors import ThreadfoldError
from projections.names import check_name
from streams.control import Control, State
from streams.settings import Settings, read_layer
from threadfold.cli.common import data_option, load_settings, run, say

SCOPES = ("append", "read", "subscribe", "admin")


class UnknownTenant(ThreadfoldError):
    """No such tenant was ever recorded."""

    exit_code = 1


@asynccontextmanager
async def open_control(settings: Settings) -> AsyncIterator[Control]:
    """The control topic, read to its end and followed; closed afterwards."""
    control = Control(settings)
    try:
        yield await control.start()
    finally:
        await control.stop()


@click.group()
def tenants() -> None:
    """Add and list tenants, revoke their keys."""


@tenants.command()
@click.argument("name")
@click.option("--policy", type=click.Path(path_type=Path), metavar="FILE", help="The tenant's policy, TOML or JSON.")
@click.option("--scopes", metavar="A,B", help=f"What the key may do: {', '.join(SCOPES)} [default: all but admin].")
@data_option
def add(name: str, policy: Path | None, scopes: str | None, data: Path | None) -> None:
    """Record a tenant and print a new key for it, alone on stdout. It is shown this once: only its hash is stored."""
    check_name("tenant", name)
    wanted = _scopes(scopes)
    values = read_layer(policy) if policy else None
    key, waits = run(_add(load_settings(data), name, values, wanted))
    if waits:
        say(f"tenant {name} was known: its new policy takes effect with the next generation (`threadfold rebuild --switch`)")
    click.echo(key)


async def _add(settings: Settings, name: str, policy: dict[str, Any] | None, scopes: list[str] | None) -> tuple[str, bool]:
    async with open_control(settings) as control:
        tenant = await control.ensure_tenant(name, policy)
        waits = policy is not None and tenant.next_policy == policy and tenant.policy != policy
        return await control.add_key(name, scopes), waits


def _scopes(text: str | None) -> list[str] | None:
    if text is None:
        return None
    scopes = [part.strip() for part in text.split(",") if part.strip()]
    unknown = [scope for scope in scopes if scope not in SCOPES]
    if unknown or not scopes:
        shown = ", ".join(unknown) or "nothing"
        raise click.BadParameter(f"{shown} is not a scope: the scopes are {', '.join(SCOPES)}", param_hint="--scopes")
    return scopes


@tenants.command("list")
@data_option
def list_(data: Path | None) -> None:
    """Print one tenant a line: name, number of keys, what its keys may do, its policy's keys."""

    async def read() -> State:
        async with open_control(load_settings(data)) as control:
            return control.state

    state = run(read())
    keys = Counter(key.tenant for key in state.keys.values())
    for name in sorted(state.tenants.keys() | keys.keys()):
        tenant = state.tenants.get(name)
        scopes = sorted({scope for key in state.keys.values() if key.tenant == name for scope in key.scopes})
        policy = ",".join(sorted(tenant.policy)) if tenant and tenant.policy else "-"
        click.echo(f"{name}\tkeys: {keys[name]}\tscopes: {','.join(scopes) or '-'}\tpolicy: {policy}")


@tenants.command()
@click.argument("name")
@data_option
def revoke(name: str, data: Path | None) -> None:
    """Delete all keys of a tenant. What it has said stays in the log."""
    check_name("tenant", name)

    async def drop() -> int:
        async with open_control(load_settings(data)) as control:
            gone = await control.revoke_keys(name)
            if not gone and name not in control.state.tenants:
                raise UnknownTenant(f"tenant {name} is not known: `threadfold tenants list` names those that are")
            return gone

    click.echo(f"revoked: {run(drop())}")
