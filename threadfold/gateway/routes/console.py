"""The console: a page of static files, and what it asks first. Its files are built ahead from
``console/`` (docs/decisions/0035-console.md) and are part of the package.

The page asks this host alone, and runs nothing but its own script: its security policy says so.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path as FilePath
from typing import Annotated, Any

from msgspec import UNSET, Struct, UnsetType
from starlette.responses import FileResponse, RedirectResponse, Response

from threadfold.gateway.access import PRINCIPAL, Caller
from threadfold.gateway.answers import KeyScope
from threadfold.gateway.declaration import Answer, Cost, Routes
from threadfold.gateway.examples import QUOTA
from threadfold.gateway.parameters import Path, Query
from threadfold.gateway.problems import NotFound
from threadfold.gateway.request import Request
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
_PAGE = {**_SECURITY, "Cache-Control": "no-cache"}
# The page names its files with the hash of what they were built from.
_FILE = {**_SECURITY, "Cache-Control": "public, max-age=31536000, immutable"}


class Me(Struct):
    """Whose the credential is, and its scopes. `quota` is the tenant's with the deployment's
    defaults; `used_today` is null while Redis does not answer. Of an end user's token `user` says
    whose it is; the tenant's quota and what it used are not shown to end users.
    """

    tenant: str
    scopes: list[KeyScope]
    quota: dict[str, Any]
    used_today: SummaryUse | None
    user: str | UnsetType = UNSET


_ME = {
    "tenant": "nord",
    "scopes": ["append", "read", "subscribe"],
    "quota": QUOTA,
    "used_today": {"summary_tokens": 812000, "summary_cost": 1.25},
}


@_free("/")
async def root() -> Response:
    """The console is where a browser begins."""
    return RedirectResponse("console")


@_free("/console")
async def console() -> Response:
    """The console's page."""
    return FileResponse(_FILES / "index.html", media_type="text/html; charset=utf-8", headers=_PAGE)


@_free("/console/{asset}")
async def console_asset(
    asset: Annotated[str, Path()], v: Annotated[str | None, Query()] = None
) -> Response:
    """A file of the page. `v` is the hash of its sources, so that browsers may keep it."""
    media = _MEDIA.get(asset)
    if media is None:
        raise NotFound("there is no such file of the page /console")
    return FileResponse(_FILES / asset, media_type=media, headers=_FILE)


@routes.add(
    "GET", "/v1/me", "Show whose the credential is", Answer(Me, example=_ME), end_users=True
)
async def get_me(request: Request, caller: Caller) -> dict[str, Any]:
    """The tenant, the scopes and the quota of the request's key or token."""
    principal: Principal | None = request.scope.get(PRINCIPAL)
    scopes = sorted(principal.scopes) if principal is not None else []
    if caller.end_user is not None:
        nothing: dict[str, Any] = {"quota": {}, "used_today": None}
        return {"tenant": caller.tenant, "scopes": scopes, **nothing, "user": caller.end_user.user}
    quotas = caller.quotas
    spent = None if quotas is None else await quotas.spent_today(caller.tenant)
    default = caller.backend.settings.quota()
    return {
        "tenant": caller.tenant,
        "scopes": scopes,
        "quota": shown_quota(caller.backend.control.state.quota_of(caller.tenant, default)),
        "used_today": None
        if spent is None
        else {"summary_tokens": spent.tokens, "summary_cost": spent.cost},
    }
