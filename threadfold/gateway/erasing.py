"""The routes under ``/v1`` that erase: a conversation, or all of a user's."""

from __future__ import annotations

from typing import Annotated

import msgspec
from fastapi import APIRouter, Depends
from fastapi.responses import Response

from threadfold.erasure import Eraser
from threadfold.gateway.access import Caller, caller_with

router = APIRouter(prefix="/v1")
EraseCaller = Annotated[Caller, Depends(caller_with("erase"))]


@router.delete("/conversations/{conversation}")
async def delete_conversation(conversation: str, caller: EraseCaller) -> Response:
    """Erase a conversation, for good: answers the receipt, which says of each store what becomes of it and until when.

    Repeated, it answers the same receipt; after a 503 repeat it, and it goes on where it was. `log` is `opaque` where all payloads were
    sealed (policy key `encryption`), else `kept`.
    """
    receipt = await Eraser(caller.backend).conversation(caller.tenant, conversation)
    return Response(msgspec.json.encode(receipt), media_type="application/json")


@router.delete("/users/{user:path}")
async def delete_user(user: str, caller: EraseCaller) -> Response:
    """Erase all conversations that were opened with this `user`: answers `{"user", "conversations": [receipt, …]}`, by name."""
    receipts = await Eraser(caller.backend).user(caller.tenant, user)
    return Response(msgspec.json.encode({"user": user, "conversations": receipts}), media_type="application/json")
