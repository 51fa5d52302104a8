"""Pages of lists of memories, as the public interface has them: a page ends after some bytes, and a
large one is made beside others' requests.
"""

from __future__ import annotations

from functools import partial

import msgspec

from streams.memory.store import Filter
from streams.runtime.keyed_limit import LARGE, KeyedLimit
from threadfold.service.memories import Memories
from threadfold.service.memory_cursors import Page
from threadfold.service.pages import PAGE_BYTES


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
        return _document(page)
    del page
    async with turns.of(only.tenant) as turn:
        page = await memories.page(only, before, limit, PAGE_BYTES)
        turn.worked(page.seconds)
        return await turn.work(page.size, partial(_document, page))


def _document(page: Page) -> bytes:
    # Each by itself: one call for all of them would hold Python's lock to its end.
    records = b",".join([msgspec.json.encode(one.document()) for one in page.records])
    cursor = msgspec.json.encode(page.next_before)
    return b'{"memories":[%b],"next_before":%b}' % (records, cursor)
