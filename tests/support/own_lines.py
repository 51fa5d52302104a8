"""What has been logged during a test, without what clients of Kafka say."""

from __future__ import annotations

import logging

import pytest


def own_lines(caplog: pytest.LogCaptureFixture, level: int = 0) -> list[logging.LogRecord]:
    """The records of this level and above; not those of aiokafka: a client that another test in
    this process left may still warn that its broker has ended.
    """
    return [
        record
        for record in caplog.records
        if record.levelno >= level and record.name.split(".")[0] != "aiokafka"
    ]
