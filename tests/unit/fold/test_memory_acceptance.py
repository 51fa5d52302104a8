"""Memory events are judged by the fold like summaries, and the window keeps nothing of them."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from projections.events import types as events
from projections.events.codec import decode_event
from projections.fold.apply import Status, apply
from projections.fold.memory_acceptance import MAX_RETRIEVED, MAX_USERS
from projections.memory.identity import id_of
from projections.names import Key, Position, user_tag, users_log
from projections.storage.snapshots import take_snapshot
from projections.window.window import Window
from streams.log.log import Raw
from streams.projector.memory_announcements import announcement
from tests.support.memories import (
    OWN,
    RULES,
    START,
    TENANTS_OWN,
    USER,
    TaughtLog,
    given_out,
    saved,
    value_of,
)
from tests.support.restored_windows import restore, snapshot_offsets

KEY = Key("acme", "c1")
TAG = user_tag("acme", USER)


@pytest.fixture
def log() -> TaughtLog:
    made = TaughtLog(KEY, 0)
    made.put(events.Opened(user=USER, channel="web"))
    made.put(events.Message("user", "I like tea."))
    return made


def tea(log: TaughtLog, **more: Any) -> events.MemorySaved:
    return saved(log.key, "Likes tea.", **{"channel": "web", **more})


def extracted(log: TaughtLog, **more: Any) -> events.MemorySaved:
    said: dict[str, Any] = {"origin": "rules", "positions": ["0-1"], **more}
    return tea(log, **said)


def test_an_accepted_record_is_announced_to_its_user_and_is_no_part_of_a_context(
    log: TaughtLog,
) -> None:
    tokens, messages = log.window.tail_tokens, log.window.shown_messages
    assert log.put(extracted(log)) is Status.APPLIED
    assert (log.window.tail_tokens, log.window.shown_messages) == (tokens, messages)
    assert log.window.meta.memory_users == (TAG,)
    (value,) = log.news
    fields = msgspec.json.decode(value)
    assert fields["type"] == "threadfold.memory.saved.v1"
    assert fields["position"] == "0-2" and fields["recordedtime"] == "2023-11-14T22:15:20.000Z"
    assert fields["data"]["text"] == "Likes tea."


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"user": "u-2"}, "another user or channel"),
        ({"channel": None}, "another user or channel"),
        ({"memory_type": "rumour"}, "memory_type"),
        ({"confidence": 1.5}, "confidence"),
        ({"positions": ["0-9"]}, "positions"),
        ({"positions": ["1-1"]}, "positions"),
        ({"positions": ["0-1", "0-1"]}, "positions"),
        ({"positions": ["nowhere"]}, "positions"),
        ({"origin": "model", "rollback": "0-0"}, "latest rollback"),
        ({"text": "t" * 9_000}, "8192"),
    ],
)
def test_what_cannot_be_true_is_rejected(
    log: TaughtLog, change: dict[str, Any], reason: str
) -> None:
    data = msgspec.structs.replace(extracted(log), **change)
    data.memory_id = id_of(KEY, data) or ""
    outcome = apply(log.window, 2, decode_event(value_of(KEY, "e2", data)))
    assert outcome.status is Status.REJECTED and reason in (outcome.reason or "")
    assert outcome.taught is None and log.window.meta.memory_users is None


def test_a_record_can_be_deleted_and_rated_by_its_log_also_once_that_has_another_user() -> None:
    log = TaughtLog(KEY, 0)
    own = saved(KEY, "Likes tea.", user=None)
    log.put(own)
    log.put(events.Opened(user=USER, channel="web"))
    assert log.put(events.MemoryOutcome(memory_id=own.memory_id, succeeded=True)) is Status.APPLIED
    assert log.put(events.MemoryDeleted(memory_id=own.memory_id)) is Status.APPLIED
    assert log.put(saved(KEY, "Likes coffee.", user=None)) is Status.REJECTED
    anothers = events.MemoryDeleted(memory_id=own.memory_id, user="u-2")
    assert log.put(anothers) is Status.REJECTED


def test_an_id_that_does_not_follow_from_scope_and_text_is_rejected(log: TaughtLog) -> None:
    data = msgspec.structs.replace(extracted(log), normalized_text="likes coffee")
    assert log.put(data) is Status.REJECTED


def test_an_extraction_that_does_not_know_the_latest_rollback_is_rejected(log: TaughtLog) -> None:
    early = extracted(log)
    log.put(events.Message("user", "Never mind."))
    log.put(events.Rollback("0-1"))
    assert log.put(early) is Status.REJECTED
    assert log.put(extracted(log, rollback="0-3")) is Status.APPLIED


def test_what_somebody_saves_stands_whatever_was_rolled_back(log: TaughtLog) -> None:
    log.put(events.Rollback("0-0"))
    assert log.put(tea(log)) is Status.APPLIED


def test_a_rollback_is_announced_where_the_log_has_taught_somebody_and_nowhere_else(
    log: TaughtLog,
) -> None:
    log.put(events.Rollback("0-0"))
    assert log.news == []
    log.put(tea(log))
    log.put(events.Rollback("0-1"), time="2023-11-14T22:16:00Z")
    voided = msgspec.json.decode(log.news[-1])
    assert voided["type"] == "threadfold.memory.voided.v1"
    assert voided["data"] == {"by": "0-4", "to": "0-1"}
    assert voided["time"] == "2023-11-14T22:16:00Z"


def test_a_rollback_keeps_whose_memory_was_taught_and_an_erasure_does_not(log: TaughtLog) -> None:
    log.put(tea(log))
    log.put(events.Rollback("0-0"))
    assert log.window.meta.memory_users == (TAG,)
    log.put(events.Erased())
    assert msgspec.json.decode(log.news[-1])["type"] == "threadfold.conversation.erased.v1"
    assert log.window.meta.memory_users is None


def test_the_log_of_a_user_takes_that_users_memory_alone() -> None:
    own = TaughtLog(OWN, 0)
    assert own.put(saved(OWN, "Likes tea.")) is Status.APPLIED
    other = saved(users_log("acme", "u-2"), "Likes tea.", user="u-2")
    assert own.put(other) is Status.REJECTED


def test_use_counts_stand_in_the_log_of_a_users_own_and_have_a_form(log: TaughtLog) -> None:
    counts = given_out(OWN, "Likes tea.", 3, 2)
    own = TaughtLog(OWN, 0)
    assert own.put(counts) is Status.APPLIED and len(own.news) == 1
    assert TaughtLog(TENANTS_OWN, 0).put(given_out(TENANTS_OWN, "Tea.", 1, 1)) is Status.APPLIED
    assert log.put(msgspec.structs.replace(counts, channel="web")) is Status.REJECTED
    (one,) = counts.records
    for wrong in (
        {"user": "u-2"},
        {"taught_by": "c1"},
        {"records": []},
        {"records": [one] * (MAX_RETRIEVED + 1)},
        {"records": [msgspec.structs.replace(one, hits=4)]},
        {"records": [msgspec.structs.replace(one, hits=-1)]},
    ):
        assert own.put(msgspec.structs.replace(counts, **wrong)) is Status.REJECTED, wrong
    assert len(own.news) == 1


def test_a_log_teaches_a_bounded_number_of_users() -> None:
    log = TaughtLog(KEY, 0)
    for number in range(MAX_USERS + 1):
        log.put(events.Opened(user=f"u-{number}"))
        accepted = log.put(saved(KEY, "Likes tea.", user=f"u-{number}"))
        assert (accepted is Status.APPLIED) == (number < MAX_USERS)
    log.put(events.Opened(user="u-0"))
    assert log.put(saved(KEY, "Likes coffee.", user="u-0")) is Status.APPLIED


def test_a_window_of_10000_records_stays_small_and_is_stored_and_restored_as_it_is(
    log: TaughtLog,
) -> None:
    for number in range(10_000):
        log.put(saved(KEY, f"Likes tea {number}.", channel="web"))
    window = log.window
    assert len(window.image()) < 40_000
    assert Window.from_image(KEY, 0, RULES, window.image()).image() == window.image()
    snapshot, at = take_snapshot(window), dict(log.logged)
    texts = {offset: at[offset] for offset in snapshot_offsets(snapshot)}
    assert restore(KEY, 0, RULES, snapshot, texts).image() == window.image()


def test_an_announcement_says_once_where_an_event_stands() -> None:
    own = value_of(KEY, "e", saved(KEY, "Likes tea."))
    value = b'{"position":"9-9","recordedtime":"2001-01-01T00:00:00Z",' + own[1:]
    log = TaughtLog(KEY, 0)
    log.put(events.Opened(user=USER))
    outcome = apply(log.window, 5, decode_event(value))
    assert outcome.taught is not None
    raw = Raw(Position(0, 5), b"acme/c1", value, START)
    fields = msgspec.json.decode(announcement(KEY, raw, outcome.taught))
    assert (fields["position"], fields["recordedtime"]) == ("0-5", "2023-11-14T22:13:20.000Z")
    assert list(fields)[-1] == "data"
