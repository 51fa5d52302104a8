"""A partition over the in-memory and the real log and store: whatever the batches, owners and
faults, the windows are the replay's.
"""

from __future__ import annotations

import random

import msgspec
import pytest

from projections.events import types as events
from projections.names import Position
from streams.partition.owned import Fenced
from tests.support.histories import RULES
from tests.support.partitions import (
    NUMBER,
    Parts,
    RecordingSink,
    drive,
    generations,
    keys_of,
    rounds,
    split,
)
from tests.support.taken_over import take_over
from tests.support.talks import Talks, random_talks, summary_of


async def test_batches_of_any_split_give_the_windows_of_the_replay(parts: Parts) -> None:
    total = 0
    for seed in range(rounds(parts, 40)):
        parts.generation = next(generations)
        parts.keys = keys_of(f"acme{parts.generation}")
        talks = random_talks(seed, 250, NUMBER, parts.keys, await parts.begin())
        raws = await parts.put(talks.rows)
        await drive(parts.partition(), split(random.Random(seed), raws))
        assert await parts.images() == parts.expected(talks), f"seed {seed}"
        total += talks.seen["history"]
    assert total > 0, "no rollback reached beyond its window"


async def test_a_small_cache_changes_nothing(parts: Parts) -> None:
    for seed in range(100, 100 + rounds(parts, 15)):
        parts.generation = next(generations)
        talks = random_talks(seed, 200, NUMBER, parts.keys, await parts.begin())
        raws = await parts.put(talks.rows)
        await drive(parts.partition(cached_windows=2), split(random.Random(seed), raws, 6))
        assert await parts.images() == parts.expected(talks), f"seed {seed}"


async def test_a_summary_that_its_window_does_not_take_is_named_with_the_reason(
    parts: Parts,
) -> None:
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    key = parts.keys[0]
    while not talks.requests[key]:
        talks.say(key, events.Message("user", f"message {talks.next_offset} " * 40))
    summary = summary_of(talks.requests[key][-1], talks.logs[key])
    talks.say(key, msgspec.structs.replace(summary, summary_id="other", previous="nobody's"))
    talks.say(key, summary)
    talks.say(key, summary, id_="twice")
    sink = RecordingSink()
    await parts.partition(sink=sink).process(await parts.put(talks.rows))
    last = parts.first + len(talks.rows) - 1
    why = "its predecessor is not the summary in force"
    assert sink.refused == [(key, last - 2, why), (key, last, why)]
    assert [offset for _, offset, _ in sink.accepted] == [last - 1]


async def test_what_is_no_event_becomes_a_dead_letter_with_its_cause_and_touches_no_window(
    parts: Parts,
) -> None:
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    key = parts.keys[0]
    talks.say(key, events.Message("user", "before"))
    good = talks.rows[0][1]
    assert good is not None
    name = str(key).encode()
    talks.rows += [
        (b"no-slash", good),
        (None, good),
        (name, None),
        (name, good.replace(b"/tenants/acme", b"/tenants/other")),
    ]
    talks.say(key, events.Message("user", "after"))
    sink = RecordingSink()
    partition = parts.partition(sink=sink)
    await partition.process(await parts.put(talks.rows))
    assert await parts.images() == parts.expected(talks)
    assert [offset - parts.first for offset, _ in sink.dead] == [1, 2, 3, 4]
    assert partition.counts.dead == 4
    for (_, cause), part in zip(
        sink.dead, ["key is not", "key is not", "no value", "source"], strict=True
    ):
        assert part in cause, (part, cause)


async def test_a_conversation_of_nobodys_records_alone_has_no_window_and_the_checkpoint_moves_on(
    parts: Parts,
) -> None:
    await parts.begin()
    raws = await parts.put([(str(parts.keys[0]).encode(), None), (b"x", b"y")])
    partition = parts.partition()
    await partition.process(raws)
    assert await parts.images() == [None, None, None]
    stored = await parts.store.checkpoint(parts.generation, NUMBER)
    assert stored is not None and stored.offset == parts.first + 1


