"""Random histories of several logs that teach memories, and what the live projector would publish
of them.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import msgspec

from projections.events import types as events
from projections.events.codec import decode_event
from projections.fold.outcomes import Status
from projections.fold.replay import Logged, apply_with_log
from projections.memory.identity import id_of, normalize
from projections.memory.news import News, read_news
from projections.names import Key, Position, partition_of, users_log
from projections.policy.policy import Rules
from projections.window.window import Window
from streams.log.log import Raw
from streams.projector.memory_announcements import announcement
from tests.support.histories import EVENT_OF

RULES = Rules({})
USER = "u-1"
START = 1_700_000_000_000
"""The broker's time of the first event, in ms."""
TEXTS = ("The train leaves at six.", "the train leaves at six", "I like tea.", "I like coffee.")
TIMES = (
    None,
    "2023-11-14T22:30:00Z",
    "2023-11-14T23:15:00+01:00",
    "2023-11-01T00:00:00Z",
    "2033-01-01T00:00:00Z",
    "no time",
)
OWN = users_log("acme", USER)
TENANTS_OWN = users_log("acme", None)
PARTITIONS = 4
ANONYMOUS = Key("acme", "anonymous")


def saved(key: Key, text: str, *, user: str | None = USER, **more: Any) -> events.MemorySaved:
    """A record's statement as its writer makes it."""
    data = events.MemorySaved(
        memory_id="",
        memory_type=more.pop("memory_type", "fact"),
        text=text,
        normalized_text=normalize(text),
        trust=more.pop("trust", "user"),
        user=user,
        **more,
    )
    data.memory_id = id_of(key, data) or ""
    return data


def fused(
    key: Key, *sources: events.MemorySaved, user: str | None = USER, **more: Any
) -> events.MemoryFused:
    """A composite of records as its writer makes it."""
    ids = sorted({one.memory_id for one in sources})
    data = events.MemoryFused(
        memory_id="",
        memory_type="fact",
        text="",
        normalized_text=" ".join(ids),
        trust="user",
        user=user,
        source_record_ids=ids,
        **more,
    )
    data.memory_id = id_of(key, data) or ""
    return data


def given_out(key: Key, text: str, retrieved: int, hits: int) -> events.MemoryRetrieved:
    """Use counts of one record, as the log of a user's own has them; the tenant's own has those of
    what an anonymous conversation taught.
    """
    user, conversation = (USER, None) if key == OWN else (None, ANONYMOUS.conversation)
    record = saved(OWN if conversation is None else ANONYMOUS, text, user=user)
    count = events.RetrievedRecord(record.memory_id, retrieved, hits)
    return events.MemoryRetrieved(records=[count], user=user, taught_by=conversation)


def value_of(key: Key, event_id: str, data: Any, time: str | None = None) -> bytes:
    """An event as the log has it."""
    return msgspec.json.encode(
        EVENT_OF[type(data)](
            specversion="1.0", id=event_id, source=key.source, time=time, data=data
        )
    )


@dataclass
class TaughtLog:
    """One log, folded as it is written."""

    key: Key
    partition: int
    raws: list[Raw] = field(default_factory=list)
    logged: list[Logged] = field(default_factory=list)
    news: list[bytes] = field(default_factory=list)
    next_offset: int = 0

    def __post_init__(self) -> None:
        self.window = Window(self.key, self.partition, RULES)

    def put(self, data: Any, *, id_: str | None = None, time: str | None = None) -> Status:
        """Append an event and fold it; what it announces is in ``news``."""
        offset = self.next_offset
        self.next_offset += 1
        value = value_of(self.key, id_ or f"e{offset}", data, time)
        at = Position(self.partition, offset)
        raw = Raw(at, str(self.key).encode(), value, START + 60_000 * offset)
        self.raws.append(raw)
        return self.fold(raw)

    def fold(self, raw: Raw) -> Status:
        assert raw.value is not None
        offset, event = raw.position.offset, decode_event(raw.value)
        outcome = apply_with_log(self.window, offset, event, self.logged)
        self.logged.append((offset, event))
        if outcome.taught is not None:
            value = announcement(self.key, raw, outcome.taught)
            self.news += [value] * len(outcome.taught.users)
        return outcome.status

    def told(self) -> list[News]:
        """What its announcements say."""
        found = (read_news(self.key, value) for value in self.news)
        return [one for one in found if one is not None]

    def replayed(self) -> TaughtLog:
        """The same log folded from its first record."""
        other = TaughtLog(self.key, self.partition)
        for raw in self.raws:
            other.fold(raw)
        return other

    def position(self, offset: int) -> str:
        return str(Position(self.partition, offset))

    def latest_rollback(self) -> str | None:
        latest = self.window.meta.rollback
        return None if latest is None else self.position(latest)


