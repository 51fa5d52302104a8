"""A record that repeats an event has no place in a history or a span, also where a rollback went
back beyond what the window holds.
"""

from __future__ import annotations

from typing import Any

import msgspec

from projections.events.codec import decode_event
from projections.events.types import AnyEvent, absolute, delta
from projections.fold.replay import apply_with_log
from projections.fold.summary_acceptance import why_not
from projections.names import Key
from projections.policy.policy import Rules
from projections.window.entry import Kind
from projections.window.recent_ids import LIMIT, RecentIds
from projections.window.window import Window
from streams.compaction.requests import piece_offsets, request_for
from tests.support.talks import summary_of
from threadfold.service.drafts import Drafter
from threadfold.service.pages import page
from threadfold.testing.memory_log import MemoryLog

KEY = Key("acme", "again")
RULES = Rules(
    {"working_budget": 400, "keep_recent_tokens": 20, "min_messages": 4, "summary_max_tokens": 100}
)
REPEAT, BACK = 7, 8


def message(i: int) -> dict[str, Any]:
    return {"type": "message", "id": f"e{i}", "role": "user", "content": f"said {i}"}


async def rolled_back_twice(more: int) -> tuple[MemoryLog, Window]:
    """Six messages, a rollback to the third, a repeat of the second, a rollback that opens the
    fifth again; then ``more`` messages.
    """
    flats = [message(i) for i in range(6)]
    flats += [
        {"type": "rollback", "id": "r1", "to": "e2"},
        message(1),
        {"type": "rollback", "id": "r2", "to": "e4"},
    ]
    flats += [
        {**message(100 + i), "content": f"later {i} " + "and more " * 10} for i in range(more)
    ]
    log = MemoryLog(1)
    records = Drafter(KEY.tenant, RULES, 1, 1 << 20).records(
        [(KEY.conversation, flat) for flat in flats], "event", False, None
    )
    positions = await log.append(records)
    window, earlier = Window(KEY, 0, RULES), list[tuple[int, AnyEvent]]()
    for position, record in zip(positions, records, strict=True):
        event = decode_event(record.value)
        apply_with_log(window, position.offset, event, earlier)
        earlier.append((position.offset, event))
    abandoned = next(entry for entry in window.tail if entry.offset == BACK)
    assert abandoned.kind == Kind.ABANDONED and abandoned.offsets() == [5, 6, BACK]
    assert window.meta.duplicates == 1
    return log, window


async def test_a_history_shows_no_repeat_in_what_a_rollback_abandoned() -> None:
    log, window = await rolled_back_twice(2)
    answer = await page(log, window, None, 100)
    shown = [int(event["position"].partition("-")[2]) for event in answer["events"]]
    assert shown == [10, 9, 8, 6, 5, 4, 3, 2, 1, 0]


async def test_a_request_names_no_repeat_in_what_a_rollback_abandoned() -> None:
    _, window = await rolled_back_twice(40)
    request = request_for(window, 1)
    assert request is not None and request.last > BACK
    named = [piece_offsets(piece) for piece in request.pieces]
    offsets = [offset for found in named for offset in found or []]
    assert None not in named
    assert offsets == [offset for offset in range(request.last + 1) if offset != REPEAT]


def test_offsets_between_two_are_reported_as_far_back_as_none_has_left() -> None:
    recent_ids = RecentIds()
    for i in range(LIMIT + 6):
        recent_ids.add(b"%08d" % i, 3 * i, rejected=i % 2 == 0)
    assert recent_ids.between(17, 18) is None, "ids up to offset 15 have left"
    assert recent_ids.between(18, 24) == [18, 21, 24]
    assert recent_ids.between(19, 20) == []
    assert RecentIds().between(0, 10) == []


async def test_a_summary_that_passes_over_what_a_rollback_abandoned_or_left_is_refused() -> None:
    """Found by the chaos suite: a rival's summary left out an event, which then stood in no window,
    summary or history.
    """
    log, window = await rolled_back_twice(40)
    request = request_for(window, 1)
    assert request is not None
    events = [
        (row.position.offset, decode_event(row.value)) async for row in log.scan(0, 0, request.last)
    ]
    good = summary_of(request, events)
    assert why_not(window, good) is None
    named = absolute(good.span.positions)
    for missing in named:
        span = msgspec.structs.replace(
            good.span, positions=delta([offset for offset in named if offset != missing])
        )
        assert (
            why_not(window, msgspec.structs.replace(good, span=span))
            == "its positions are not those of the events in its span"
        )
