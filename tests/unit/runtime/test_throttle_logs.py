"""What is said again and again while a server is away is said now and then, and nothing else is
held back.
"""

from __future__ import annotations

import logging
import sys

import aiokafka  # noqa: F401 (its loggers)
import pytest

from streams.compaction.dispatcher import unreadable
from streams.runtime import throttle_logs as module
from streams.runtime.throttle_logs import ThrottledLogs, throttle_logs


def line(
    text: str, *args: object, level: int = logging.WARNING, failed: bool = False
) -> logging.LogRecord:
    info = (ValueError, ValueError("x"), None) if failed else None
    return logging.LogRecord("aiokafka.conn", level, "f", 1, text, args, info)


def test_the_same_is_said_once_and_later_with_how_often(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: now)
    one = ThrottledLogs(by_form=False)
    assert [one.filter(line("node %d is away", 1)) for _ in range(5)] == [
        True,
        False,
        False,
        False,
        False,
    ]
    assert one.filter(line("node %d is away", 2)), "another one"
    now += module.EVERY
    again = line("node %d is away", 1)
    assert one.filter(again) and again.getMessage() == "node 1 is away (and 4 more like it)"
    assert not one.filter(line("node %d is away", 1))


def test_of_a_library_it_is_the_form_that_counts() -> None:
    theirs = ThrottledLogs(by_form=True)
    assert [theirs.filter(line("node %d is away", n)) for n in range(3)] == [True, False, False]


def test_tracebacks_what_is_critical_and_what_only_informs_pass() -> None:
    one = ThrottledLogs(by_form=True)
    for given in ({"failed": True}, {"level": logging.CRITICAL}, {"level": logging.INFO}):
        assert [one.filter(line("text", **given)) for _ in range(3)] == [True] * 3  # type: ignore[arg-type]


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST", 10)
    one = ThrottledLogs(by_form=False)
    assert [one.filter(line("text %d", n)) for n in range(10)] == [True] * 10
    assert not one.filter(line("text %d", 0)), "remembered: it is said already"
    assert one.filter(line("text %d", 10)), "one more than there is room for"
    assert one.filter(line("text %d", 0)), "forgotten with the others"


def test_a_service_damps_the_loggers_there_are_once() -> None:
    assert "aiokafka" in sys.modules
    loggers = [logging.getLogger(name) for name in ("aiokafka.conn", "streams.projector.projector")]
    before = [list(logger.filters) for logger in loggers]
    try:
        throttle_logs()
        throttle_logs()
        for logger in loggers:
            assert sum(isinstance(one, ThrottledLogs) for one in logger.filters) == 1
    finally:
        for logger, filters in zip(loggers, before, strict=True):
            logger.filters[:] = filters


@pytest.mark.parametrize(("level", "written"), [(logging.INFO, False), (logging.DEBUG, True)])
def test_what_each_look_at_the_brokers_says_is_left_out_unless_everything_is_wanted(
    level: int, written: bool
) -> None:
    chatter = [logging.getLogger(name) for name in module.CHATTER]
    before = logging.root.level
    try:
        logging.root.setLevel(level)
        throttle_logs()
        for one in chatter:
            assert one.isEnabledFor(logging.INFO) == written
            assert one.isEnabledFor(logging.WARNING)
    finally:
        logging.root.setLevel(before)
        for one in chatter:
            one.setLevel(logging.NOTSET)


@pytest.mark.parametrize("name", ["uvicorn.error", unreadable.name])
def test_what_anybody_may_send_does_not_fill_the_log(
    name: str, caplog: pytest.LogCaptureFixture
) -> None:
    throttle_logs()
    for _ in range(100):
        logging.getLogger(name).warning("it cannot be read")
    assert len(caplog.records) == 1