def random_logs(rng: random.Random, length: int) -> list[TaughtLog]:
    """Two conversations of one user, one of nobody, the user's own log, and the tenant's own."""
    keys = [Key("acme", "c1"), Key("acme", "c2"), ANONYMOUS, OWN, TENANTS_OWN]
    logs = [
        TaughtLog(key, partition_of(key, PARTITIONS), next_offset=500 * n)
        for n, key in enumerate(keys)
    ]
    for log in logs[:2]:
        log.put(events.Opened(user=USER))
    for _ in range(length):
        _step(rng, rng.choice(logs))
    return logs


def _step(rng: random.Random, log: TaughtLog) -> None:
    user = None if log.key in (ANONYMOUS, TENANTS_OWN) else USER
    own = log.key.of_user
    roll = rng.random()
    offsets = [raw.position.offset for raw in log.raws]
    said = saved(log.key, rng.choice(TEXTS), user=user, trust=rng.choice(["user", "tool"]))
    other = saved(log.key, rng.choice(TEXTS), user=user).memory_id
    about: dict[str, Any] = {"memory_id": other, "user": user}
    if roll < 0.25 and not own:
        log.put(events.Message("user", rng.choice(TEXTS)))
    elif roll < 0.45 and offsets and not own:
        learnt = sorted(rng.sample(offsets, min(len(offsets), rng.choice([1, 1, 2]))))
        extracted = msgspec.structs.replace(
            said,
            origin="rules",
            positions=[log.position(one) for one in learnt],
            rollback=log.latest_rollback() if rng.random() < 0.8 else "0-1",
        )
        log.put(extracted, time=_time(rng))
    elif roll < 0.6:
        topic = rng.choice([None, None, "tea"])
        if topic is not None:
            said.topic = topic
            said.memory_id = id_of(log.key, said) or ""
        log.put(said, time=_time(rng))
    elif roll < 0.68:
        over = events.MemorySuperseded(by=said.memory_id, **about)
        log.put(rng.choice([_fused(rng, log, user), over]), time=_time(rng))
    elif roll < 0.74:
        log.put(events.MemoryDeleted(hard=rng.random() < 0.3, **about), time=_time(rng))
    elif roll < 0.8:
        log.put(_use(rng, log, about), time=_time(rng))
    elif roll < 0.92 and offsets and not own:
        target = rng.choice(offsets if rng.random() < 0.5 else offsets[-4:])
        log.put(events.Rollback(log.position(target)), time=_time(rng))
    elif roll < 0.96 and offsets:
        log.put(events.EventDropped(log.position(rng.choice(offsets))))
    elif roll < 0.97:
        log.put(events.Erased())
    elif offsets:
        raw = rng.choice(log.raws)
        assert raw.value is not None
        at = Position(log.partition, log.next_offset)
        log.next_offset += 1
        again = raw._replace(position=at, timestamp=START + 60_000 * at.offset)
        log.raws.append(again)
        log.fold(again)


def _fused(rng: random.Random, log: TaughtLog, user: str | None) -> events.MemoryFused:
    """A composite of some of the texts, of each of which there may be a record or not."""
    texts = rng.sample(TEXTS, rng.choice([2, 3]))
    return fused(log.key, *(saved(log.key, text, user=user) for text in texts), user=user)


def _use(rng: random.Random, log: TaughtLog, about: dict[str, Any]) -> events.Learnt:
    if log.key.of_user and rng.random() < 0.7:
        return given_out(log.key, rng.choice(TEXTS), rng.randint(1, 3), 1)
    return events.MemoryOutcome(succeeded=rng.random() < 0.5, **about)


def _time(rng: random.Random) -> str | None:
    """A producer's own time: none, of another zone, in the past, or one that cannot be yet."""
    return rng.choice(TIMES)
