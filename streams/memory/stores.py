"""Which store of the long-term memory a process has, and what feeds it, by its settings."""

from __future__ import annotations

from importlib.util import find_spec

from projections.errors import InvalidSettings
from streams.encryption.payload_cipher import PayloadCipher
from streams.memory.feed import MemoryFeed
from streams.memory.folder_feed import FolderFeed
from streams.memory.redis_store import RedisMemories
from streams.memory.shared_feed import SharedFeed
from streams.memory.sqlite_store import SqliteMemories
from streams.memory.store import LocalStore, VectorStore
from streams.memory.store_folder import LANCE, REDIS_STORE, folder_of
from streams.settings.settings import Settings


def open_store(
    settings: Settings, seals: PayloadCipher, *, hold: bool
) -> tuple[VectorStore, MemoryFeed]:
    """A process' store and what feeds it: the one in Redis that all share, the one of a folder, or
    one that goes with the process.

    Args:
        hold: the folder, if nobody else does; else the store is a copy.
    """
    if settings.memory_store == REDIS_STORE:
        shared = redis_store(settings)
        return shared, SharedFeed(settings, seals, shared)
    folder = folder_of(settings.memory_store)
    if folder is None:
        temporary = SqliteMemories()
        return temporary, MemoryFeed(settings, seals, temporary)
    store = local_stores(folder.kind)()
    return store, FolderFeed(settings, seals, store, folder, hold=hold)


def check_store(settings: Settings) -> None:
    """Make the folder of the setting ``memory_store`` where it is missing.

    Raises:
        InvalidSettings: it cannot be made, or the store needs a package that is not installed.
    """
    folder = folder_of(settings.memory_store)
    if folder is not None:
        local_stores(folder.kind)


def redis_store(settings: Settings, *, building: bool = False) -> RedisMemories:
    """The store in Redis that counts, or one that is built beside it."""
    return RedisMemories(settings.redis, settings.topic_prefix, building=building)


def local_stores(kind: str) -> type[LocalStore]:
    """The stores whose names end so.

    Raises:
        InvalidSettings: they need a package that is not installed.
    """
    if kind != LANCE:
        return SqliteMemories
    if find_spec("lancedb") is None:
        raise InvalidSettings(
            "setting 'memory_store' (THREADFOLD_MEMORY_STORE) names a store of LanceDB, which is"
            " not installed: pip install 'threadfold[lancedb]'"
        )
    from streams.memory.lance_store import LanceMemories

    return LanceMemories
