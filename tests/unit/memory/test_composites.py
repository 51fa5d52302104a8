"""What a composite says: what its sources say at the moment, and no more."""

from __future__ import annotations

from typing import Any

from projections.events import types as events
from projections.fold.outcomes import Status
from projections.memory.composites import composed
from projections.memory.identity import Scope, id_of
from projections.memory.news import Fact, read_news
from projections.memory.resolution import Record
from projections.names import Key
from tests.support.memories import USER, TaughtLog, saved

SCOPE = Scope("acme", USER)


def record(name: str, created: int = 0, **more: Any) -> Record:
    fields = {"type": "fact", "text": f"Says {name}.", "normalized_text": name, "trust": "user"}
    return Record(
        **{"id": name, "kind": "record", "scope": SCOPE, **fields, **more},
        created=created,
        confirmed_at=more.get("confirmed_at", created),
    )


WHOLE = record("c", 9, kind="composite", text="", sources=["a", "b", "x"], children=["d"])


def test_it_says_what_its_sources_say_in_their_order_and_is_trusted_as_the_least() -> None:
    one = record("a", 2, trust="model", entities=["Oslo"], tags={"tool": ["kettle"]})
    other = record("b", 1, entities=["Rome", "Oslo"], confidence=0.5)
    found = composed(WHOLE, [one, other, None])
    assert found is not None
    assert (found.text, found.normalized_text) == ("Says b. Says a.", "says b says a")
    assert (found.trust, found.confidence) == ("model", 0.75)
    assert (found.entities, found.tags) == (["Rome", "Oslo"], {"tool": ["kettle"]})
    assert (found.sources, found.children) == (["b", "a"], ["d"])
    assert (found.created, found.confirmed_at, found.type) == (9, 2, "fact")


def test_it_is_gone_once_fewer_than_two_of_its_sources_stand() -> None:
    gone, skill = record("b", expired_at=5), record("b", kind="skill")
    inner = record("d", kind="composite")
    assert composed(WHOLE, []) is None
    assert composed(WHOLE, [record("a"), None, gone, skill, inner]) is None
    assert composed(WHOLE, [record("a"), record("x"), gone]) is not None


def test_it_is_of_a_conversation_and_a_time_if_all_of_its_sources_are() -> None:
    one = record("a", conversation="c1", positions=["0-7"], temporal={"t_ref": "2024-01-01"})
    same = record(
        "b", conversation="c1", positions=["0-5", "0-7"], temporal={"t_ref": "2024-01-01"}
    )
    other = record("b", conversation="c2", positions=["1-5"], role="user")
    found, across = composed(WHOLE, [one, same]), composed(WHOLE, [one, other])
    assert found is not None and across is not None
    assert (found.conversation, found.positions) == ("c1", ["0-5", "0-7"])
    assert found.temporal == {"t_ref": "2024-01-01"}
    assert (across.conversation, across.positions, across.temporal) == (None, [], {})
    assert across.role is None


def test_it_holds_while_all_of_its_sources_do() -> None:
    one = record("a", temporal={"t_valid_from": "2024-01-01T00:00:00Z"})
    other = record(
        "b",
        temporal={
            "t_valid_from": "2024-02-01T00:00:00+01:00",
            "t_valid_to": "2024-03-01T00:00:00Z",
        },
    )
    found = composed(WHOLE, [one, other])
    assert found is not None
    assert found.temporal == other.temporal


def test_what_never_held_together_is_over_with_the_first_of_its_sources() -> None:
    spring = {"t_valid_from": "2024-03-01T00:00:00Z", "t_valid_to": "2024-06-01T00:00:00Z"}
    autumn = {"t_valid_from": "2024-09-01T00:00:00Z", "t_valid_to": "2024-12-01T00:00:00Z"}
    found = composed(WHOLE, [record("a", temporal=autumn), record("b", temporal=spring)])
    assert found is not None
    assert found.temporal == {"t_valid_to": "2024-06-01T00:00:00Z"}


def test_what_a_former_release_wrote_of_its_sources_is_not_read() -> None:
    log = TaughtLog(Key("acme", "c1"), 0)
    log.put(events.Opened(user=USER))
    said = saved(log.key, "Hides marmalade.")
    fields = {name: getattr(said, name) for name in said.__struct_fields__}
    fused = events.MemoryFused(**{**fields, "entities": ["Marmalade"]}, source_record_ids=["a"])
    fused.memory_id = id_of(log.key, fused) or ""
    assert log.put(fused) is Status.APPLIED
    (value,) = log.news
    assert b"marmalade" in value
    news = read_news(log.key, value)
    assert isinstance(news, Fact) and "armalade" not in str(news)
