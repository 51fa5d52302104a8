"""The routes that erase: a conversation, or all of a user's."""

from __future__ import annotations

from functools import partial
from typing import Annotated

from msgspec import Meta, Struct

from threadfold.gateway.access import Caller
from threadfold.gateway.declaration import Answer, Routes
from threadfold.gateway.parameters import Path
from threadfold.gateway.request import Request
from threadfold.gateway.routes.common import C, Conversation
from threadfold.service.erasure import Eraser
from threadfold.service.erasure_receipt import Receipt

routes = Routes("Erasure")
_erase = partial(routes.add, "DELETE", scope="erase", problems=(409,))
_RECEIPT = "The receipt: the result in each store, and the time by which it is final."


class Receipts(Struct):
    """A receipt for each conversation that belonged to this `user`, by name. One whose name begins
    with `~` is that of the user's memory, which no other route names.
    """

    user: str
    conversations: list[Receipt]


@_erase(C, "Erase a conversation", Answer(Receipt, _RECEIPT))
async def delete_conversation(
    request: Request, caller: Caller, conversation: Conversation
) -> Receipt:
    """Erase a conversation for good. This cannot be undone.

    A repeat has the same receipt. After a 503, repeat the request: it continues where it stopped.
    `log` is `opaque` if all payloads were encrypted (policy key `encryption`), else `kept`.
    """
    return await _eraser(request, caller).conversation(caller.tenant, conversation)


@_erase("/v1/users/{user:path}", "Erase a user's conversations", Receipts)
async def delete_user(
    request: Request,
    caller: Caller,
    user: Annotated[str, Path(example="u-7"), Meta(min_length=1)],
) -> Receipts:
    """Erase all conversations that belong to this `user` now: those whose last
    `conversation.opened` with a `user` names it.

    One that was given to another user since is not erased. Erase it by its name.
    """
    return Receipts(user, await _eraser(request, caller).user(caller.tenant, user))


def _eraser(request: Request, caller: Caller) -> Eraser:
    live = request.state.streams()
    return Eraser(
        caller.backend, lambda key, erased: live.forget(key.tenant, key.conversation, erased)
    )
