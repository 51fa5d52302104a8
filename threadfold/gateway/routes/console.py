"""The console: a page of static files, and what it asks first. Its files are built ahead from
``console/`` (docs/decisions/0035-console.md) and are part of the package.

The page asks this host alone, and runs nothing but its own script: its security policy says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Any

from msgspec import UNSET, Struct, UnsetType
from starlette.responses import RedirectResponse, Response

from projections.errors import Overloaded, RedisUnavailable
from projections.events.times import time_at
from streams.compaction.summarizers.budgets import Spending
from threadfold.gateway.access import PRINCIPAL, Caller
from threadfold.gateway.answers import Count, KeyScope
from threadfold.gateway.declaration import Answer, Cost, Routes
from threadfold.gateway.examples import QUOTA, TIME
from threadfold.gateway.last_hour import EVERY, MINUTE
from threadfold.gateway.parameters import Path, Query
from threadfold.gateway.problems import NotConnected, NotFound
from threadfold.gateway.request import Request
from threadfold.gateway.routes.common import file_answer
from threadfold.gateway.routes.tenants import SummaryUse
from threadfold.gateway.tokens import Principal
from threadfold.quotas.quotas import shown_quota

routes = Routes("Service")
_free = partial(routes.add, "GET", cost=Cost.FREE, hidden=True)
_FILES = FilePath(__file__).parents[2] / "console"
_MEDIA = {
    "console.js": "text/javascript; charset=utf-8",
    "console.css": "text/css; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "licences.txt": "text/plain; charset=utf-8",
}
_SECURITY = {
    "Content-Security-Policy": (
        "default-src 'none'; base-uri 'none'; connect-src 'self'; form-action 'none';"
        " frame-ancestors 'none'; img-src 'self'; script-src 'self'; style-src 'self'"
    ),
    "Cross-Origin-Opener-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
TENANTS = 10
"""Tenants that are named, of those that used most."""
_PAGE = {**_SECURITY, "Cache-Control": "no-cache"}
# The page names its files with the hash of what they were built from.
_FILE = {**_SECURITY, "Cache-Control": "public, max-age=31536000, immutable"}


class Me(Struct):
    """Whose the credential is, and its scopes. `quota` is the tenant's with the deployment's
    defaults. `used_last_minute` is what the tenant used of its rates, at all gateways together, by
    the quotas' names and in their units. It and `used_today` are null while Redis does not answer.
    Of an end user's token `user` says whose it is; the tenant's quota and what it used are not
    shown to end users.
    """

    tenant: str
    scopes: list[KeyScope]
    quota: dict[str, Any]
    used_today: SummaryUse | None
    used_last_minute: dict[str, float] | None
    user: str | UnsetType = UNSET


_ME = {
    "tenant": "nord",
    "scopes": ["append", "read", "subscribe"],
    "quota": QUOTA,
    "used_today": {"summary_tokens": 812000, "summary_cost": 1.25},
    "used_last_minute": {
        "requests_per_second": 4.5,
        "events_per_second": 11.0,
        "tokens_per_minute": 9100.0,
        "rollbacks_per_minute": 0.0,
    },
}


class Plots(Struct):
    """Figures of the last hour: by name one value for every `every` seconds, oldest first, from
    `begins` on. A value that nobody knows is null.
    """

    begins: str
    every: Count
    figures: dict[str, list[float | None]]


class MyHour(Struct):
    """What the tenant used at all gateways together in the last hour, minute by minute: by the
    names of its quotas and in their units, whether they are limited or not.
    """

    hour: Plots


class TenantUse(SummaryUse, kw_only=True):
    """What the summaries of a tenant have used today."""

    tenant: str


class AllUse(SummaryUse, kw_only=True):
    """What the summaries of all tenants have used today, and of the tenants that used most tokens,
    most first.
    """

    tenants: list[TenantUse]


class Platform(Struct):
    """The platform's last hour, and what summaries by models used today (null while that is
    unknown). `events` (that workers folded) and `requests` are by second, `dead_letters` are those
    that were new; `behind` (events), `seconds_behind` (of the partition that is most) and `due`
    (conversations, for a summary) are levels.
    """

    hour: Plots
    used_today: AllUse | None


_BEGINS = {"begins": TIME}
_MY_HOUR = {"hour": {**_BEGINS, "every": 60, "figures": {"requests_per_second": [4.5, 0.0]}}}
_PLATFORM = {
    "hour": {**_BEGINS, "every": 10, "figures": {"events": [310.5, None], "behind": [0, 12]}},
    "used_today": {
        "summary_tokens": 812000,
        "summary_cost": 1.25,
        "tenants": [{"tenant": "nord", "summary_tokens": 812000, "summary_cost": 1.25}],
    },
}


@_free("/")
async def root() -> Response:
    """The console is where a browser begins."""
    return RedirectResponse("console")


@_free("/console")
async def console() -> Response:
    """The console's page."""
    return file_answer(_FILES / "index.html", "text/html; charset=utf-8", _PAGE)


