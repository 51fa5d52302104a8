"""How long an answer may stay unread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from threadfold.gateway.unread_answers import FLUSH, RATE, SECONDS, Unread


class Connection:
    """A connection's loop and its transport: what is not read yet, and what is due later."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.aborted = False
        self.due: list[tuple[float, Callable[[], Any]]] = []
        self.unread = Unread(self, self)  # type: ignore[arg-type]

    def call_later(self, seconds: float, call: Callable[..., Any], *args: Any) -> Connection:
        self.due = [(seconds, lambda: call(*args))]
        return self

    def cancel(self) -> None:
        self.due = []

    def get_write_buffer_size(self) -> int:
        return self.left

    def abort(self) -> None:
        self.aborted = True

    def later(self, read: int) -> float:
        """The client has read so many bytes when it is time to look; returns after how long."""
        ((seconds, call),) = self.due
        self.due, self.left = [], self.left - read
        call()
        return seconds


def test_a_client_that_reads_nothing_or_a_byte_now_and_then_loses_its_connection() -> None:
    for read in (0, 1, int(SECONDS * RATE) - 1):
        connection = Connection(100_000)
        connection.unread.watch()
        assert connection.later(read) == SECONDS and connection.aborted


def test_a_client_that_reads_slowly_keeps_its_connection_until_it_has_read_all() -> None:
    connection = Connection(100_000)
    connection.unread.watch()
    while connection.left:
        connection.later(min(connection.left, int(SECONDS * RATE)))
        connection.unread.watch()
    assert not connection.aborted and not connection.due


def test_who_reads_on_is_forgotten_and_who_makes_way_ends_soon() -> None:
    connection = Connection(100_000)
    connection.unread.watch()
    connection.unread.forget()
    assert not connection.due
    connection.unread.end_soon()
    assert connection.later(99_999) == FLUSH and connection.aborted
