"""``tenants add|list|revoke``: the tenants, their policies and their keys."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from projections.errors import InvalidKey
from projections.names import check_name
from streams.control.state import State
from streams.settings.quotas import (
    DEFAULT_SCOPES,
    SCOPES,
    check_expiry,
    check_key_name,
    check_scopes,
    rfc3339,
    shown_key,
)
from streams.settings.settings import Settings, read_layer
from threadfold.cli.common import (
    data_option,
    load_settings,
    open_control,
    print_json,
    read_state,
    run,
    say,
)


@click.group()
def tenants() -> None:
    """Add and list tenants, revoke their keys."""


@tenants.command()
@click.argument("name")
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The tenant's policy, TOML or JSON.",
)
@click.option(
    "--scopes",
    metavar="A,B",
    help=f"The key's scopes, of {', '.join(SCOPES)} [default: {','.join(DEFAULT_SCOPES)}].",
)
@click.option(
    "--expires",
    metavar="TIME",
    help="When the key expires: an RFC 3339 time, or days from now (90d).",
)
@click.option("--key-name", metavar="TEXT", help="The key's name in lists.")
@data_option
def add(
    name: str,
    policy: Path | None,
    scopes: str | None,
    expires: str | None,
    key_name: str | None,
    data: Path | None,
) -> None:
    """Record a tenant and print a new key for it, alone on stdout. The key is shown only once:
    the deployment stores its hash.
    """
    check_name("tenant", name)
    granted = _scopes(scopes)
    ends = _expiry(expires)
    check_key_name(key_name)
    values = read_layer(policy) if policy else None
    key, waits = run(_add(load_settings(data), name, values, granted, ends, key_name))
    if waits:
        say(
            f"tenant {name} exists: its new policy takes effect with the next generation"
            " (`threadfold rebuild --switch`)"
        )
    click.echo(key)


async def _add(
    settings: Settings,
    name: str,
    policy: dict[str, Any] | None,
    scopes: tuple[str, ...] | None,
    ends: str | None,
    key_name: str | None,
) -> tuple[str, bool]:
    async with open_control(settings) as control:
        tenant = await control.ensure_tenant(name, policy)
        waits = policy is not None and tenant.next_policy == policy and tenant.policy != policy
        return await control.add_key(name, scopes, name=key_name, expires_at=ends), waits


def _scopes(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    try:
        return check_scopes([part.strip() for part in text.split(",") if part.strip()])
    except InvalidKey as error:
        raise click.BadParameter(str(error), param_hint="--scopes") from None


def _expiry(text: str | None) -> str | None:
    if text is None:
        return None
    now = datetime.now(UTC)
    days = re.fullmatch(r"([1-9][0-9]{0,4})d", text)
    if days:
        text = rfc3339((now + timedelta(days=int(days[1]))).replace(microsecond=0))
    try:
        return check_expiry(text, now.timestamp())
    except InvalidKey as error:
        raise click.BadParameter(
            str(error).replace("expires_at", "the time"), param_hint="--expires"
        ) from None


@tenants.command("list")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object a line: policy, quota and keys."
)
@data_option
def list_(as_json: bool, data: Path | None) -> None:
    """Print one line per tenant (number of keys, scopes, policy, quota), and under it one per key
    (id, scopes, expiry).
    """
    state = read_state(data)
    for name in sorted(state.tenants.keys() | {key.tenant for key in state.keys.values()}):
        _print_tenant(state, name, as_json)


def _print_tenant(state: State, name: str, as_json: bool) -> None:
    tenant, now = state.tenant(name), time.time()
    keys = [shown_key(hashed, key, now) for hashed, key in state.keys_of(name).items()]
    quota = {
        kind: value
        for kind, value in msgspec.structs.asdict(tenant.quota).items()
        if value is not None
    }
    if as_json:
        policies = {"policy": state.policy_of(tenant), "next_policy": tenant.next_policy}
        print_json({"name": name, **policies, "quota": quota, "keys": keys})
        return
    policy = ",".join(sorted(tenant.policy)) or "-"
    quotas = ",".join(f"{kind}={value:g}" for kind, value in quota.items()) or "-"
    scopes = (
        ",".join(scope for scope in SCOPES if any(scope in key["scopes"] for key in keys)) or "-"
    )
    click.echo(f"{name}\tkeys: {len(keys)}\tscopes: {scopes}\tpolicy: {policy}\tquota: {quotas}")
    for key in keys:
        ends = (
            "never"
            if key["expires_at"] is None
            else f"{key['expires_at']}{' (expired)' if key['expired'] else ''}"
        )
        named = f"\t{key['name']}" if key["name"] else ""
        click.echo(f"  {key['id']}\tscopes: {','.join(key['scopes'])}\texpires: {ends}{named}")


@tenants.command()
@click.argument("name")
@click.option("--key", metavar="ID", help="Delete only this key, by its id in `tenants list`.")
@data_option
def revoke(name: str, key: str | None, data: Path | None) -> None:
    """Delete all keys of a tenant, or one. Its conversations stay."""
    check_name("tenant", name)

    async def drop() -> int:
        async with open_control(load_settings(data)) as control:
            control.state.tenant(name)
            return await control.revoke_keys(name, key)

    click.echo(f"revoked: {run(drop())}")
