"""In-memory counterparts of Kafka and Redis for tests of your own code. They pass the same suites
as the real ones (``tests/contract``).

They have no persistence, no other processes, no latency and no outages. Test those against the real
servers.
"""

from typing import Any

from streams.custom.memory_store import MemoryProjectionStore
from threadfold.renamed import renamed
from threadfold.testing.memory_counts import MemoryDailyCounts
from threadfold.testing.memory_log import MemoryLog
from threadfold.testing.memory_projection import MemoryProjection
from threadfold.testing.memory_store import MemoryStore

__all__ = [
    "MemoryDailyCounts",
    "MemoryLog",
    "MemoryProjection",
    "MemoryProjectionStore",
    "MemoryStore",
]


def __getattr__(name: str) -> Any:
    return renamed(
        __name__, name, {"MemoryView": MemoryProjection, "MemoryViewStore": MemoryProjectionStore}
    )
