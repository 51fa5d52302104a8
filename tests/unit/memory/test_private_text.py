"""What is marked as private is left out, however it is marked."""

from __future__ import annotations

import time

import pytest

from projections.events.types import Message, MessageEvent
from projections.memory.extraction.extractor import Extractor
from projections.memory.private_text import (
    MOST_READ,
    all_without_private,
    ends_without_private,
    without_private,
)
from projections.memory.raw_turns import turn_text


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("a <private>b</private> c", "a  c"),
        ("a <PRIVATE>b</Private>", "a"),
        ("a <private >b</ private\n> c", "a  c"),
        ("a <private>b <private>c</private> d</private> e", "a  e"),
        ("a <private>b <private>c</private> d", "a"),
        ("a <private>b", "a"),
        ("a </private> b", "a </private> b"),
        ("a < b, private > c", "a < b, private > c"),
        ("<private>a</private>", ""),
        ("a <private reason='health'>b</private> c", "a  c"),
        ("a <privately>b</privately>", "a <privately>b</privately>"),
        ("<pri<private>a</private>vate>b</private>c", ""),
        ("a <private\n\n>b</private", "a"),
        ("a <private/>b</private> c", "a  c"),
        ("a <private\x00>b</private> c", "a  c"),
        ("a <\u200bprivate\ufeff>b< / private> c", "a  c"),
        ("a <" + " " * 30 + "private" + " " * 300 + ">b</private> c", "a  c"),
        ("a <private why='" + "x" * 300 + "'>b</private> c", "a  c"),
        ("a <private why='1<2'>b</private> c", "a  c"),
        ("a <private b</private> c", "a  c"),
        ("a <private b", "a"),
        (r"a \u003cprivate\u003eb\u003c/private\u003e c", "a  c"),
        (r"a \u003Cprivate why=1\u003Eb\u003C\/private\u003E c", "a  c"),
        ("a &lt;private&gt;b&lt;/private&gt; c", "a  c"),
        ("a &LT;private why=&quot;x&quot;&GT;b&lt;/private&gt; c", "a  c"),
        ("a &#60;private&#62;b&#60;/private&#62; c", "a  c"),
        ("a &#x3C;private&#x3E;b&#x003c;&#47;private&#x3e; c", "a  c"),
        ("a &amp;lt;private&amp;gt;b&amp;lt;/private&amp;gt; c", "a  c"),
        ("a &amp;#60;private&amp;#62;b&ltprivate&gtd&lt/private&gt&lt;&sol;private&gt; c", "a  c"),
        ("AT&T &amp; a &#160;b, &lt;privateer&gt;", "AT&T &amp; a &#160;b, &lt;privateer&gt;"),
        ("a \uff1cprivate\uff1eb\uff1c/private\uff1e c", "a  c"),
        ("a <pri\u00advate>b</priv\u200bate> c", "a  c"),
        (r"a \u003cprivate\u003eb", "a"),
        (r"a & b \u003c c", r"a & b \u003c c"),
    ],
)
def test_a_text_loses_what_is_between_the_marks(text: str, left: str) -> None:
    assert without_private(text) == left


QUESTION = " what is my name?"


@pytest.mark.parametrize(
    ("middle", "end_is_left"),
    [
        ("hello you there ", True),
        ("<p>AT&amp;T</p>\n", True),
        ("<private>my name is Ann</private>", False),
        ("<private>my name is Ann ", False),
        ("<pri\nvate>my name is Ann ", False),
        ("<pri\u200bvate>my name is Ann ", False),
        ("<pr\u0130vate>my name is Ann ", False),
        ("<pr\u0131vate>my name is Ann ", False),
        ("private, ", True),
    ],
)
def test_of_a_long_text_the_end_is_left_only_where_nothing_private_may_stand_before(
    middle: str, end_is_left: bool
) -> None:
    text = "I ask. " + "word " * MOST_READ + middle + "word " * MOST_READ + QUESTION
    left = ends_without_private(text)
    assert left.startswith("I ask. word")
    assert left.endswith(QUESTION) == end_is_left
    assert "Ann" not in left
    assert len(left) <= 2 * MOST_READ + 1


@pytest.mark.parametrize(
    "mark",
    [
        "<private>",
        "<pr\u0130vate>",
        r"\u003cprivate>",
        "&lt;private>",
        "<" + " " * 600 + "private>",
        "<\n\n" + "\t" * 600 + "private>",
        "<pri" + "\n" * 600 + "vate>",
        "<p\u200brivate>",
    ],
)
def test_a_mark_around_the_beginning_of_the_end_hides_what_follows(mark: str) -> None:
    private = mark + "secret</private>"
    for before in {*range(60), *range(len(private) - 20, len(private) + 20)}:
        text = "a" * 2 * MOST_READ + private + "b" * (MOST_READ - before)
        assert "cret" not in ends_without_private(text)


@pytest.mark.parametrize("part", ["&", "<", "a&b ", "hello you there "])
def test_of_a_message_of_megabytes_a_little_is_read(part: str) -> None:
    text = part * (8_000_000 // len(part))
    begun = time.process_time()
    assert turn_text(Message(role="user", content=text)).startswith(part.strip())
    feed = Extractor(gists=True).feed
    feed(
        1,
        MessageEvent(
            specversion="1.0", id="m", source="s", data=Message(role="user", content=text)
        ),
    )
    assert time.process_time() - begun < 0.4, "seconds, if all of it is read"


def test_of_several_texts_those_of_which_something_is_left_stay() -> None:
    assert all_without_private(["a", "<private>b</private>", "c<private>d"]) == ["a", "c"]


@pytest.mark.parametrize(
    "part",
    [
        "<",
        "< ",
        "<private ",
        "</private ",
        "<private/",
        "<\x00",
        "\\",
        "&lt;",
        "&amp;",
        "&amp;amp;amp;lt;",
        "&#0",
        r"\u003cprivate ",
        "<p\u00ad",
    ],
)
def test_a_long_text_of_marks_is_read_in_one_go(part: str) -> None:
    begun = time.process_time()
    without_private("<private>" + part * (400_000 // len(part)))
    without_private(part * (400_000 // len(part)))
    without_private("<" + " " * 400_000)
    assert time.process_time() - begun < 30  # what looks back at each letter takes hours
