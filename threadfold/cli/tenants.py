"""``tenants add|policy|list|show|revoke|export|import``: the tenants, their policies, quotas and
keys, and the way into another deployment.
"""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import click
import msgspec

from projections.errors import InvalidKey, RedisUnavailable
from projections.events.times import rfc3339
from projections.names import check_name
from projections.redis.daily_counts import DailyCounts
from streams.compaction.summarizers.budgets import Spending, spent_today
from streams.control.state import State
from streams.maintenance.tenant_move import export_tenant, import_tenant
from streams.settings.policy_file import of_policy_file, read_layer
from streams.settings.quotas import (
    DEFAULT_SCOPES,
    SCOPES,
    check_expiry,
    check_key_name,
    check_scopes,
    shown_key,
)
from streams.settings.settings import Settings
from threadfold.cli.common import (
    data_option,
    load_settings,
    open_control,
    print_json,
    read_state,
    run,
    say,
)
from threadfold.cli.progress import metered
from threadfold.cli.whole_help import Group
from threadfold.quotas.quotas import shown_quota


@click.group(cls=Group)
def tenants() -> None:
    """Add and list tenants, change their policies, revoke their keys, move them elsewhere."""


@tenants.command()
@click.argument("name")
@click.option(
    "--policy",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="The tenant's policy, TOML or JSON.",
)
@click.option(
    "--encryption",
    type=click.Choice(["on", "off"]),
    help="Whether payloads are encrypted in the log. An erasure leaves unencrypted payloads there"
    " [default: the policy's].",
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
    encryption: str | None,
    scopes: str | None,
    expires: str | None,
    key_name: str | None,
    data: Path | None,
) -> None:
    """Record a tenant and print a new key for it, alone on stdout. The key is shown only once:
    the deployment stores its hash.

    --encryption, or the policy's key `encryption`, says whether a new tenant is encrypted. On a
    terminal the command asks. Without an answer the tenant is not encrypted, and a line on stderr
    says so.
    """
    check_name("tenant", name)
    granted = _scopes(scopes)
    ends = _expiry(expires)
    check_key_name(key_name)
    values = read_layer(policy) if policy else None
    settings = load_settings(data)
    seals = None if encryption is None else encryption == "on"
    if seals is None and "encryption" not in (values or {}):
        seals = _ask_for_encryption(settings, name)
    with of_policy_file(policy):
        key, waits, made, sealed = run(_add(settings, name, values, seals, granted, ends, key_name))
    if waits:
        say(_WAITS.format(name=name))
    if made and not sealed:
        say(
            f"tenant {name} is not encrypted: an erasure deletes windows and lists, and leaves the"
            " text in the log (docs/erasure.md); --encryption on encrypts a new tenant"
        )
    click.echo(key)


def _ask_for_encryption(settings: Settings, name: str) -> bool | None:
    """The answer of whoever sits at the terminal; None if nobody does, if there is no master key to
    encrypt with, or if the tenant exists.
    """
    if not (sys.stdin.isatty() and sys.stderr.isatty()):
        return None
    if not (settings.master_keys or settings.master_keys_file) or run(_exists(settings, name)):
        return None
    question = "Encrypt its payloads, so that an erasure reaches the log?"
    return click.confirm(question, default=False, err=True)


async def _exists(settings: Settings, name: str) -> bool:
    async with open_control(settings) as control:
        return name in control.state.tenants


_WAITS = (
    "tenant {name} exists: its new policy takes effect with the next generation (`threadfold"
    " rebuild --switch`)"
)


@tenants.command("policy")
@click.argument("name")
@click.argument("file", type=click.Path(path_type=Path), metavar="FILE")
@data_option
def policy_(name: str, file: Path, data: Path | None) -> None:
    """Replace a tenant's policy with that of FILE (TOML or JSON). Its keys stay, and its encryption
    unless FILE has the key `encryption`.

    The policy takes effect with the next generation (`threadfold rebuild --switch`). To discard a
    waiting policy, give the policy that is in force now.
    """
    check_name("tenant", name)
    values = read_layer(file)

    async def change() -> tuple[bool, bool]:
        async with open_control(load_settings(data)) as control:
            tenant = await control.change_tenant(name, values, None)
            waiting = tenant.next_policy
            ends = (waiting or {}).get("encryption") is False and control.state.encrypted(name)
            return waiting is not None, ends

    with of_policy_file(file):
        waits, ends = run(change())
    click.echo(
        f"tenant {name}: the policy {'waits for the next generation' if waits else 'is in force'}"
    )
    if waits:
        say(_WAITS.format(name=name))
    if ends:
        say(f"tenant {name}: its new text then stays readable in the log (docs/erasure.md)")


