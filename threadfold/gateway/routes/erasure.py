"""The routes that erase: a conversation, or all of a user's."""

from __future__ import annotations

from typing import Annotated, Any

from msgspec import Struct
from starlette.responses import Response

from threadfold.gateway.access import Caller
from threadfold.gateway.declaration import Answer, Routes
from threadfold.gateway.parameters import Path
from threadfold.gateway.request import Request
from threadfold.gateway.routes.common import CONVERSATION, C, Conversation, answer
from threadfold.service.erasure import Eraser, Receipt

routes = Routes("Erasure")
_RECEIPT: dict[str, Any] = {
    "conversation": CONVERSATION,
    "position": "3-61",
    "erased_at": "2026-01-31T12:00:00.000Z",
    "log": "opaque",
    "stores": {
        "log": {
            "state": "opaque",
            "deadline": None,
            "how": "payloads are encrypted with a key that is deleted",
        },
        "keys": {
            "state": "deleted",
            "deadline": "2026-02-01T13:00:00.000Z",
            "how": "void at once; the broker drops the wrapped keys by then",
        },
        "windows": {
            "state": "deleted",
            "deadline": None,
            "how": "in all generations; only the fact of the erasure is left",
        },
    },
}


class Receipts(Struct):
    """A receipt for each conversation that was opened with this `user`."""

    user: str
    conversations: list[Receipt]


@routes.add(
    "DELETE",
    C,
    scope="erase",
    summary="Erase a conversation",
    answers={
        200: Answer(Receipt, _RECEIPT, "The receipt: what becomes of each store, and until when.")
    },
    problems=(404, 409),
)
async def delete_conversation(
    request: Request, caller: Caller, conversation: Conversation
) -> Response:
    """Erase a conversation for good. The receipt says what becomes of each store, and until when.

    A repeat has the same receipt; after a 503 repeat it, and it goes on where it was. `log` is
    `opaque` where all payloads were encrypted (policy key `encryption`), else `kept`.
    """
    return answer(await _eraser(request, caller).conversation(caller.tenant, conversation))


@routes.add(
    "DELETE",
    "/v1/users/{user:path}",
    scope="erase",
    summary="Erase a user's conversations",
    answers={
        200: Answer(
            Receipts,
            {"user": "u-7", "conversations": [_RECEIPT]},
            "A receipt for each conversation that was opened with this `user`, by name.",
        )
    },
    problems=(404, 409),
)
async def delete_user(
    request: Request, caller: Caller, user: Annotated[str, Path(example="u-7")]
) -> Response:
    """Erase all conversations that were opened with this `user`."""
    receipts = await _eraser(request, caller).user(caller.tenant, user)
    return answer({"user": user, "conversations": receipts})


def _eraser(request: Request, caller: Caller) -> Eraser:
    live = request.state.streams()
    return Eraser(caller.backend, lambda key: live.forget(key.tenant, key.conversation))
