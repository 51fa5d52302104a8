"""The gateway's application: it finds a request's route, admits it, and calls the handler.

It listens even while Kafka is away: ``/healthz`` says that the process is alive, everything else is
answered 503 until the gateway is connected. It connects, and connects again, in the background.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import cache
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.routing import Router
from starlette.types import Receive, Scope, Send

from projections.errors import CallableUnavailable, Overloaded, QuotaExceeded, ThreadfoldError
from projections.events.codec import full_type
from projections.events.tokenizer import count_all
from projections.events.validation import Record
from projections.redis.daily_counts import DailyCounts
from projections.redis.shared_buckets import SharedBuckets
from streams.encryption.master_keys import master_keys_of
from streams.memory.stores import check_store
from streams.metrics.declared import APPENDED, CALLABLE_REFUSALS, QUOTA_USED
from streams.metrics.metrics import Metrics
from streams.metrics.reports import GATEWAYS, Reporter
from streams.runtime.process_pool import NICENESS, cores
from streams.runtime.processor import Processes
from streams.runtime.tasks import end_tasks
from streams.settings.quotas import Quota
from streams.settings.settings import Settings
from threadfold.gateway import problems
from threadfold.gateway.access import INSIDE, Caller, Connection, GatewayState
from threadfold.gateway.admission import Admission
from threadfold.gateway.concurrency import LIMITS, UNLIMITED, Limits
from threadfold.gateway.declaration import Cost, Route
from threadfold.gateway.end_users import answered
from threadfold.gateway.key_sets import check_source
from threadfold.gateway.last_hour import LastHour
from threadfold.gateway.loop_turns import Turns
from threadfold.gateway.metrics import Measured
from threadfold.gateway.openapi import openapi_document
from threadfold.gateway.origins import Origins
from threadfold.gateway.request import Request
from threadfold.gateway.routes import TABLE
from threadfold.gateway.routes.common import answer, answer_beside
from threadfold.gateway.user_share import UserShare
from threadfold.gateway.wanted import while_wanted
from threadfold.quotas import Quotas, QuotaUse
from threadfold.service.append_result import Appended
from threadfold.service.conversations import ConversationService
from threadfold.service.unfolded import Unfolded
from threadfold.service.window_document import prepare
from threadfold.streaming import Live

logger = logging.getLogger(__name__)
_ROLLBACK = full_type("rollback")
RECONNECT = 1.0
"""Seconds between two attempts to connect."""
PROCESSES = min(2, cores())
"""Processes that fold windows as they were, and compare policies; none starts before it is used."""
STREAMS_IN_A_STEP = 8
"""Streams that send something in one step of the event loop, a millisecond of work: an event of one
conversation may be for a thousand of them.
"""


class Gateway:
    """The ASGI application. ``state`` is what lives as long as it does; ``router.lifespan_context``
    starts and stops it.
    """

    def __init__(
        self, settings: Settings, on_connected: Callable[[], None], limits: Limits
    ) -> None:
        self.state = GatewayState(Connection(settings), openapi=self.openapi)
        self._origins = Origins(settings)
        share = UserShare(
            settings.user_requests_per_second,
            settings.user_concurrent_requests,
            settings.user_streams,
        )
        self._admission = Admission(
            self.state.connection, self._origins, share, self._answer, limits
        )
        self.concurrency = self._admission.concurrency
        self.router = Router(lifespan=self._lifespan)
        self._settings = settings
        self._on_connected = on_connected
        self._processes = Processes(PROCESSES, prepare=prepare, niceness=NICENESS)
        self._reporter: Reporter | None = None
        self._measured = Measured(self._serve, self.state.metrics, ending=lambda: self.state.ending)

    @classmethod
    def on(cls, backend: ConversationService) -> Gateway:
        """A gateway on a backend that runs already, for callers in this process: it has no limits,
        and needs no lifespan.
        """
        made = cls(backend.settings, lambda: None, UNLIMITED)
        made.state.connection.backend = backend
        return made

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request, or the lifespan."""
        if scope["type"] == "http":
            await self._measured(scope, receive, send)
        else:
            await self.router(scope, receive, send)

    @staticmethod
    @cache
    def openapi() -> dict[str, Any]:
        """The OpenAPI document; it is made when it is first asked for."""
        return openapi_document(TABLE)

    def end_streams(self) -> None:
        """End all streams, and let none begin: what a server does first when it stops, because it
        waits for open connections.

        Requests that it cuts off from now on are answered 503.
        """
        self.state.ending = True
        if self.state.live is not None:
            self.state.live.end_streams()

    def _serve(self, scope: Scope, receive: Receive, send: Send) -> Awaitable[None]:
        route, parts = TABLE.find(scope["method"], scope["path"])
        scope["route"] = route
        if not self._origins.idle and INSIDE not in scope:
            return self._serve_page(route, parts, scope, receive, send)
        return self._admission.serve(route, parts, scope, receive, send)

    async def _serve_page(
        self, route: Route, parts: Sequence[str], scope: Scope, receive: Receive, send: Send
    ) -> None:
        send = self._origins.answering(scope, send)
        answered = self._origins.answer(route, scope)
        if answered is not None:
            if await self._admission.keyless_turn(scope):
                await answered(scope, receive, send)
        else:
            await self._admission.serve(route, parts, scope, receive, send)

    async def _answer(
        self, route: Route, parts: Sequence[str], scope: Scope, receive: Receive
    ) -> Response:
        """The answer of a route's handler; what it raises is answered by its class, but for
        :class:`QuotaExceeded` and a read's :class:`Overloaded`, which are admission's to answer.
        """
        handled: Awaitable[Response] = self._handled(route, parts, scope, receive)
        if scope["method"] == "GET" and not route.streams:
            handled = while_wanted(receive, handled)
        try:
            return await handled
        except QuotaExceeded:
            raise
        except Overloaded as error:
            if scope["method"] == "GET" and route.cost is not Cost.FREE:
                raise
            return self._problem(error)
        except ThreadfoldError as error:
            return self._problem(error)
        except ClientDisconnect:
            return problems.disconnected()
        except Exception as error:
            logger.exception("an unexpected error%s", problems.of_request())
            return problems.unforeseen(error)

    async def _handled(
        self, route: Route, parts: Sequence[str], scope: Scope, receive: Receive
    ) -> Response:
        """Call a route's handler with its arguments."""
        request: Request | None = None
        try:
            arguments: dict[str, Any] = dict(zip(route.names, parts, strict=False))
            injected = route.injected
            end_user = None
            if "caller" in injected:
                caller = arguments["caller"] = await self._admission.caller(
                    route, scope, receive, parts
                )
                end_user = caller.end_user
            if not route.refuses:
                arguments.update(route.parameters.read(scope))
            if "request" in injected or "body" in injected:
                request = Request(scope, receive, self.state)
                if "request" in injected:
                    arguments["request"] = request
                if route.body is not None:
                    arguments["body"] = await request.read(route.body)
            result = route.handler(**arguments)
            if end_user is not None:
                result = answered(caller, end_user, route, parts, result)
            result = await result
            if not route.large:
                return result if isinstance(result, Response) else answer(result, route.status)
            turns = self.state.turns_to_encode
            return await answer_beside(turns, caller.tenant, result, route.status)
        finally:
            if request is not None:
                request.close()

    def _problem(self, error: ThreadfoldError) -> Response:
        if isinstance(error, CallableUnavailable):
            self.state.metrics.add(CALLABLE_REFUSALS, error.reason)
        return problems.problem_of(error)

    @asynccontextmanager
    async def _lifespan(self, _: object) -> AsyncIterator[None]:
        connecting = asyncio.create_task(self._connect(), name="gateway-connecting")
        try:
            yield
        finally:
            try:
                await self._close(connecting)
            except asyncio.CancelledError:
                # The process ends after a second signal. Starlette would log a traceback.
                logger.warning("the gateway ends before its connections are closed")

    async def _close(self, connecting: asyncio.Task[None]) -> None:
        state, connection = self.state, self.state.connection
        await end_tasks([connecting, connection.check])
        if state.live is not None:
            await state.live.stop()
            state.live = None
        if state.tasks is not None:
            await state.tasks.stop()
            state.tasks = None
        if state.hour is not None:
            await state.hour.stop()
            state.hour = None
        await connection.credentials.close()
        if self._reporter is not None:
            await self._reporter.stop()
        if connection.quotas is not None:
            await connection.quotas.stop()
        if connection.backend is not None:
            await connection.backend.stop()
        connection.backend = connection.quotas = state.memory = None
        await self._processes.close()

    async def _connect(self) -> None:
        """Try until it is connected; after that the clients reconnect by themselves."""
        state, connection = self.state, self.state.connection
        while connection.backend is None:
            backend = ConversationService(self._settings, self._processes)
            try:
                # The first count makes its tables, for half a second: not in the loop, and not
                # while somebody waits for an append.
                await asyncio.to_thread(count_all, ["warm"])
                await backend.start()
                sends = Turns(STREAMS_IN_A_STEP)
                state.live = await Live(backend, turn=sends.take).start()
                connection.quotas = quotas = await _quotas(self._settings, backend).start()
                state.live.on_kept(_charging(backend, quotas))
                tenants = _metrics_of_tenants(quotas)
                backend.on_drafts = _admitting(quotas, tenants, sends)
                backend.unfolded = Unfolded(backend.windows.checkpoint)
                state.metrics.follow(quotas, backend.windows.cache, self._settings)
                self._reporter = Reporter(tenants, self._settings, GATEWAYS)
                self._reporter.start()
                state.hour = LastHour(backend, quotas, lambda: state.metrics.requests).start()
                connection.backend = backend
            except (
                Exception
            ) as error:  # whatever it was, a gateway that listens has to go on trying
                if state.live is not None:
                    await state.live.stop()
                    state.live = None
                await backend.stop()
                if isinstance(error, ThreadfoldError):
                    logger.warning("not connected yet: %s", error)
                    connection.reason = str(error)
                else:
                    logger.exception("not connected yet")
                    connection.reason = f"an unexpected error ({type(error).__name__})"
                await asyncio.sleep(RECONNECT)
        self._on_connected()


