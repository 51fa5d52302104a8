"""The routes under ``/v1`` that erase: a conversation, or all of a user's."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends, Request
from fastapi.responses import Response

from threadfold.gateway.access import Caller, caller_with
from threadfold.gateway.streams import live_of
from threadfold.service.erasure import Eraser

router = APIRouter(prefix="/v1")
EraseCaller = Annotated[Caller, Depends(caller_with("erase"))]


@router.delete("/conversations/{conversation}")
async def delete_conversation(request: Request, conversation: str, caller: EraseCaller) -> Response:
    """Erase a conversation, for good: answers the receipt, which says of each store what becomes of
    it and until when.

    Repeated, it answers the same receipt; after a 503 repeat it, and it goes on where it was. `log`
    is `opaque` where all payloads were sealed (policy key `encryption`), else `kept`.
    """
    receipt = await _eraser(request, caller).conversation(caller.tenant, conversation)
    return Response(msgspec.json.encode(receipt), media_type="application/json")


@router.delete("/users/{user:path}")
async def delete_user(request: Request, user: str, caller: EraseCaller) -> Response:
    """Erase all conversations that were opened with this `user`: answers `{"user", "conversations":
    [receipt, …]}`, by name.
    """
    receipts = await _eraser(request, caller).user(caller.tenant, user)
    return Response(
        msgspec.json.encode({"user": user, "conversations": receipts}),
        media_type="application/json",
    )


def _eraser(request: Request, caller: Caller) -> Eraser:
    live = live_of(request)
    return Eraser(caller.backend, lambda key: live.forget(key.tenant, key.conversation))
