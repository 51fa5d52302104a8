"""A span teaches the same however it is read."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.support.long_talks import airline_file, airline_runs
from projections.events import types as events
from projections.memory.extraction.candidate import Candidate
from projections.memory.extraction.extractor import Extractor, extract
from tests.support.taught import event, random_span, said


@given(st.integers(0, 2**32), st.integers(0, 40), st.lists(st.integers(0, 40), max_size=4))
def test_where_a_span_is_split_makes_no_difference(seed: int, length: int, at: list[int]) -> None:
    span = random_span(random.Random(seed), length)
    whole = extract(span)
    extractor, found, begin = Extractor(), list[Candidate](), 0
    for end in [*sorted(at), len(span)]:
        for offset, one in span[begin:end]:
            found += extractor.feed(offset, one)
        begin = max(begin, end)
    assert found == whole == extract(span)


@given(st.text(max_size=300), st.text(max_size=300))
def test_any_text_is_read_and_what_is_private_stays_out(before: str, after: str) -> None:
    text = f"{before}. I live in <private>Atlantis</private> Oslo. {after}"
    for one in extract([said(text), said(text, 1, "assistant")], gists=True):
        assert "Atlantis" not in one.text
        assert 0 < one.confidence <= 1
        assert one.text == one.text.strip()


@given(st.integers(0, 2**32))
def test_trust_follows_from_who_said_it(seed: int) -> None:
    span = random_span(random.Random(seed), 30)
    of = dict(span)
    for one in extract(span, gists=True):
        sources = [of[offset] for offset in one.offsets]
        assert list(one.offsets) == sorted(set(one.offsets))
        if any(isinstance(source, events.ToolResultEvent) for source in sources):
            assert one.trust == "tool"


def test_a_gist_is_kept_of_messages_that_state_nothing() -> None:
    talk = [
        said("The committee rejected the second proposal about harbour lights", 0),
        said("ok thanks", 1),
        said("I live in Oslo", 2),
    ]
    assert [one.text for one in extract(talk, gists=True)] == [
        'The user said: "The committee rejected the second proposal about harbour lights".',
        "The user lives in Oslo.",
    ]
    assert len(extract(talk)) == 1


@pytest.mark.skipif(airline_file() is None, reason="the shared airline conversations are not here")
def test_real_conversations_teach_few_records_that_stand_alone() -> None:
    seen = 0
    path = airline_file()
    assert path is not None
    for messages in airline_runs(path):
        span = [
            event(i, events.Message(m["role"], m["content"]))
            for i, m in enumerate(messages)
            if m["role"] == "user" and m["content"]
        ]
        found = extract(span)
        seen += len(found)
        assert len(found) <= len(span)
        assert all("###" not in one.text and "?" not in one.text for one in found)
    assert seen > 50
