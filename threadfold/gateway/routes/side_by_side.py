"""The route that shows one conversation's windows under two policies side by side."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from msgspec import Meta, Struct

from projections.names import make_key
from streams.rebuild.side_by_side import WantedWindow
from threadfold.gateway.access import PRINCIPAL, Caller
from threadfold.gateway.answers import Count
from threadfold.gateway.declaration import Answer, Cost, Routes
from threadfold.gateway.examples import CONVERSATION
from threadfold.gateway.request import Body, Request
from threadfold.gateway.routes.reprojection import (
    NOT_BOTH,
    GenerationNumber,
    PolicyBody,
    TokenSides,
    check_not_both,
    tasks_of,
)
from threadfold.gateway.tokens import Principal
from threadfold.schemas.structs import NAME

routes = Routes("Operations")
_Name = Annotated[str, Meta(extra_json_schema=NAME)]


class WindowToCompare(Struct, forbid_unknown_fields=True):
    """A conversation, and what to compare with the live generation: a `policy` of the deployment,
    or that of a `generation`.
    """

    tenant: _Name
    conversation: _Name
    policy: PolicyBody | None = None
    generation: GenerationNumber | None = None


class SideMessage(Struct):
    """A message of a window: where it stands in it (`lane`), its tokens, its event's position
    (null: of no single event), and which reducers shortened it. `text` are its first 500
    characters, with its calls; null where the key may not see it.
    """

    lane: Literal["system", "summary", "pinned", "omitted", "tail", "closing"]
    role: str
    tokens: Count
    position: str | None
    shortened: list[str]
    text: str | None


class SideRow(Struct):
    """A message as it is under the live generation, and under the other rules; null: it is not
    there. `differs`: a model is not sent the same.
    """

    before: SideMessage | None
    after: SideMessage | None
    differs: bool


class TwoWindows(Struct):
    """The two windows of a conversation, row by row. `differing` counts the rows that differ;
    `more` are older rows that are not shown. `text` says whether texts are shown; `lost`, why a
    switch would lose what its summaries hold. Tokens are null if a window cannot be rendered.
    """

    generation: Count
    tenant: str
    conversation: str
    events: Count
    text: bool
    tokens: TokenSides
    lost: str | None
    differing: Count
    more: Count
    rows: list[SideRow]


_SIDE = {
    "lane": "tail",
    "role": "user",
    "tokens": 9,
    "position": "3-118",
    "shortened": [],
    "text": "Where is order 4711?",
}
_TWO_WINDOWS = {
    "generation": 1,
    "tenant": "nord",
    "conversation": CONVERSATION,
    "events": 120,
    "text": True,
    "tokens": {"before": 18000, "after": 9000},
    "lost": None,
    "differing": 1,
    "more": 0,
    "rows": [{"before": _SIDE, "after": None, "differs": True}],
}


@routes.add(
    "POST",
    "/v1/generations/compare/window",
    "Compare a conversation's windows",
    Answer(TwoWindows, example=_TWO_WINDOWS),
    scope="admin",
    cost=Cost.ADMINISTRATION,
    body=Body(
        Annotated[WindowToCompare, Meta(extra_json_schema=NOT_BOTH)],
        {
            "a policy": {
                "tenant": "nord",
                "conversation": CONVERSATION,
                "policy": {"working_budget": 10000},
            }
        },
    ),
    problems=(404, 410),
)
async def post_compare_window(
    request: Request, caller: Caller, body: WindowToCompare
) -> dict[str, Any]:
    """A conversation's window as it is, and folded from the log under the other rules, message by
    message. Nothing is written.

    Texts are shown to a key of the conversation's own tenant that has the scope `read`. Others see
    where messages stand, their tokens and what shortened them. At most 20,000 events are folded.
    """
    check_not_both(body.policy, body.generation)
    key = make_key(body.tenant, body.conversation)
    principal: Principal | None = request.scope.get(PRINCIPAL)
    reads = principal is None or "read" in principal.scopes
    wanted = WantedWindow(
        *key, body.policy, body.generation, text=reads and key.tenant == caller.tenant
    )
    return await tasks_of(request, caller).compare_window(caller.tenant, wanted)
