"""What a window store is: its protocol, in parts.

``projections.redis.store`` keeps windows in Redis, ``threadfold.testing`` in memory; both pass the
same suite (tests/contract).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from projections.names import Key
from projections.storage.listing import Found
from projections.storage.records import Applied, Checkpoint, Index, Stored, Write


class Checkpoints(Protocol):
    """Reads checkpoints."""

    async def checkpoint(self, generation: int, partition: int) -> Checkpoint | None:
        """The partition's checkpoint, None when the store knows nothing of it."""


class WindowReader(Checkpoints, Protocol):
    """Reads windows."""

    async def read(
        self, generation: int, partition: int, keys: list[Key], *, recent_ids: bool = True
    ) -> tuple[Checkpoint | None, list[Stored | None]]:
        """Checkpoint and windows, in the order of ``keys``, as of one moment.

        ``recent_ids``: whether their recent ids are read, too.
        """

    async def fields(
        self, generation: int, partition: int, key: Key, names: list[bytes]
    ) -> tuple[Checkpoint | None, dict[bytes, bytes]]:
        """Checkpoint and some fields of a window as of one moment; fields that are not there are
        absent.
        """

    async def head(
        self, generation: int, partition: int, key: Key
    ) -> tuple[Checkpoint | None, Stored | None]:
        """Checkpoint, and of a window its head (of one that sleeps its stub) and its recent ids, as
        of one moment.
        """


class Copies(Protocol):
    """Reads the copies that are kept of windows (``projections.storage.window_copies``)."""

    async def copies(self, generation: int, partition: int, key: Key) -> list[bytes]:
        """The copies of a conversation's window, encoded, in any order."""


class WindowWriter(Protocol):
    """Writes windows: what a partition's owner does, one batch after the other."""

    async def apply(
        self, generation: int, partition: int, checkpoint: Checkpoint, writes: list[Write]
    ) -> Applied:
        """Write a batch and its checkpoint atomically, if ``checkpoint.revision`` is the revision
        in force.
        """


class WaitingWork(Protocol):
    """What an owner comes back to: compaction requests, timers, idle windows."""

    async def due(self, generation: int, partition: int, now_ms: int, limit: int) -> list[Key]:
        """Conversations whose compaction request should be sent (again) by ``now_ms``, longest due
        first.
        """

    async def due_count(self, generation: int, partition: int) -> int:
        """How many conversations wait for a summary."""

    async def requested(
        self, generation: int, partition: int, keys: list[Key], again_at_ms: int
    ) -> None:
        """Note that requests were sent; those still due come up again at ``again_at_ms``. Not part
        of any window.
        """

    async def timers(
        self, generation: int, partition: int, now_ms: int, limit: int, *, latest: bool = False
    ) -> list[Key]:
        """Conversations whose timer is at or before ``now_ms``, earliest first, then by name; with
        ``latest`` the other way round.
        """

    async def put_off(self, generation: int, partition: int, timers: dict[Key, int]) -> None:
        """Set timers that are there to another time in ms; a conversation without one gets none.
        Not part of any window.
        """

    async def idle(self, generation: int, partition: int, before_ms: int, limit: int) -> list[Key]:
        """Conversations whose windows were written last by ``before_ms``, by their batches' times,
        the longest idle first, then by name.

        Those that sleep, were erased or were put to rest are not among them.
        """


class Listings(Protocol):
    """What is kept beside the windows, for lists and for whole partitions."""

    async def listed(
        self,
        generation: int,
        partition: int,
        name: str,
        before: Found | None,
        limit: int,
        since: int = 0,
    ) -> list[Found]:
        """Conversations of a list, latest first (of the same time the later name first), from the
        one after ``before`` on.

        ``name`` is ``recent:TENANT``, ``waiting:TENANT`` or a
        :func:`projections.storage.listing.place`; ``since`` leaves out earlier ones (ms). In
        :data:`projections.storage.listing.QUARANTINED` a conversation is listed as
        ``tenant/conversation``.
        """

    async def conversations(self, generation: int, partition: int) -> set[Key]:
        """The conversations that have a window here; one that is written or deleted meanwhile may
        be missing or there.
        """

    async def index(self, generation: int, partition: int) -> tuple[Checkpoint | None, Index]:
        """Checkpoint and everything that is kept beside the windows, as of one moment.

        Lists that came into being in this very moment may be missing: read again where that
        matters.
        """

    async def count_set_aside(self, counts: Mapping[int, int]) -> None:
        """Add to the numbers of records that are nobody's, by partition. They are for metrics:
        they begin anew where the store was lost.
        """

    async def set_aside(self) -> dict[int, int]:
        """The numbers of records that are nobody's, by partition."""


class GenerationStore(Protocol):
    """Takes and drops whole generations."""

    async def hold(self, generation: int, holder: str, seconds: float) -> bool:
        """Take or keep the sole right to build, switch to or drop a generation; after ``seconds``
        without another call (0: now) it is free.

        Returns False where another holder has it. It keeps two from starting the same work, no
        more: windows are protected by their revisions, and the right is lost with the store.
        """

    async def drop_partition(self, generation: int, partition: int) -> int:
        """Delete everything of one partition of a generation; returns how many keys went."""

    async def drop_generation(self, generation: int, partitions: int) -> int:
        """Delete everything of a generation; returns how many keys went."""


class WindowStore(
    WindowReader,
    Copies,
    WindowWriter,
    WaitingWork,
    Listings,
    GenerationStore,
    Protocol,
):
    """Windows, checkpoints, due sets, timers and lists of a generation's partitions: all parts.
    Whoever needs one part alone asks for that.

    Its own reads return the stub of a conversation that sleeps.

    Every method raises :class:`projections.errors.RedisUnavailable` when the store cannot be
    reached; a batch whose answer was lost may have been applied, and applying it again with the
    same arguments answers ``DUPLICATE`` then.
    """

    reader: WindowReader
    """Reads windows for whoever folds or shows them: the store itself, or a
    ``streams.recovery.hydrating_reader`` over it, which brings back those that sleep.
    """