@pytest.mark.parametrize(
    "data",
    [
        b'{"metadata":{"n":123456789012345678901234567890}}',
        b'{"policy":{"model_window":123456789012345678901234567890}}',
        b'{"metadata":{"n":' + b"[" * 300 + b"]" * 300 + b"}}",
    ],
)
async def test_json_that_a_window_cannot_keep_parks_its_conversation_and_stops_no_other(
    parts: Parts, data: bytes
) -> None:
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    key = parts.keys[0]
    source = key.source.encode()
    value = (
        b'{"specversion":"1.0","id":"x","type":"threadfold.conversation.opened.v1","source":"'
        + source
        + b'","data":'
        + data
        + b"}"
    )
    talks.rows.append((str(key).encode(), value))
    talks.say(parts.keys[1], events.Message("user", "another's"))
    sink = RecordingSink()
    await parts.partition(sink=sink).process(await parts.put(talks.rows))
    assert [offset for offset, _ in sink.dead] == [parts.first]
    assert (await parts.images())[1:] == parts.expected(talks)[1:]
    quarantine = (await parts.windows())[0].meta.quarantine
    assert (
        quarantine is not None
        and quarantine.offset == parts.first
        and "not an event" in quarantine.cause
    )


async def test_a_fenced_partition_that_adopts_the_checkpoint_goes_on_to_the_same_windows(
    parts: Parts,
) -> None:
    talks = random_talks(7, 240, NUMBER, parts.keys, await parts.begin())
    raws = await parts.put(talks.rows)
    mine, other = parts.partition(), parts.partition()
    await mine.process(raws[:50])
    await parts.readopt(other)
    await other.process(raws[50:90])
    with pytest.raises(Fenced):
        await mine.process(raws[50:120])
    await parts.readopt(mine)
    assert mine.checkpoint.offset == raws[89].position.offset
    await drive(mine, split(random.Random(7), raws))
    assert await parts.images() == parts.expected(talks)


async def test_two_owners_that_interleave_at_random_end_in_the_right_windows(parts: Parts) -> None:
    for seed in range(200, 200 + rounds(parts, 25)):
        parts.generation = next(generations)
        rng = random.Random(seed)
        talks = random_talks(seed, 200, NUMBER, parts.keys, await parts.begin())
        raws = await parts.put(talks.rows)
        owners = [parts.partition(cached_windows=rng.choice([1, 2, 50])) for _ in range(2)]
        fenced = 0
        while any(owner.checkpoint.offset < raws[-1].position.offset for owner in owners):
            owner = rng.choice(owners)
            rest = [raw for raw in raws if raw.position.offset > owner.checkpoint.offset]
            try:
                await owner.process(rest[: rng.choice([1, 7, 7, 7, 20])])
            except Fenced:
                fenced += 1
                await parts.readopt(owner)
        assert fenced > 0
        assert await parts.images() == parts.expected(talks), f"seed {seed}"


async def test_an_owner_whose_batch_another_has_written_folds_it_into_no_window_again(
    parts: Parts,
) -> None:
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    for i in range(30):
        talks.say(parts.keys[0], events.Message("user", f"text {i}"))
    raws = await parts.put(talks.rows)
    mine, other = parts.partition(), parts.partition()
    await mine.process(raws[:10])
    for owner in (mine, other):
        await parts.readopt(owner)
    await other.process(raws[10:20])
    # The window in the store has the ten events already.
    with pytest.raises(Fenced):
        await mine.process(raws[10:20])
    await parts.readopt(mine)
    await mine.process(raws[10:])
    assert await parts.images() == parts.expected(talks)


