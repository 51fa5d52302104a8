"""What a failover leaves behind, without one: a partition that was last written to another
server.
"""

from __future__ import annotations

from projections.redis.store import RedisStore
from projections.storage.protocol import WindowStore
from threadfold.testing import MemoryStore


async def take_over(store: WindowStore, generation: int, partition: int = 0) -> None:
    """From now on the store is another server, which holds what the former one held of this
    partition.
    """
    if isinstance(store, MemoryStore):
        store.take_over()
    else:
        assert isinstance(store, RedisStore)
        state = f"{store.prefix}:{{{generation}:{partition}}}:state"
        await store.servers.run(state, lambda node: node.redis.hset(state, "server", "another"))
