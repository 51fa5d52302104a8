"""What of a partition's state in Redis is read, and what makes it be folded anew."""

from __future__ import annotations

from projections.redis.node import Node
from projections.redis.values import LAYOUT, checkpoint_of
from projections.window.meta import VERSION

STATE = {
    b"revision": b"r",
    b"offset": b"7",
    b"timestamp": b"1",
    b"hash": b"ab",
    b"target": b"-1",
    b"layout": LAYOUT,
}


def node() -> Node:
    return Node("here", "redis://127.0.0.1:1/0", timeout=1, connections=1, master=True)


def test_a_state_as_this_release_writes_it_is_read() -> None:
    found = checkpoint_of(STATE, node())
    assert found is not None and found.offset == 7


def test_a_state_of_another_fold_is_as_none_though_windows_lie_as_they_did() -> None:
    former = LAYOUT.replace(b"%d" % VERSION, b"%d" % (VERSION - 1))
    assert former != LAYOUT
    assert checkpoint_of({**STATE, b"layout": former}, node()) is None


def test_a_state_of_no_layout_is_as_none() -> None:
    assert checkpoint_of({**STATE, b"layout": b""}, node()) is None