async def test_an_owner_from_before_a_wipe_is_fenced_however_many_writes_came_since(
    parts: Parts,
) -> None:
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    for i in range(12):
        talks.say(parts.keys[0], events.Message("user", f"text {i}"))
    raws = await parts.put(talks.rows)
    zombie, owner = parts.partition(), parts.partition()
    await drive(zombie, [[raw] for raw in raws[:4]])
    await parts.store.drop_partition(parts.generation, NUMBER)
    for raw in raws[:4]:
        await owner.process([raw])
        with pytest.raises(Fenced):
            await zombie.process(raws[4:8])
        zombie.adopt(zombie.checkpoint)
    await owner.process(raws[4:])
    assert await parts.images() == parts.expected(talks)


async def test_what_is_folded_into_windows_that_the_store_lost_is_published_to_nobody(
    parts: Parts,
) -> None:
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    key = parts.keys[0]
    while not talks.requests[key]:
        talks.say(key, events.Message("user", f"message {talks.next_offset} " * 40))
    talks.say(key, summary_of(talks.requests[key][-1], talks.logs[key]))
    raws = await parts.put(talks.rows)
    sink = RecordingSink()
    owner = parts.partition(sink=sink)
    await owner.process(raws[:-1])
    owner.adopt(owner.checkpoint)  # its windows are cached no more
    await parts.store.drop_partition(parts.generation, NUMBER)
    with pytest.raises(Fenced):
        await owner.process(raws[-1:])
    assert sink.refused == [] and sink.accepted == []


async def test_an_owner_from_before_another_publishes_nothing_of_windows_it_still_has(
    parts: Parts,
) -> None:
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    key = parts.keys[0]
    while not talks.requests[key]:
        talks.say(key, events.Message("user", f"message {talks.next_offset} " * 40))
    talks.say(key, summary_of(talks.requests[key][-1], talks.logs[key]))
    talks.say(key, events.Rollback(f"{NUMBER}-{parts.first}"))
    raws = await parts.put(talks.rows)
    sink = RecordingSink()
    late, owner = parts.partition(sink=sink), parts.partition()
    await late.process(raws[:-2])
    await parts.readopt(owner)
    await owner.process(raws[-2:])  # the summary is taken, and void again
    with pytest.raises(Fenced):
        await late.process(raws[-2:-1])
    assert sink.accepted == []


async def test_an_owner_says_of_a_server_that_took_over_whether_it_has_the_latest(
    parts: Parts,
) -> None:
    await parts.begin()
    owner, number = parts.partition(), parts.generation
    await owner.set_target(-1)
    old = await parts.store.checkpoint(number, NUMBER)
    await take_over(parts.store, number, NUMBER)
    found = await parts.store.checkpoint(number, NUMBER)
    assert found is not None and found.unverified and found.healing
    await owner.check()
    found = await parts.store.checkpoint(number, NUMBER)
    assert found is not None and found == owner.checkpoint and not found.healing
    # Set back to what it was before that: no owner says that this is the latest.
    assert old is not None and old.revision != owner.checkpoint.revision
    stranger = parts.partition()
    stranger.adopt(found)
    await stranger.set_target(-1)
    await take_over(parts.store, number, NUMBER)
    with pytest.raises(Fenced):
        await owner.check()
    found = await parts.store.checkpoint(number, NUMBER)
    assert found is not None and found.unverified


async def test_a_target_that_another_owner_set_at_the_same_record_fences(parts: Parts) -> None:
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    talks.say(parts.keys[0], events.Message("user", "text"))
    raws = await parts.put(talks.rows)
    mine, other = parts.partition(), parts.partition()
    await mine.process(raws)
    await parts.readopt(other)
    await other.set_target(raws[-1].position.offset + 50)
    with pytest.raises(Fenced):
        await mine.set_target(raws[-1].position.offset + 9)
    stored = await parts.store.checkpoint(parts.generation, NUMBER)
    assert stored is not None and stored.target == raws[-1].position.offset + 50 and stored.healing


