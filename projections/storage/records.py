"""What passes between a window store and its users, and how a window's changes become one write."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import NamedTuple

from projections.errors import CorruptWindow
from projections.fold.timers import KEEP_TIMER, NO_TIMER, Timed, changed_timer, timed
from projections.names import Key
from projections.policy.policy import Rules
from projections.storage.chunks import entry_count
from projections.storage.layout import (
    HEAD,
    Mark,
    changes_of,
    load_recent_ids,
    load_window,
    numbered,
)
from projections.storage.listing import NOT_LISTED, Listed, Listing, listed, listing_of
from projections.storage.stubs import STUB, Stub, encode_stub
from projections.storage.window_copies import ENDS, NO_CHANGE, CopiesChange, copies_anew
from projections.window.meta import Due
from projections.window.recent_ids import RecentIds
from projections.window.window import Window


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """How far a partition's windows of one generation are, and by which record.

    ``revision`` grows with every write ("" before the first). ``offset`` is the last record folded
    (-1: none), ``timestamp`` (ms) and ``digest`` (hex SHA-256 of key and value) identify it.
    Readers have seen windows up to ``target``: those that are behind it heal. ``unverified``: the
    server that answered is not the one they were written to (it was started anew, or took over),
    and nobody has said since that they are the latest; written with, it says that the writer does
    not know it either. ``ahead``: the offset up to which all
    conversations but those of ``rollbacks`` are folded, where that is beyond ``offset``: each of
    those is being restored, and folded up to before the offset of its rollback.
    ``withheld_until``: the time (ms) until which no reader may be served, because the partition is
    folded on in another generation.
    """

    revision: str = ""
    offset: int = -1
    timestamp: int = -1
    digest: str = ""
    target: int = -1
    unverified: bool = False
    ahead: int = -1
    rollbacks: tuple[tuple[str, int], ...] = ()
    withheld_until: int = 0
    ahead_ms: int = field(default=-1, compare=False)
    """The ``timestamp`` up to ``ahead``, where this process folded it; not stored."""

    @property
    def latest(self) -> int:
        """The offset up to which windows are folded that are not being restored."""
        return max(self.offset, self.ahead)

    @property
    def latest_ms(self) -> int:
        """The time up to which they are folded, as far as this process knows."""
        return max(self.timestamp, self.ahead_ms) if self.restoring else self.timestamp

    def includes(self, offset: int, whose: Key | str | None) -> bool:
        """Whether a conversation's window includes everything up to ``offset``; of a tenant's name:
        whether all of its windows do; None: all.
        """
        if offset <= self.offset or whose is None:
            return offset <= self.offset
        waiting = [name for name, at in self.rollbacks if at <= offset]
        return offset <= self.ahead and not _is_among(whose, waiting)

    def applied_to(self, key: Key) -> int:
        """The offset up to which the window of a conversation is folded."""
        name = str(key)
        waits = (at for one, at in self.rollbacks if one == name)
        return min((self.latest, *(at - 1 for at in waits))) if self.restoring else self.latest

    @property
    def restoring(self) -> bool:
        """Whether windows are ahead of ``offset``, all but those that are being restored."""
        return self.ahead > self.offset

    @property
    def behind(self) -> bool:
        """Whether windows are being brought back of which readers have seen later ones: all, or
        those that are being restored.
        """
        return self.offset < self.target

    @property
    def healing(self) -> bool:
        """Whether no window of this partition may be served yet."""
        return self.unverified or self.latest < self.target

    @property
    def whole(self) -> bool:
        """Whether every window is known to be as readers have seen it, or later."""
        return not (self.unverified or self.behind)

    def heals(self, whose: Key | str) -> bool:
        """Whether a conversation's window must not be served yet; of a tenant's name: whether one
        of its windows must not.
        """
        if self.healing:
            return True
        return _is_among(whose, self.held_back)

    @property
    def held_back(self) -> list[str]:
        """The conversations that must not be served yet, although others are: readers have seen
        them later than they are.
        """
        return [name for name, offset in self.rollbacks if offset <= self.target]


def _is_among(whose: Key | str, names: list[str]) -> bool:
    """Whether conversations have this name; of a tenant's name: whether one of its does."""
    if isinstance(whose, Key):
        return str(whose) in names
    return any(name.partition("/")[0] == whose for name in names)


