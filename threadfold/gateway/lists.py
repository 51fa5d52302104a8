"""The routes of a tenant's lists: conversations, what waits for somebody, and a conversation's
summaries.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Query
from fastapi.responses import Response

from threadfold.gateway.access import Caller, caller_with
from threadfold.service import lists

router = APIRouter(prefix="/v1")
Reader = Annotated[Caller, Depends(caller_with("read"))]
Before = Annotated[str | None, Query(description="`next_before` of the page before")]
Limit = Annotated[int, Query(ge=1, le=lists.MAX_LISTED)]


@router.get("/conversations")
async def get_conversations(caller: Reader, before: Before = None, limit: Limit = 50) -> Response:
    """The tenant's conversations, the one that was active last first, with their state."""
    return _json(
        await lists.conversations(caller.backend, caller.tenant, before=before, limit=limit)
    )


@router.get("/suspensions")
async def get_suspensions(caller: Reader, before: Before = None, limit: Limit = 50) -> Response:
    """What waits for somebody: all open suspensions of the tenant, of the conversation first that
    began to wait last.

    `limit` is a number of conversations; each comes with all that is open in it.
    """
    return _json(await lists.suspensions(caller.backend, caller.tenant, before=before, limit=limit))


@router.get("/conversations/{conversation}/summaries")
async def get_summaries(
    conversation: str, caller: Reader, before: Before = None, limit: Limit = 20
) -> Response:
    """The summary in force and those that it stands on, newest first."""
    return _json(
        await lists.summaries(
            caller.backend, caller.tenant, conversation, before=before, limit=limit
        )
    )


def _json(document: object) -> Response:
    return Response(msgspec.json.encode(document), media_type="application/json")
