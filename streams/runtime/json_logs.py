"""Log lines as JSON, an object a line, for whoever collects them (``log_format = "json"``)."""

from __future__ import annotations

import logging
import sys
import traceback
from datetime import UTC, datetime
from typing import Any

import msgspec

from streams.runtime.current_request import current_request

FIELDS = ("tenant", "conversation", "position", "request_id")
"""What a line may be about (``streams.runtime.log_fields``, ``streams.runtime.current_request``);
each is there where it is known.
"""


class JsonLines(logging.Formatter):
    """``time`` (RFC 3339, UTC), ``level``, ``logger``, ``message``, the :data:`FIELDS`; of an error
    its ``error`` (class) and ``frames``. The error's own text is left out: it may quote content.
    """

    def format(self, record: logging.LogRecord) -> str:
        """One line."""
        line: dict[str, Any] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if (request := current_request()) is not None:
            line |= request.fields()
        line |= {name: str(record.__dict__[name]) for name in FIELDS if name in record.__dict__}
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
            line["frames"] = [
                f"{frame.filename}:{frame.lineno} {frame.name}"
                for frame in traceback.extract_tb(record.exc_info[2])
            ]
        return msgspec.json.encode(line).decode()


def write_json(level: str) -> None:
    """Have every line of this process written to stderr in this form, from ``level`` on."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(JsonLines())
    logging.root.handlers[:] = [handler]
    logging.root.setLevel(level.upper())
