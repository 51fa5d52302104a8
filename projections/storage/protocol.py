"""What a window store is: its records, its protocol, and how a window's changes become one write.

``projections.redis.store`` keeps windows in Redis, ``threadfold.testing`` in memory; both pass the
same suite (tests/contract).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from enum import Enum
from typing import NamedTuple, Protocol

from projections.errors import CorruptWindow
from projections.fold.timers import KEEP_TIMER, NO_TIMER, Timed, changed_timer, timed
from projections.names import Key
from projections.policy.policy import Rules
from projections.storage.layout import HEAD, Mark, changes_of, load_recents, load_window
from projections.storage.listing import NOT_LISTED, Found, Listed, Listing, listed, listing_of
from projections.storage.stubs import STUB, Stub, encode_stub
from projections.window.meta import Due
from projections.window.recent_ids import RecentIds
from projections.window.window import Window


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a partition's windows of one generation are, and by which record.

    ``revision`` grows with every write ("" before the first). ``offset`` is the last record folded
    (-1: none), ``timestamp`` (ms) and ``digest`` (hex SHA-256 of key and value) identify it. While
    ``offset < target`` the partition is healing: its windows are behind what readers have already
    seen. ``unverified``: the server that answered is not the one they were written to (it was
    started anew, or took over), and nobody has said since that they are the latest; written with,
    it says that the writer does not know it either.
    """

    revision: str = ""
    offset: int = -1
    timestamp: int = -1
    digest: str = ""
    target: int = -1
    unverified: bool = False

    @property
    def behind(self) -> bool:
        """Whether its windows are being brought back: they are as of ``offset``, but readers have
        seen later ones.
        """
        return self.offset < self.target

    @property
    def healing(self) -> bool:
        """Whether windows of this partition must not be served yet."""
        return self.unverified or self.behind


@dataclass(frozen=True, slots=True)
class Stored:
    """A window's stored fields (``projections.storage.layout``), and the blocks of its recent ids
    (empty when they were not asked for).

    Of a conversation that sleeps a store has field ``s`` alone (``projections.storage.stubs``).
    ``stub`` is that one's value where these fields were brought back from its snapshot: then the
    store holds none of them.
    """

    fields: dict[bytes, bytes]
    recents: dict[bytes, bytes]
    stub: bytes | None = None

    @property
    def asleep(self) -> bytes | None:
        """The stub that stands here in place of a window, None for a window, also for one that was
        brought back.
        """
        return self.fields.get(STUB) if HEAD not in self.fields else None

    def load(self, key: Key, partition: int, rules: Rules) -> Window:
        """The window these fields are of; raises :class:`CorruptWindow` when they are not what was
        stored.
        """
        return self.open(key, partition, rules)[0]

    def open(self, key: Key, partition: int, rules: Rules) -> tuple[Window, StoreMark]:
        """The window, and the mark of a store that holds it; raises like :meth:`load`."""
        with stored_form(key):
            if self.asleep is not None:
                raise ValueError("it sleeps: read it with the store's reader")
            window, mark = load_window(key, partition, rules, self.fields, self.recents)
            if self.stub is not None:
                mark = Mark()
            return window, StoreMark(mark, _asked(window), timed(window), listed(window))

    def recent_ids(self, key: Key) -> RecentIds:
        """The recent ids alone; raises like :meth:`load`."""
        with stored_form(key):
            return load_recents(self.recents)


@contextmanager
def stored_form(key: Key) -> Iterator[None]:
    """Name whatever goes wrong in reading a window's stored fields: :class:`CorruptWindow`."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise CorruptWindow(
            f"the stored window of {key} cannot be read ({error}): mend it with `threadfold verify"
            " --repair`"
        ) from None


class DueChange(Enum):
    """What happens to a conversation's place in the due set."""

    KEEP = "keep"
    CLEAR = "clear"
    SET = "set"


@dataclass(frozen=True, slots=True)
class Write:
    """The change of one conversation in a batch: fields to put and to delete (``reset``: all go
    first), and its place in the due set.

    ``after`` is the mark of the store once it is written. ``timer`` is the time in ms at which to
    look at the conversation next, None for never, or
    :data:`projections.fold.timers.KEEP_TIMER`. ``listing`` is what changes of the tenant's
    lists, None for nothing. ``anew``: whatever is there of the conversation goes first, its recent
    ids, too. ``rests`` takes it out of the idle set: it sleeps now, or is not to be put to sleep
    before its next write.
    """

    key: Key
    reset: bool
    put: list[tuple[bytes, bytes]]
    gone: list[bytes]
    recents_put: list[tuple[bytes, bytes]]
    recents_gone: list[bytes]
    due: DueChange
    after: StoreMark
    timer: int | None = KEEP_TIMER
    listing: Listing | None = None
    anew: bool = False
    rests: bool = False


class Verdict(Enum):
    """What a store made of a batch. On ``FENCED`` nothing was written: drop caches, load, go on."""

    APPLIED = "applied"
    DUPLICATE = "duplicate"
    FENCED = "fenced"


class Applied(NamedTuple):
    """A verdict with the revision now in force."""

    verdict: Verdict
    revision: str


