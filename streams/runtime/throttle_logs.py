"""A log that is not flooded while Kafka or Redis is away: what is logged again and again is
logged every ten seconds, with how often.

A worker of 16 partitions was measured at 240 lines a second, four of five of them aiokafka's own,
while both were away: 3 GB a day.
"""

from __future__ import annotations

import logging
import time

EVERY = 10.0
"""Seconds between two lines that say the same."""
MOST = 1_000
"""Different lines that are remembered; beyond, all begin anew."""
OWN = (
    "streams.partition.assignment",
    "streams.partition.runtime",
    "streams.projector.projector",
    "streams.recovery.snapshot_writer",
    "streams.partition.log_identity",
    "streams.compaction.dispatcher.unreadable",
)
"""Loggers of ours that log it for each partition, each time they try again, or for each record that
anybody may have written.
"""
SERVER = "uvicorn.error"
"""The logger with a line for each request that is no HTTP, which anybody can send."""

CHATTER = ("aiokafka.consumer.subscription_state", "aiokafka.conn")
"""Loggers of aiokafka that tell of each look at the brokers, at INFO: an idle worker looks every
30 s.
"""


class ThrottledLogs(logging.Filter):
    """Lets a warning or an error pass that was not logged lately; tracebacks and what is critical
    always.

    Two lines are the same if their texts are; of aiokafka's, if their formats are: their numbers
    differ.
    """

    def __init__(self, *, by_form: bool) -> None:
        super().__init__()
        self._by_form = by_form
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is written; one that stands for others says for how many."""
        if record.exc_info or not logging.WARNING <= record.levelno < logging.CRITICAL:
            return True
        text = str(record.msg) if self._by_form else record.getMessage()
        now, (at, left_out) = time.monotonic(), self._logged.get((record.name, text), (-EVERY, 0))
        if now - at < EVERY:
            self._logged[record.name, text] = (at, left_out + 1)
            return False
        if len(self._logged) >= MOST:
            self._logged.clear()
        self._logged[record.name, text] = (now, 0)
        if left_out:
            record.msg, record.args = f"{record.getMessage()} (and {left_out} more like it)", ()
        return True


_THEIRS, _OURS = ThrottledLogs(by_form=True), ThrottledLogs(by_form=False)


def throttle_logs() -> None:
    """Throttle aiokafka's loggers, as far as it is imported, and ours; :data:`CHATTER` is not
    written unless at DEBUG.

    A service that begins calls it; a further call costs nothing.
    """
    names = [
        name for name in logging.root.manager.loggerDict if name.partition(".")[0] == "aiokafka"
    ]
    for name in names:
        logging.getLogger(name).addFilter(_THEIRS)
    for name in CHATTER:
        chatter = logging.getLogger(name)
        if chatter.getEffectiveLevel() == logging.INFO:
            chatter.setLevel(logging.WARNING)
    for name in (*OWN, SERVER):
        logging.getLogger(name).addFilter(_OURS)
