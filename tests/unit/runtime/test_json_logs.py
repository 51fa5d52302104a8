"""Log lines as JSON: what each has, and what none has."""

from __future__ import annotations

import json
import logging

import pytest

from projections.names import Key, Position
from streams.runtime.json_logs import JsonLines, write_json
from streams.runtime.log_fields import about


def line(record: logging.LogRecord) -> dict[str, object]:
    text = JsonLines().format(record)
    assert "\n" not in text
    return dict(json.loads(text))


def record_of(message: str, *args: object, **more: object) -> logging.LogRecord:
    made = logging.LogRecord("streams.log", logging.WARNING, "f.py", 1, message, args, None)
    made.__dict__.update(more)
    return made


def test_a_line_names_level_message_tenant_conversation_and_position() -> None:
    shown = line(record_of("two\nlines of %s", "it", **about(Key("acme", "c1"), Position(3, 17))))
    assert str(shown.pop("time")).endswith("+00:00")
    assert shown == {
        "level": "warning",
        "logger": "streams.log",
        "message": "two\nlines of it",
        "tenant": "acme",
        "conversation": "c1",
        "position": "3-17",
    }


def test_an_error_is_shown_by_its_class_and_frames_and_never_by_its_text() -> None:
    try:
        raise ValueError("what a user wrote")
    except ValueError as error:
        made = record_of("it failed")
        made.exc_info = (ValueError, error, error.__traceback__)
    shown = line(made)
    assert shown["error"] == "ValueError"
    frames = shown["frames"]
    assert isinstance(frames, list) and "test_json_logs.py" in frames[0]
    assert "what a user wrote" not in json.dumps(shown)


def test_every_line_of_the_process_takes_the_form(capsys: pytest.CaptureFixture[str]) -> None:
    handlers, level = logging.root.handlers[:], logging.root.level
    try:
        write_json("info")
        logging.getLogger("aiokafka").info("hello")
        logging.getLogger("aiokafka").debug("too fine")
    finally:
        logging.root.handlers[:] = handlers
        logging.root.setLevel(level)
    (written,) = capsys.readouterr().err.splitlines()
    assert json.loads(written)["message"] == "hello"