@dataclass(frozen=True, slots=True)
class Index:
    """What a store keeps of a partition beside its windows: the due set, the timers (ms), and the
    lists by name, each with its times.
    """

    due: dict[Key, int]
    timers: dict[Key, int]
    lists: dict[str, dict[str, int]]


class Checkpoints(Protocol):
    """Reads checkpoints."""

    async def checkpoint(self, generation: int, partition: int) -> Checkpoint | None:
        """The partition's checkpoint, None when the store knows nothing of it."""


class WindowReader(Protocol):
    """Reads windows."""

    async def read(
        self, generation: int, partition: int, keys: list[Key], *, recents: bool = True
    ) -> tuple[Checkpoint | None, list[Stored | None]]:
        """Checkpoint and windows, in the order of ``keys``, as of one moment.

        ``recents``: whether their recent ids are read, too.
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

    async def requested(
        self, generation: int, partition: int, keys: list[Key], again_at_ms: int
    ) -> None:
        """Note that requests were sent; those still due come up again at ``again_at_ms``. Not part
        of any window.
        """

    async def timers(self, generation: int, partition: int, now_ms: int, limit: int) -> list[Key]:
        """Conversations whose timer is at or before ``now_ms``, earliest first, then by name."""

    async def put_off(self, generation: int, partition: int, timers: dict[Key, int]) -> None:
        """Set timers that are there to another time in ms; a conversation without one gets none.
        Not part of any window.
        """

    async def idle(self, generation: int, partition: int, before_ms: int, limit: int) -> list[Key]:
        """Conversations whose windows were written last by ``before_ms``, by their batches' times,
        the longest idle first, then by name.

        Those that sleep, were erased or were told to rest are not among them.
        """


class Listings(Protocol):
    """What is kept beside the windows, for lists and for whole partitions."""

    async def listed(
        self, generation: int, partition: int, name: str, before: Found | None, limit: int
    ) -> list[Found]:
        """Conversations of a list, latest first (of the same time the later name first), from the
        one after ``before`` on.

        ``name`` is ``recent:TENANT``, ``waiting:TENANT`` or ``user:`` and
        :func:`projections.storage.listing.user_name`; in
        :data:`projections.storage.listing.QUARANTINED` a conversation is told as
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
    Checkpoints, WindowReader, WindowWriter, WaitingWork, Listings, GenerationStore, Protocol
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


Asked = tuple[Due | None, int | None, str | None]
"""A due span, the last rollback and the summary in force: what a compaction request says."""


class StoreMark(NamedTuple):
    """What of a window a store already holds, what its latest compaction request is about, what its
    timer and its lists follow from.
    """

    layout: Mark = Mark()
    asked: Asked = (None, None, None)
    timed: Timed = NO_TIMER
    listed: Listed = NOT_LISTED


def _asked(window: Window) -> Asked:
    """What a compaction request of this window is about; when any of it changes, an earlier
    request's answer is refused.
    """
    meta = window.meta
    if meta.due is None or meta.quarantine is not None:
        # A quarantined window would take no summary: asking for one again and again would only be
        # paid for.
        return (None, None, None)
    return (meta.due, meta.rollback, meta.summary.summary_id if meta.summary else None)


NOTHING = StoreMark()


def write_of(window: Window, mark: StoreMark = NOTHING, at_ms: int = 0) -> Write:
    """The write that brings a store from ``mark`` to the window as it is now.

    ``at_ms`` is what :func:`projections.fold.timers.changed_timer` says; it matters to the
    timer and the lists alone.
    """
    reset, put, gone, recents_put, recents_gone, after = changes_of(window, mark.layout)
    asked = _asked(window)
    change = (
        DueChange.KEEP
        if asked == mark.asked
        else DueChange.SET
        if asked[0] is not None
        else DueChange.CLEAR
    )
    now = timed(window)
    timer = changed_timer(mark.timed, now, at_ms)
    lists = listed(window)
    listing = listing_of(mark.listed, lists, at_ms)
    mark_after = StoreMark(after, asked, now, lists)
    anew = mark.layout.nothing
    return Write(
        window.key,
        reset,
        put,
        gone,
        recents_put,
        recents_gone,
        change,
        mark_after,
        timer,
        listing,
        anew,
    )


def stub_write(
    key: Key, stub: Stub, recents: Iterable[bytes] = (), *, after: Write | None = None
) -> Write:
    """The write that replaces a stored window by a stub; timer and lists stay as they are.

    Args:
        recents: the names of the stored blocks of its recent ids.
        after: the write of the whole window, where the store does not have it: of it, only due,
            timer and lists are written.
    """
    whole = after or rest_write(key)
    put = [(STUB, encode_stub(stub))]
    return replace(
        whole,
        reset=True,
        put=put,
        gone=[],
        recents_put=[],
        recents_gone=list(recents),
        after=NOTHING,
        rests=True,
    )


def rest_write(key: Key) -> Write:
    """The write that leaves a window as it is, and takes it out of the idle set until it is written
    next.
    """
    return Write(key, False, [], [], [], [], DueChange.KEEP, NOTHING, rests=True)
