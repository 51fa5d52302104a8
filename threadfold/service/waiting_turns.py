"""Turns that wait in parked conversations: they are in no answer.

The index of turns follows the log. Of a record that it cannot read it does not know whether it gave
the conversation to another user. The window does not know either: it is parked there. So what was
said from there on is shown to nobody before the conversation goes on.
"""

from __future__ import annotations

import asyncio
from functools import partial

from projections.errors import ThreadfoldError
from projections.memory.raw_turns import Turn
from projections.memory.recall import Recalled
from projections.names import Key, Position, make_key, parse_position
from streams.runtime.tasks import some_at_a_time
from threadfold.service.conversations import ConversationService
from threadfold.service.recall import Answer
from threadfold.service.stored_windows import Owner

AT_A_TIME = 8
PATIENCE = 1.0
"""Seconds that an answer waits for the windows of its turns."""
AWAY = "turns of some conversations: their windows cannot be read now"


async def without_waiting(backend: ConversationService, tenant: str, answer: Answer) -> Answer:
    """The answer without turns that wait, and without those of which that cannot be known now: the
    channel ``turns`` is away then.
    """
    newest: dict[Key, Position] = {}
    for one in answer.found:
        if (said := _said(tenant, one)) is not None:
            key, position = said
            newest[key] = max(position, newest.get(key, position))
    looks = [partial(_look, backend, key, position) for key, position in newest.items()]
    looked = await some_at_a_time(AT_A_TIME, looks)
    owners = dict(zip(newest, looked, strict=True))

    def is_shown(one: Recalled) -> bool:
        if (said := _said(tenant, one)) is None:
            return True
        owner = owners[said[0]]
        return not isinstance(owner, ThreadfoldError | TimeoutError) and (
            owner is None or owner.known_at(said[1])
        )

    found = [one for one in answer.found if is_shown(one)]
    if any(isinstance(owner, ThreadfoldError | TimeoutError) for owner in looked):
        away = {**answer.sought.away, "turns": AWAY}
        return Answer(found, answer.sought._replace(away=away))
    return answer._replace(found=found)


def _said(tenant: str, one: Recalled) -> tuple[Key, Position] | None:
    """The conversation of a turn, and its position; None for a record or skill."""
    turn = one.found
    if not isinstance(turn, Turn):
        return None
    return make_key(tenant, turn.conversation), parse_position(turn.position)


async def _look(
    backend: ConversationService, key: Key, last: Position
) -> Owner | ThreadfoldError | TimeoutError | None:
    """Whose the conversation is, as soon as its window has what stands at ``last``."""
    try:
        async with asyncio.timeout(PATIENCE):
            if last.offset > backend.windows.served(last.partition):
                await backend.wait_for(last, PATIENCE, whose=key)
            return await backend.owner(key)
    except (ThreadfoldError, TimeoutError) as error:
        return error
