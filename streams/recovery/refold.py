"""Folding a few conversations of a partition from the log's first event: what is left when a
sleeping window's snapshot is gone.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping

from projections.errors import CorruptWindow
from projections.names import Key
from projections.policy.policy import Failures, Rules
from projections.storage.layout import Mark, changes_of
from projections.storage.records import Stored
from projections.storage.stubs import Stub, encode_stub
from projections.window.window import Window
from streams.log.log import Log
from streams.recovery.callable_failures import check_shown
from streams.recovery.shadow_fold import ShadowFold

logger = logging.getLogger(__name__)
KEPT_BYTES = 16 << 20
"""Bytes of the log that are kept for rollbacks meanwhile: a process that serves does this."""


async def refold(
    log: Log, partition: int, rules: Rules, stubs: Mapping[Key, Stub], *, strict: bool = False
) -> dict[Key, Stored]:
    """The windows of these stubs, folded from the log in one pass over the partition; ``rules``
    knows their tenants.

    Raises:
        CallableUnavailable: (``strict``) a callable failed in the fold of one of them.
        CorruptWindow: the log does not give what a stub says: it is not the log the windows were
            folded from, or has lost events.
        KafkaUnavailable: as named.
    """
    begin = time.perf_counter()
    ends = {key: stub.position for key, stub in stubs.items()}
    failures: Failures = {}
    rules = rules.watched(failures)
    folded = ShadowFold(log, partition, rules, ends.keys(), ends=ends, kept_bytes=KEPT_BYTES)
    await folded.advance(max(ends.values()))
    if strict:
        for key in stubs:
            check_shown(failures, key)
    windows = [folded.windows.get(key) or Window(key, partition, rules) for key in stubs]
    for window in windows:
        meta = window.meta
        # Of one whose keys are gone the fold is another one, and makes no difference: it is erased
        # by what comes.
        if not stubs[window.key].fits(
            meta.position, meta.count, meta.digest
        ) and not log.seals.is_erased(str(window.key).encode()):
            raise CorruptWindow(
                f"{window.key} sleeps, and neither its snapshot nor the log gives its window"
            )
    logger.warning(
        "partition %d: %d hibernating windows were folded from the log in %.1f s: their"
        " snapshots are gone",
        partition,
        len(windows),
        time.perf_counter() - begin,
    )
    return {window.key: _stored(window, stubs[window.key]) for window in windows}


def _stored(window: Window, stub: Stub) -> Stored:
    changes = changes_of(window, Mark())
    return Stored(dict(changes.put), dict(changes.id_blocks_put), encode_stub(stub))
