"""What two models found differently in the same conversation is shown before a switch."""

from __future__ import annotations

from pathlib import Path

from streams.encryption.payload_cipher import Unsealed
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store_differences import differing_records
from tests.support.learning import KEY
from tests.support.model_learning import BOAT, HOME, learning, session, settings_of, teaches


async def test_a_diff_of_two_models_names_what_the_other_would_add_remove_and_change(
    tmp_path: Path,
) -> None:
    home = {"type": "fact", "text": HOME, "positions": ["0-1"], "confidence": 0.9}
    pets = {"type": "fact", "text": "The user has a dog.", "positions": ["0-2"], "confidence": 0.9}
    answers = {"a": (home, BOAT), "b": ({**home, "tags": {"task": ["moving"]}}, pets)}
    files = {}
    for name, records in answers.items():
        async with learning(teaches(*records), endpoint={"model": name}) as (world, server):
            await session(world)
            await world.learn()
            assert len(server.calls) == 1
            assert {one.data.model for one in world.saved()} == {f"cheap/{name}"}
            files[name] = tmp_path / f"{name}.db"
            store = SqliteMemories(files[name])
            store.apply(list(world.memory.facts.values()), {})
            store.close()
    seals = Unsealed()
    found = await differing_records(settings_of("http://unused"), seals, files["a"], files["b"])
    shown = {one.how: one.document() for one in found}
    assert {how: one["text"] for how, one in shown.items()} == {
        "removed": BOAT["text"],
        "added": pets["text"],
        "changed": HOME,
    }
    before, after = shown["changed"]["fields"]["tags"]
    assert (before["task"], after["task"]) == ([], ["moving"])
    same = await differing_records(settings_of("http://unused"), seals, files["a"], files["a"])
    assert same == []

    class Erasing(Unsealed):
        def is_erased(self, conversation: bytes) -> bool:
            return conversation == str(KEY).encode()

    unseen = await differing_records(
        settings_of("http://unused"), Erasing(), files["a"], files["b"]
    )
    assert unseen == [], "its erasure has begun"