def create_gateway(
    settings: Settings, on_connected: Callable[[], None] = lambda: None, limits: Limits = LIMITS
) -> Gateway:
    """The gateway's ASGI application. Nothing connects before its lifespan begins.

    Args:
        on_connected: called once everything that lives as long as the process has been made.
        limits: what may be under way at once.

    Raises:
        InvalidSettings: an address is missing, a master key is wrong, the file with the keys of
            tokens is missing, or there can be no memory store.
    """
    settings.require()
    master_keys_of(settings)
    check_source(settings.jwt_keys)
    check_store(settings)
    return Gateway(settings, on_connected, limits)


def _quotas(settings: Settings, backend: ConversationService) -> Quotas:
    default = settings.quota()

    def quota_of(name: str) -> Quota:
        return backend.control.state.quota_of(name, default)

    buckets = SharedBuckets(settings.redis, settings.topic_prefix)
    counts = DailyCounts(settings.redis, settings.topic_prefix, timeout=0.5)
    quotas = Quotas(buckets, quota_of, counts=counts)
    backend.control.on_change(lambda _: quotas.refresh())
    return quotas


def _metrics_of_tenants(quotas: Quotas) -> Metrics:
    """The metrics that name tenants. They are reported: the gateway's own page needs no key."""
    metrics = Metrics("tenants")
    metrics.read(QUOTA_USED, QuotaUse(quotas).look)
    return metrics


def _admitting(
    quotas: Quotas, metrics: Metrics, sends: Turns
) -> Callable[[str, Sequence[Record]], Awaitable[None]]:
    async def admit(tenant: str, records: Sequence[Record]) -> None:
        # Behind what its streams have to send: else they would fall behind what it appends.
        await sends.take(tenant, amount=0)
        rollbacks = sum([record.type == _ROLLBACK for record in records])
        if rollbacks:
            await quotas.admit_rollbacks(tenant, rollbacks)
        metrics.add_of_tenant(tenant, {APPENDED: len(records)})

    return admit


def _charging(
    backend: ConversationService, quotas: Quotas
) -> Callable[[str, Sequence[Appended]], None]:
    """What charges texts in progress that were kept as messages: nobody's request appended them."""

    def charge(tenant: str, appended: Sequence[Appended]) -> None:
        Caller(tenant, backend, quotas).charge(appended)

    return charge
