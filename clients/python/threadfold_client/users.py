"""The calls about end users, for the client: their tokens, and erasing what is theirs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote

from threadfold_client.caller import Caller, conversation_path
from threadfold_client.calls import Call
from threadfold_client.errors import Invalid
from threadfold_client.models import MintedToken, Verb


class UserCalls:
    """What :class:`AsyncClient` does for end users."""

    _caller: Caller

    async def mint_token(
        self,
        user: str,
        verbs: Sequence[Verb],
        *,
        conversations: Sequence[str] | None = None,
        expires_in: int | None = None,
    ) -> MintedToken:
        """Mint a token for an end user, with the tenant's key: on your server, never in a page.

        Args:
            conversations: the token opens only these of the user's conversations.
            expires_in: seconds; the service's default is 900.

        Raises:
            Invalid: ``verbs`` or ``conversations`` is a text, not a list.
        """
        body: dict[str, Any] = {"user": user, "verbs": _listed("verbs", verbs)}
        if conversations is not None:
            body["conversations"] = _listed("conversations", conversations)
        if expires_in is not None:
            body["expires_in"] = expires_in
        return await self._caller.decoded(Call("POST", "/tokens", body=body), MintedToken)

    async def erase(self, conversation: str) -> dict[str, Any]:
        """Erase the conversation for good; answers the receipt: each store with its deadline."""
        return await self._caller.document(Call("DELETE", conversation_path(conversation)))

    async def erase_user(self, user: str) -> dict[str, Any]:
        """Erase all conversations that belong to this user now; answers a receipt for each.

        Raises:
            Invalid: the user is empty, or named ``.`` or ``..``, which a URL cannot carry.
            Conflict: a parked conversation may become this user's or another one's; nothing is
                erased.
        """
        if not user:
            raise Invalid("user: expected 1 or more characters", status=422, type="invalid-name")
        if user in (".", ".."):
            raise Invalid(
                f"user {user} cannot be named in a URL: `threadfold erase TENANT --user {user}`"
                " erases it",
                status=422,
                type="invalid-name",
            )
        return await self._caller.document(Call("DELETE", f"/users/{quote(user, safe='')}"))


def _listed(name: str, given: Sequence[str]) -> list[str]:
    """What is given as a list: a text would be one of single characters."""
    if isinstance(given, str):
        raise Invalid(f"{name} is a text: expected a list", status=422, type="invalid-request")
    return list(given)