async def _add(
    settings: Settings,
    name: str,
    policy: dict[str, Any] | None,
    seals: bool | None,
    scopes: tuple[str, ...] | None,
    ends: str | None,
    key_name: str | None,
) -> tuple[str, bool, bool, bool]:
    """The key; whether the policy waits; whether the tenant is new; whether it is encrypted.

    ``seals`` is whether it is to be; where no policy is given, all else of a known tenant's stays.
    """
    async with open_control(settings) as control:
        known = control.state.tenants.get(name)
        made = known is None
        if seals is not None:
            if policy is None and known is not None:
                waiting = known.next_policy
                policy = control.state.policy_of(known) if waiting is None else waiting
            policy = {**(policy or {}), "encryption": seals}
        tenant = await control.ensure_tenant(name, policy)
        waiting = tenant.next_policy
        waits = policy is not None and waiting is not None and waiting | policy == waiting
        key = await control.add_key(name, scopes, name=key_name, expires_at=ends)
        return key, waits, made, control.state.encrypted(name)


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
        reason = str(error).replace("expires_at", "the time")
        raise click.BadParameter(
            f"{reason}; or a number of days, like 90d", param_hint="--expires"
        ) from None


@tenants.command("list")
@click.option(
    "--json", "as_json", is_flag=True, help="One JSON object a line: policy, quota and keys."
)
@data_option
def list_(as_json: bool, data: Path | None) -> None:
    """Print one line for each tenant (number of keys, scopes, policy, quota), and below it one for
    each key (id, scopes, expiry).
    """
    state = read_state(data)
    for name in sorted(state.tenants.keys() | {key.tenant for key in state.keys.values()}):
        _print_tenant(state, name, as_json)


@tenants.command()
@click.argument("name")
@data_option
def show(name: str, data: Path | None) -> None:
    """Print one tenant as JSON: the fields of `list --json`, its quota in force with the
    deployment's defaults (null: no limit), and the use of the daily budgets by its summaries since
    00:00 UTC (null while Redis does not answer).
    """
    check_name("tenant", name)
    settings = load_settings(data)
    state = read_state(data)
    shown = _shown(state, name)
    quota = state.quota_of(name, settings.quota())
    spent = run(_spent_today(settings, name))
    used = spent and {"summary_tokens": spent.tokens, "summary_cost": spent.cost}
    print_json({**shown, "quota_in_force": shown_quota(quota), "used_today": used})


async def _spent_today(settings: Settings, name: str) -> Spending | None:
    counts = DailyCounts(settings.redis, settings.topic_prefix)
    try:
        return await spent_today(counts, name)
    except RedisUnavailable:
        return None
    finally:
        await counts.close()


def _shown(state: State, name: str) -> dict[str, Any]:
    tenant, now = state.tenant(name), time.time()
    return {
        "name": name,
        "policy": state.policy_of(tenant),
        "policy_error": state.policy_error(name),
        "next_policy": tenant.next_policy,
        "encryption": state.encrypted(name),
        "quota": {
            kind: value
            for kind, value in msgspec.structs.asdict(tenant.quota).items()
            if value is not None
        },
        "keys": [shown_key(hashed, key, now) for hashed, key in state.keys_of(name).items()],
    }


def _print_tenant(state: State, name: str, as_json: bool) -> None:
    shown, tenant = _shown(state, name), state.tenant(name)
    keys, quota = shown["keys"], shown["quota"]
    if as_json:
        print_json(shown)
        return
    policy = ",".join(sorted(state.policy_of(tenant))) or "-"
    if shown["policy_error"] is not None:
        policy += f" (cannot be used here: {shown['policy_error']})"
    if tenant.next_policy is not None:
        policy += f" (next: {','.join(sorted(tenant.next_policy)) or '-'})"
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


@tenants.command("export")
@click.argument("name")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@data_option
def export_(name: str, folder: Path, data: Path | None) -> None:
    """Write all data of a tenant into a new FOLDER, for `tenants import` elsewhere.

    Refuse its appends first (`threadfold maintenance on --tenant NAME`): later events are not
    exported. FOLDER contains its texts and the hashes of its API keys, but no master keys.
    """
    check_name("tenant", name)
    settings = load_settings(data)
    with metered("export", "records") as meter:
        manifest = run(export_tenant(settings, name, folder, meter))
    events = sum(saved.records for saved in manifest.topics["events"])
    click.echo(f"exported tenant {name}: {events} events")


@tenants.command("import")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@data_option
def import_(folder: Path, data: Path | None) -> None:
    """Write the tenant of FOLDER into this deployment, which must not have this tenant.

    Stop the workers first; gateways may run. If the import is interrupted, repeat it: it continues.
    """
    settings = load_settings(data)
    with metered("import", "records") as meter:
        moved = run(import_tenant(settings, folder, meter))
    if moved.resumed:
        click.echo(f"from an earlier attempt: {moved.resumed} events")
    click.echo(f"imported tenant {moved.tenant}: {moved.events} events")
    if moved.differing:
        say(
            "the deployment's policy is another than where it came from:"
            f" {', '.join(moved.differing)}; the tenant's windows may differ"
        )
