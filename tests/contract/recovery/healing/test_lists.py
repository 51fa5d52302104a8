"""What lists hold follows from the log alone: however it was folded, and after a loss."""

from __future__ import annotations

import random
from collections.abc import Iterable

from projections.events import types as events
from projections.names import Key
from projections.storage.listing import IDLE
from projections.storage.listing import place as list_name
from streams.log.log import Raw
from tests.support.healing import Place, fold
from tests.support.partitions import NUMBER, generations, split
from tests.support.talks import Talks

USERS = ("ann", "ben", None)


async def lists_of(parts: Place) -> dict[str, set[str]]:
    _, index = await parts.parts.store.index(parts.parts.generation, NUMBER)
    return {name: set(times) for name, times in index.lists.items() if times and name != IDLE}


async def folded(parts: Place, batches: Iterable[list[Raw]]) -> dict[str, set[str]]:
    """The lists of a generation of its own."""
    parts.parts.generation = next(generations)
    await fold(parts.parts.partition(), batches)
    return await lists_of(parts)


async def test_a_conversation_is_in_the_list_of_its_present_user_alone_however_it_was_folded(
    place: Place,
) -> None:

    for seed in range(6):
        rng = random.Random(seed)
        first = await place.begin()
        talks = Talks(rng, NUMBER, place.parts.keys, first)
        present: dict[Key, str | None] = {}
        for i in range(24):
            key = rng.choice(talks.keys)
            if rng.random() < 0.5:
                user = rng.choice(USERS)
                talks.say(key, events.Opened(user=user, channel=rng.choice(("web", "mail"))))
                present[key] = user or present.get(key)
            else:
                talks.say(key, events.Message("user", f"text {i}"))
        raws = await place.parts.put(talks.rows)
        one_by_one = await folded(place, [[raw] for raw in raws])
        for user in ("ann", "ben"):
            name = list_name("user", talks.keys[0].tenant, user)
            mine = {key.conversation for key, of in present.items() if of == user}
            assert one_by_one.get(name, set()) == mine
        assert await folded(place, split(rng, raws)) == one_by_one
        assert await folded(place, [raws]) == one_by_one
        # A snapshot of all of it, a loss of the store, and a fold of what came behind it.
        place.parts.generation = next(generations)
        partition = await place.own()
        await fold(partition, [[raw] for raw in raws[:-6]])
        await place.settle()
        await fold(partition, [[raw] for raw in raws[-6:]])
        healed = await place.lose()
        await place.heal(healed)
        behind = [raw for raw in raws if raw.position.offset > healed.checkpoint.offset]
        await fold(healed, [behind])
        assert await lists_of(place) == one_by_one
