"""Lists of memories, as the public interface has them: a page ends after some bytes, and a large
one is made beside others' requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

import msgspec

from projections.memory.resolution import Record
from streams.memory.store import Filter
from streams.runtime.keyed_limit import KeyedLimit
from threadfold.service.memories import Memories
from threadfold.service.memory_cursors import Page
from threadfold.service.pages import PAGE_BYTES
from threadfold.service.whose import Whose

LARGE = 16 << 10
"""Bytes from which on a list is large: hundreds of such lists a second take all of a processor."""
MANY = 20
"""Records that may be as many bytes."""


async def page_document(
    memories: Memories, turns: KeyedLimit, only: Filter, before: str | None, limit: int
) -> bytes:
    """A page of records, newest first, and the cursor of the next, as JSON. It ends after 4 MiB.
    Only a large one waits for one of its tenant's ``turns``; what was read of it by then is read
    again: it may be erased by now, and what waits is not in memory.

    Raises:
        Overloaded: too much of the tenant waits, or no turn came in time.
        Others: as ``Memories.page`` says.
    """
    page = await memories.page(only, before, limit, LARGE)
    if page.size < LARGE:
        return _page(page)
    del page
    async with turns.of(only.tenant) as turn:
        page = await memories.page(only, before, limit, PAGE_BYTES)
        turn.worked(page.seconds)
        return await turn.beside(partial(_page, page))


async def timeline_document(
    memories: Memories, turns: KeyedLimit, whose: Whose, memory_id: str, before: int, after: int
) -> bytes:
    """A record between its neighbours in time, oldest first, as JSON; many wait for one of their
    tenant's ``turns``. Raises as :func:`page_document`, and as ``Memories.get``.
    """
    if before + after < MANY:
        found, _ = await memories.timeline(whose, memory_id, before, after)
        return _timeline(found)
    async with turns.of(whose.tenant) as turn:
        found, seconds = await memories.timeline(whose, memory_id, before, after)
        turn.worked(seconds)
        return await turn.beside(partial(_timeline, found))


def _page(page: Page) -> bytes:
    cursor = msgspec.json.encode(page.next_before)
    return b'{"memories":[%b],"next_before":%b}' % (_documents(page.records), cursor)


def _timeline(records: Iterable[Record]) -> bytes:
    return b'{"memories":[%b]}' % _documents(records)


def _documents(records: Iterable[Record]) -> bytes:
    # Each by itself: one call for all of them would hold Python's lock to its end.
    return b",".join([msgspec.json.encode(one.document()) for one in records])
