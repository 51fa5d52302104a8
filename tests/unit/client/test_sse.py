"""The parser of server-sent events: whatever the chunks, the same events; and the corners of the
HTML standard.
"""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from threadfold_client.sse import ServerSent, SseParser, StreamTooLong

TEXT = st.text(st.characters(exclude_characters="\r\n\0", exclude_categories=["Cs"]), max_size=20)


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[ServerSent], str | None]:
    """A stream's bytes, with the events that are in it and the last id, written from the events and
    never by the parser.
    """
    out: list[str] = []
    events: list[ServerSent] = []
    last: str | None = None
    for _ in range(draw(st.integers(0, 6))):
        end = draw(st.sampled_from(["\n", "\r\n", "\r"]))
        name, id_ = (
            draw(st.one_of(st.none(), TEXT.filter(bool))),
            draw(st.one_of(st.none(), TEXT.filter(bool))),
        )
        lines = draw(st.lists(TEXT, max_size=4))
        space = draw(st.sampled_from([" ", ""]))
        block = [f"event: {name}"] if name is not None else []
        block += [f"id: {id_}"] if id_ is not None else []
        # Without a space after the colon, a line's own first blank would be taken for it.
        block += [f"data:{space if not line.startswith(' ') else ' '}{line}" for line in lines]
        block += draw(
            st.lists(
                st.sampled_from([": heartbeat", ":", "unknown: field", "nocolon", "retry: 5s"]),
                max_size=2,
            )
        )
        out.append("".join(line + end for line in block) + end)
        if lines:
            events.append(ServerSent(name or "message", id_, "\n".join(lines)))
        last = id_ if id_ is not None else last
    mark = draw(st.sampled_from(["", "\ufeff"]))
    return (mark + "".join(out)).encode(), events, last


def parsed(chunks: list[bytes]) -> tuple[list[ServerSent], SseParser]:
    parser = SseParser()
    return [event for chunk in chunks for event in parser.feed(chunk)], parser


@given(streams(), st.data())
def test_however_a_stream_is_cut_into_chunks_its_events_are_the_same(
    stream: tuple[bytes, list[ServerSent], str | None], data: st.DataObject
) -> None:
    raw, events, last = stream
    cuts = sorted(data.draw(st.lists(st.integers(0, len(raw)), max_size=12)))
    chunks = [raw[a:b] for a, b in zip([0, *cuts], [*cuts, len(raw)], strict=True)]
    found, parser = parsed(chunks)
    assert found == events
    assert parser.last_id == last


@given(streams())
@example(
    (
        b"data: a\r\n\r\ndata: b\r\r",
        [ServerSent("message", None, "a"), ServerSent("message", None, "b")],
        None,
    )
)
def test_byte_by_byte_it_is_the_same(stream: tuple[bytes, list[ServerSent], str | None]) -> None:
    raw, events, _ = stream
    assert parsed([bytes([byte]) for byte in raw])[0] == events


def test_an_event_that_the_end_cuts_off_is_never_given() -> None:
    assert parsed([b"id: 7\ndata: whole\n\nid: 8\ndata: half\n"])[0] == [
        ServerSent("message", "7", "whole")
    ]


def test_an_id_alone_moves_the_place_and_is_no_event() -> None:
    found, parser = parsed([b"id: c9\n\n"])
    assert (found, parser.last_id) == ([], "c9")


def test_an_id_counts_only_once_its_block_is_whole() -> None:
    assert parsed([b"id: 1\ndata: x\n\nid: 2\ndata: y"])[1].last_id == "1"


def test_retry_is_taken_as_digits_only() -> None:
    assert parsed([b"retry: 1500\n\nretry: soon\n\n"])[1].retry_ms == 1500


def test_an_id_with_nul_is_passed_over() -> None:
    assert parsed([b"id: a\n\nid: b\0c\n\n"])[1].last_id == "a"


@pytest.mark.parametrize("raw", [b"data: " + b"x" * 200, b"data: 12345678\n" * 20])
def test_what_never_ends_is_refused(raw: bytes) -> None:
    with pytest.raises(StreamTooLong):
        SseParser(limit=100).feed(raw)