@dataclass(frozen=True, slots=True)
class Stored:
    """A window's stored fields (``projections.storage.layout``), and the blocks of its recent ids
    (empty when they were not asked for).

    Of a conversation that sleeps a store has field ``s`` alone (``projections.storage.stubs``).
    ``stub`` is that one's value where these fields were brought back from its snapshot: then the
    store holds none of them.
    """

    fields: dict[bytes, bytes]
    id_blocks: dict[bytes, bytes]
    stub: bytes | None = None

    @property
    def asleep(self) -> bytes | None:
        """The stub that stands here in place of a window, None for a window, also for one that was
        brought back.
        """
        return self.fields.get(STUB) if HEAD not in self.fields else None

    @property
    def size(self) -> int:
        """Bytes of its fields."""
        return sum(map(len, self.fields.values()))

    @property
    def entries(self) -> int:
        """How many entries its tail's chunks have; raises :class:`msgspec.DecodeError`."""
        return sum(entry_count(value) for _, value in numbered(self.fields))

    def load(self, key: Key, partition: int, rules: Rules) -> Window:
        """The window these fields are of; raises :class:`CorruptWindow` when they are not what was
        stored.
        """
        return self.open(key, partition, rules)[0]

    def open(self, key: Key, partition: int, rules: Rules) -> tuple[Window, StoreMark]:
        """The window, and the mark of a store that holds it; raises like :meth:`load`."""
        with stored_form(key):
            if self.asleep is not None:
                raise ValueError("it hibernates: read it with the store's reader")
            window, mark = load_window(key, partition, rules, self.fields, self.id_blocks)
            if self.stub is not None:
                mark = Mark()
            return window, StoreMark(mark, _asked(window), timed(window), listed(window))

    def recent_ids(self, key: Key) -> RecentIds:
        """The recent ids alone; raises like :meth:`load`."""
        with stored_form(key):
            return load_recent_ids(self.id_blocks)


@contextmanager
def stored_form(key: Key) -> Iterator[None]:
    """Name whatever goes wrong in reading a window's stored fields: :class:`CorruptWindow`."""
    try:
        yield
    except (ValueError, TypeError, KeyError, IndexError, OverflowError) as error:
        raise CorruptWindow(
            f"the stored window of {key} cannot be read ({error}): repair it with `threadfold"
            " verify --repair`"
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
    before its next write. ``copies`` is what changes of its copies. ``frees``: less is stored after
    it, so that a store that is full takes it, too.
    """

    key: Key
    reset: bool
    put: list[tuple[bytes, bytes]]
    gone: list[bytes]
    id_blocks_put: list[tuple[bytes, bytes]]
    id_blocks_gone: list[bytes]
    due: DueChange
    after: StoreMark
    timer: int | None = KEEP_TIMER
    listing: Listing | None = None
    anew: bool = False
    rests: bool = False
    copies: CopiesChange = NO_CHANGE
    frees: bool = False


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


Asked = tuple[Due | None, int | None, str | None]
"""A due span, the last rollback and the active summary: what a compaction request says."""


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


def write_of(
    window: Window,
    mark: StoreMark = NOTHING,
    at_ms: int = 0,
    copies: CopiesChange = NO_CHANGE,
) -> Write:
    """The write that brings a store from ``mark`` to the window as it is now.

    ``at_ms`` is the time of its last record, which heads and lists show; or a later one, as
    :func:`projections.fold.timers.changed_timer` says. ``copies`` is what changes of its copies;
    earlier ones of a window that is written anew are deleted, as nothing records which they are,
    and all of an erased one.
    """
    if mark.layout.nothing or window.meta.erased:
        copies = copies_anew(window, copies)
    reset, put, gone, id_blocks_put, id_blocks_gone, after = changes_of(window, mark.layout, at_ms)
    asked, now, lists = _asked(window), timed(window), listed(window)
    change = DueChange.CLEAR if asked[0] is None else DueChange.SET
    return Write(
        window.key,
        reset,
        put,
        gone,
        id_blocks_put,
        id_blocks_gone,
        DueChange.KEEP if asked == mark.asked else change,
        StoreMark(after, asked, now, lists),
        changed_timer(mark.timed, now, at_ms),
        listing_of(window.key.tenant, mark.listed, lists, at_ms),
        anew=mark.layout.nothing,
        copies=copies,
        frees=window.meta.erased,
    )


def stub_write(
    key: Key, stub: Stub, id_blocks: Iterable[bytes] = (), *, after: Write | None = None
) -> Write:
    """The write that replaces a stored window by a stub; timer and lists stay as they are.

    Args:
        id_blocks: the names of the stored blocks of its recent ids.
        after: the write of the whole window, where the store does not have it: of it, only due,
            timer and lists are written.
    """
    return replace(
        after or rest_write(key),
        reset=True,
        put=[(STUB, encode_stub(stub))],
        gone=[],
        id_blocks_put=[],
        id_blocks_gone=list(id_blocks),
        after=NOTHING,
        rests=True,
        copies=ENDS,
        frees=after is None,
    )


def rest_write(key: Key) -> Write:
    """The write that leaves a window as it is, and takes it out of the idle set until it is written
    next.
    """
    return Write(key, False, [], [], [], [], DueChange.KEEP, NOTHING, rests=True, frees=True)
