"""A tracking recorder for the library eventsourcing. It stores the places of the library's runners
in Redis, in the store of custom projections.

from threadfold.custom.eventsourcing import ThreadfoldTrackingRecorder

recorder = ThreadfoldTrackingRecorder("redis://localhost:6379/0", name="counters")
recorder.save(Tracking("orders", 21), {("acme", "open"): 4})      # the value and the place, both or
neither
"""

from __future__ import annotations

import asyncio
import threading
import urllib.parse
from collections.abc import Coroutine, Mapping
from functools import partial
from types import TracebackType
from typing import Any, TypeVar

from threadfold_client.adapters.extras import require

require("eventsourcing", "eventsourcing", "threadfold")

from eventsourcing.persistence import (  # noqa: E402
    IntegrityError,
    OperationalError,
    Tracking,
    TrackingRecorder,
)

from projections.errors import RedisUnavailable  # noqa: E402
from projections.names import check_name  # noqa: E402
from projections.storage.records import Checkpoint, Verdict  # noqa: E402
from streams.custom.persistence import NO_WRITE, ProjectionWrite, write_of  # noqa: E402
from streams.custom.result import Result  # noqa: E402
from streams.custom.store import RedisProjectionStore  # noqa: E402

T = TypeVar("T")


class ThreadfoldTrackingRecorder(TrackingRecorder):
    """``eventsourcing``'s ``TrackingRecorder``: the last processed notification of each upstream
    application.

    Each application has one checkpoint, in the hash tag of its values, written by the same fenced
    script as a projection's. Of two writers of one notification the second gets ``IntegrityError``,
    in one process or in several. Redis loses places and values together, so a runner begins again
    from what is left. Methods may be called from any thread; ``close`` (or ``with``) ends its own.

    Args:
        url, prefix, timeout: as for ``streams.custom.store.RedisProjectionStore``.
        name: whose places these are; two recorders of one name share them.
    """

    def __init__(
        self, url: str, prefix: str = "threadfold", *, name: str = "tracking", timeout: float = 5.0
    ) -> None:
        self._name = check_name("recorder", name)
        self._store = RedisProjectionStore(url, prefix, timeout=timeout)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(
            target=self._loop.run_forever, name="threadfold-recorder", daemon=True
        )
        self._thread.start()

    def __enter__(self) -> ThreadfoldTrackingRecorder:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections and end the thread; a second call does nothing."""
        if self._thread.is_alive():
            self._run(self._store.close())
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
            self._loop.close()

    def insert_tracking(self, tracking: Tracking) -> None:
        """Record that a notification was processed.

        Raises:
            IntegrityError: it, or a later one of its application, is recorded already.
            OperationalError: Redis does not answer; unknown whether it was recorded.
        """
        self._run(self._insert(tracking, NO_WRITE))

    def save(self, tracking: Tracking, values: Mapping[tuple[str, str], Any]) -> None:
        """Record a notification together with values by tenant and key (any JSON; None deletes),
        all of it or nothing.

        Raises:
            IntegrityError, OperationalError: as :meth:`insert_tracking`.
            InvalidProjection: a value, a tenant or a key is not one that can be.
        """
        self._run(self._save(tracking, values))

    def value(self, application_name: str, tenant: str, key: str) -> Any | None:
        """A value that was saved with a notification of this application, None without any;
        raises ``OperationalError``.
        """
        return self._run(self._result(application_name).get(tenant, key))

    def max_tracking_id(self, application_name: str) -> int | None:
        """The last notification recorded for an application, None without any; raises
        ``OperationalError``.
        """
        checkpoint = self._run(self._store.checkpoint(self._place(application_name)))
        return None if checkpoint is None else checkpoint.offset

    async def _save(self, tracking: Tracking, values: Mapping[tuple[str, str], Any]) -> None:
        result = self._result(tracking.application_name)
        for (tenant, key), value in values.items():
            if value is None:
                result.delete(tenant, key)
            else:
                result.put(tenant, key, value)
        await self._insert(tracking, write_of(await result.changes(), {}))

    async def _insert(self, tracking: Tracking, write: ProjectionWrite) -> None:
        place, wanted = self._place(tracking.application_name), tracking.notification_id
        while True:
            before = await self._store.checkpoint(place)
            if before is not None and before.offset >= wanted:
                break
            revision = "" if before is None else before.revision
            answer = await self._store.apply(place, Checkpoint(revision, wanted, 0, "", -1), write)
            if answer.verdict is Verdict.APPLIED:
                return
            if answer.verdict is Verdict.DUPLICATE:
                break  # another writer recorded this very notification in between
        raise IntegrityError(
            f"notification {wanted} of {tracking.application_name}, or a later one, is recorded"
            " already"
        )

    def _result(self, application_name: str) -> Result:
        return Result(self._name, partial(self._store.load, self._place(application_name)))

    def _place(self, application_name: str) -> str:
        # Apart from every projection's place, whose second part is a number.
        return f"{self._name}:of:{urllib.parse.quote(application_name, safe='')}"

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return asyncio.run_coroutine_threadsafe(work, self._loop).result()
        except RedisUnavailable as error:
            raise OperationalError(str(error)) from error
