"""Who calls, and what the gateway serves with: its connection to Kafka and Redis."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, TypeVar

from starlette.types import Receive

from projections.errors import InvalidSettings, MemoryUnavailable
from streams.metrics.declared import EMBEDDING_CALLS, SEARCH_QUESTIONS
from streams.runtime.keyed_limit import KeyedLimit
from streams.runtime.paced import Paced
from streams.settings.settings import Settings
from threadfold.gateway.credentials import Credentials
from threadfold.gateway.last_hour import LastHour
from threadfold.gateway.metrics import GatewayMetrics
from threadfold.gateway.problems import NotConnected
from threadfold.gateway.tokens import EndUser
from threadfold.gateway.wanted import while_wanted
from threadfold.quotas import Quotas
from threadfold.service.append_result import Appended
from threadfold.service.conversations import ConversationService
from threadfold.service.documents import turns_of_large
from threadfold.service.generation_tasks import GenerationTasks
from threadfold.service.memories import Memories
from threadfold.service.memory_models import ModelCounts
from threadfold.streaming import Live

logger = logging.getLogger(__name__)
INSIDE = "threadfold.caller"
"""The key of an ASGI scope under which a caller in this process gives its :class:`Caller`; no
server takes it from the network.
"""
PRINCIPAL = "threadfold.principal"
"""The key of an ASGI scope under which admission leaves whom a request is from."""


CREDENTIAL = "threadfold.credential"
"""The key under which it leaves the key or token itself, for streams to check again."""


Answer = TypeVar("Answer")


class Caller(NamedTuple):
    """A request's tenant, the backend to serve it with, and the quotas to charge.

    ``end_user`` is whom a token of an end user stands for; ``opens``: the conversation
    does not exist yet, and he may begin it. ``receive`` gives the request's messages; None for a
    caller in this process.
    """

    tenant: str
    backend: ConversationService
    quotas: Quotas | None = None
    end_user: EndUser | None = None
    opens: bool = False
    receive: Receive | None = None

    async def while_here(self, answer: Awaitable[Answer]) -> Answer:
        """What a request whose body was read waits for and changes nothing by, as until its events
        are applied; it is cancelled when the client leaves.

        Raises:
            ClientDisconnect: the client left before.
        """
        return await (answer if self.receive is None else while_wanted(self.receive, answer))

    def charge(self, appended: Sequence[Appended]) -> None:
        """Charge what was accepted into the log to the tenant's quotas."""
        if self.quotas is not None:
            self.quotas.charge(self.tenant, len(appended), sum([item.tokens for item in appended]))


class Connection:
    """The gateway's backend and quotas, and what identifies callers.

    ``backend`` is None until the gateway is connected; ``reason`` says why.
    """

    def __init__(self, settings: Settings) -> None:
        self.backend: ConversationService | None = None
        self.quotas: Quotas | None = None
        self.credentials = Credentials(settings)
        self.reason = "it is starting"
        self.was_ready = False
        self.check: asyncio.Task[dict[str, object]] | None = None
        """The check of ``/readyz`` that no probe has the answer of yet."""
        self.ping: asyncio.Task[dict[str, Any]] | None = None
        """Its question to Redis."""
        self.check_began = 0.0
        """When it began, by the event loop's clock."""

    def get(self) -> ConversationService:
        """The connected backend; raises :class:`NotConnected`."""
        if self.backend is None:
            raise NotConnected(f"the gateway is not connected yet: {self.reason}")
        return self.backend


@dataclass(slots=True)
class GatewayState:
    """What lives as long as the application. ``ending``: the server stops; ``turns_to_decode``: of
    each tenant one large body is decoded at a time, and by ``turns_to_encode`` one large answer is
    encoded; ``openapi`` makes the OpenAPI document, ``pages`` those of ``/metrics``.
    """

    connection: Connection
    metrics: GatewayMetrics = field(default_factory=GatewayMetrics)
    live: Live | None = None
    hour: LastHour | None = None
    memory: Memories | None = None
    tasks: GenerationTasks | None = None
    ending: bool = False
    turns_to_decode: KeyedLimit = field(default_factory=lambda: KeyedLimit(1))
    turns_to_encode: KeyedLimit = field(default_factory=turns_of_large)
    openapi: Callable[[], dict[str, Any]] = dict
    pages: Paced[bytes] | None = None

    def memories(self, backend: ConversationService) -> Memories:
        """The long-term memory; it is opened when it is first asked for, and closed with the
        backend. Raises :class:`MemoryUnavailable` where it cannot be opened.
        """
        if self.memory is None:
            counts = ModelCounts(
                partial(self.metrics.add, EMBEDDING_CALLS),
                partial(self.metrics.add, SEARCH_QUESTIONS),
            )
            try:
                self.memory = Memories(backend, hold=True, counts=counts)
            except InvalidSettings as error:
                # It could be used when the gateway started.
                logger.warning("%s", error)
                raise MemoryUnavailable("its folder cannot be opened any more") from None
            backend.on_stop = self.memory.stop
            self.metrics.follow_memory(
                {"records": self.memory.feed, "turns": self.memory.turn_feed}
            )
        return self.memory

    def generation_tasks(self, backend: ConversationService) -> GenerationTasks:
        """What operators do with generations; it is there once it is first asked for."""
        if self.tasks is None:
            self.tasks = GenerationTasks(backend)
        return self.tasks

    def last_hour(self) -> LastHour:
        """The figures of the last hour; raises :class:`NotConnected` before they are there."""
        if self.hour is None:
            raise NotConnected("the gateway is not connected yet: try again shortly")
        return self.hour

    def streams(self) -> Live:
        """The gateway's streams; raises :class:`NotConnected` before they are there."""
        if self.live is None:
            raise NotConnected("the gateway is not connected yet: try again shortly")
        return self.live
