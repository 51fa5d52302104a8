"""In-memory counterparts of Kafka and Redis for tests of your own code: they pass the same suites
as the real ones (``tests/contract``).

What they do not have: persistence, other processes, latency, outages. Whoever relies on those tests
against the real parts.
"""

from threadfold.testing.memory_log import MemoryLog
from threadfold.testing.memory_store import MemoryStore
from threadfold.testing.memory_view import MemoryView
from threadfold.testing.memory_view_store import MemoryViewStore

__all__ = ["MemoryLog", "MemoryStore", "MemoryView", "MemoryViewStore"]