@_free("/console/{asset}")
async def console_asset(
    asset: Annotated[str, Path()], v: Annotated[str | None, Query()] = None
) -> Response:
    """A file of the page. `v` is the hash of its sources, so that browsers may keep it."""
    media = _MEDIA.get(asset)
    if media is None:
        raise NotFound("there is no such file of the page /console")
    return file_answer(_FILES / asset, media, _FILE)


@routes.add(
    "GET", "/v1/me", "Show whose the credential is", Answer(Me, example=_ME), end_users=True
)
async def get_me(request: Request, caller: Caller) -> dict[str, Any]:
    """The tenant, the scopes and the quota of the request's key or token, and what is used."""
    principal: Principal | None = request.scope.get(PRINCIPAL)
    scopes = sorted(principal.scopes) if principal is not None else []
    if caller.end_user is not None:
        nothing: dict[str, Any] = {"quota": {}, "used_today": None, "used_last_minute": None}
        return {"tenant": caller.tenant, "scopes": scopes, **nothing, "user": caller.end_user.user}
    quotas = caller.quotas
    spent = None if quotas is None else await quotas.spent_today(caller.tenant)
    used = None
    with suppress(RedisUnavailable, NotConnected, Overloaded):
        used = (await request.state.last_hour().of_tenant(caller.tenant)).last_minute
    default = caller.backend.settings.quota()
    return {
        "tenant": caller.tenant,
        "scopes": scopes,
        "quota": shown_quota(caller.backend.control.state.quota_of(caller.tenant, default)),
        "used_today": None if spent is None else _spent(spent),
        "used_last_minute": used,
    }


@routes.add(
    "GET",
    "/v1/me/hour",
    "Show what the tenant used in the last hour",
    Answer(MyHour, example=_MY_HOUR),
    scope="read",
)
async def get_my_hour(request: Request, caller: Caller) -> dict[str, Any]:
    """What the tenant used of its rates in the last hour, minute by minute."""
    found = await request.state.last_hour().of_tenant(caller.tenant)
    return {"hour": _plots(found.begins, MINUTE, found.figures)}


@routes.add(
    "GET",
    "/v1/platform",
    "Show the platform's last hour",
    Answer(Platform, example=_PLATFORM),
    scope="admin",
    cost=Cost.ADMINISTRATION,
)
async def get_platform(request: Request, caller: Caller) -> dict[str, Any]:
    """What the platform did in the last hour, every 10 s, and what summaries by models used since
    00:00 UTC: of all tenants, and of the ten that used most.
    """
    quotas = caller.quotas
    spent = None if quotas is None else await quotas.all_spent_today(TENANTS)
    used = spent and {
        **_spent(spent.all),
        "tenants": [{"tenant": tenant, **_spent(one)} for tenant, one in spent.most],
    }
    found = await request.state.last_hour().platform()
    return {"hour": _plots(found.begins, EVERY, found.figures), "used_today": used}


def _spent(spent: Spending) -> dict[str, float]:
    return {"summary_tokens": spent.tokens, "summary_cost": spent.cost}


def _plots(begins: float, every: int, figures: Mapping[str, Any]) -> dict[str, Any]:
    return {"begins": time_at(int(begins * 1e6)), "every": every, "figures": figures}