async def test_records_up_to_the_checkpoint_are_passed_over(parts: Parts) -> None:
    talks = random_talks(3, 60, NUMBER, parts.keys, await parts.begin())
    raws = await parts.put(talks.rows)
    partition = parts.partition()
    await partition.process(raws)
    before = await parts.images()
    assert await partition.process(raws) == []
    assert await parts.images() == before == parts.expected(talks)


async def test_repeats_in_later_batches_change_nothing_but_their_count(parts: Parts) -> None:
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    key = parts.keys[0]
    for i in range(5):
        talks.say(key, events.Message("user", f"text {i}"))
    for _, event in list(talks.logs[key]):
        talks.put(key, event)
    raws = await parts.put(talks.rows)
    partition = parts.partition()
    await drive(partition, split(random.Random(1), raws, 3))
    assert (partition.counts.applied, partition.counts.duplicate) == (5, 5)
    stored = (await parts.store.read(parts.generation, NUMBER, [key]))[1][0]
    assert stored is not None
    window = stored.load(key, NUMBER, RULES)
    assert (window.meta.count, window.meta.duplicates, len(window.tail)) == (5, 5, 5)
    assert await parts.images() == parts.expected(talks)


async def test_a_rollback_into_a_summarised_span_reads_the_log_and_announces_the_voided_summary(
    parts: Parts,
) -> None:
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    key = parts.keys[0]
    while not talks.requests[key]:
        talks.say(key, events.Message("user", "word " * 12), tokens=40)
    talks.summarise(key)
    summary = talks.windows[key].meta.summary
    assert summary is not None
    talks.say(key, events.Message("user", "later"))
    talks.say(key, events.Rollback(str(Position(NUMBER, parts.first + 1))))
    talks.say(key, events.Message("user", "another way"))
    assert talks.seen["history"] == 1
    sink = RecordingSink()
    await drive(parts.partition(sink=sink), split(random.Random(2), await parts.put(talks.rows), 3))
    assert [(k, s) for k, _, s in sink.accepted] == [(key, summary.summary_id)]
    assert [(k, s) for k, _, s in sink.voided] == [(key, summary.summary_id)]
    assert await parts.images() == parts.expected(talks)


async def test_a_rollback_to_a_repeats_own_position_is_rejected_live_as_on_replay(
    parts: Parts,
) -> None:
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    key = parts.keys[0]
    talks.say(key, events.Message("user", "one"))
    talks.say(key, events.Message("user", "two"))
    talks.put(key, talks.logs[key][0][1])
    talks.say(key, events.Message("user", "three"))
    talks.say(key, events.Rollback(str(Position(NUMBER, parts.first + 2))))
    await parts.partition().process(await parts.put(talks.rows))
    assert talks.seen["RollbackEvent:rejected"] == 1
    assert await parts.images() == parts.expected(talks)


async def test_due_windows_come_back_until_their_summary_is_accepted(parts: Parts) -> None:
    talks = Talks(random.Random(1), NUMBER, parts.keys, await parts.begin())
    key = parts.keys[0]
    while not talks.requests[key]:
        talks.say(key, events.Message("user", "word " * 12), tokens=40)
    due_at = len(talks.rows)
    talks.summarise(key)
    raws = await parts.put(talks.rows)
    partition = parts.partition()
    assert [w.key for w in await partition.process(raws[:due_at])] == [key]
    place = parts.generation, NUMBER
    assert await parts.store.due(*place, 1_000, 10) == [key]
    assert [w.key for w in await partition.due_windows([key])] == [key]
    await parts.store.requested(*place, [key], 5_000)
    assert await parts.store.due(*place, 4_999, 10) == []
    assert await parts.store.due(*place, 5_000, 10) == [key]
    await partition.process(raws[due_at:])
    assert await parts.store.due(*place, 10_000_000, 10) == []
    assert await partition.due_windows([key]) == []
