"""Calls over one transport: repeated while that is safe, their answers decoded."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any, TypeVar

import msgspec

from threadfold_client.calls import Call, Retries, Transport, may_repeat
from threadfold_client.errors import ClientError, Invalid, unusable

T = TypeVar("T")
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,128}", re.ASCII)


class Caller:
    """Sends calls over ``transport`` and repeats those that fail for a while, as ``retries``
    says.
    """

    def __init__(self, transport: Transport, retries: Retries) -> None:
        self.transport = transport
        self.retries = retries

    async def read(self, call: Call, reading: Callable[[bytes], T]) -> T:
        """What ``reading`` makes of the answer's body; raises a :class:`ClientError`.

        A body that it cannot read (``msgspec.DecodeError``) counts as no answer.
        """
        begun = time.monotonic()
        failures, lost = 0, False
        while True:
            try:
                return await self._attempt(call, reading)
            except ClientError as error:
                failures += 1
                if lost and call.method != "GET":
                    error.unknown = True  # this refusal did not undo what an earlier attempt did
                lost = lost or error.unknown
                delay = self.retries.delay(failures, error.retry_after)
                late = time.monotonic() - begun + delay > self.retries.total
                if late or failures >= self.retries.attempts or not may_repeat(call, error):
                    raise
            await asyncio.sleep(delay)

    async def decoded(self, call: Call, form: type[T]) -> T:
        """The answer as ``form``; raises a :class:`ClientError`."""
        return await self.read(call, lambda body: msgspec.json.decode(body, type=form))

    async def document(self, call: Call) -> dict[str, Any]:
        """The answer as an object."""
        return await self.decoded(call, dict[str, Any])

    async def pages(
        self, path: str, filters: Mapping[str, str | int]
    ) -> AsyncIterator[dict[str, Any]]:
        """The items of all pages of a list.

        A page is an object with one list, and ``next_NAME``: the parameter ``NAME`` of the next
        page.
        """
        query = dict(filters)
        while True:
            page = await self.document(Call("GET", path, query=query))
            for listed in page.values():
                if isinstance(listed, list):
                    for item in listed:
                        yield item
            cursors = {
                name.removeprefix("next_"): value
                for name, value in page.items()
                if name.startswith("next_") and value
            }
            if not cursors:
                return
            query.update(cursors)

    async def _attempt(self, call: Call, reading: Callable[[bytes], T]) -> T:
        body = await self.transport.request(call)
        try:
            return reading(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise unusable(call.method, f"is not as expected: {error}") from None


def conversation_path(conversation: str) -> str:
    """The path of a conversation.

    Raises:
        Invalid: it is not a name: 1 to 128 characters of ``A-Z a-z 0-9 . _ : -``; or it is ``.`` or
            ``..``, which a URL cannot carry.
    """
    if not isinstance(conversation, str) or not _NAME.fullmatch(conversation):
        shown = repr(conversation)
        raise Invalid(
            f"conversation {shown if len(shown) <= 42 else shown[:41] + '…'} is not a name: use 1"
            " to 128 characters of A-Z a-z 0-9 . _ : -",
            status=422,
            type="invalid-name",
            title="Invalid name",
        )
    if conversation in (".", ".."):
        raise Invalid(
            f"conversation {conversation} cannot be named in a URL: over HTTP it means another one",
            status=422,
            type="invalid-name",
        )
    return f"/conversations/{conversation}"


def query_of(**given: str | int | None) -> dict[str, str | int]:
    """The parameters that are given."""
    return {name: value for name, value in given.items() if value is not None}


def fencing(fence: int | None) -> dict[str, str]:
    """The header of a turn's fencing token, if any."""
    return {} if fence is None else {"Fencing-Token": str(fence)}


def conditions(expect: str | None, only_if_new: bool, fence: int | None) -> dict[str, str]:
    """The headers of an append's conditions.

    Raises:
        Invalid: both ``expect`` and ``only_if_new`` are given.
    """
    headers = fencing(fence)
    if expect is not None and only_if_new:
        raise Invalid(
            "give expect or only_if_new: a new conversation has no position",
            status=422,
            type="invalid-request",
        )
    if expect is not None:
        headers["If-Match"] = f'"{expect}"'
    if only_if_new:
        headers["If-None-Match"] = "*"
    return headers
