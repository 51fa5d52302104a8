"""Connections whose answers are not read end."""

from __future__ import annotations

import asyncio

from tests.support.worker import until
from threadfold.gateway.unread_answers import Unread


class Transport(asyncio.Transport):
    aborted = False

    def get_write_buffer_size(self) -> int:
        return 1_000

    def abort(self) -> None:
        self.aborted = True


async def test_a_connection_that_makes_way_ends_although_its_client_begins_to_read() -> None:
    transport = Transport()
    unread = Unread(asyncio.get_running_loop(), transport)
    unread.watch()
    unread.end_soon()
    unread.forget()  # as when writing goes on
    unread.watch()
    await until(lambda: asyncio.sleep(0, transport.aborted), 5)
