"""Log lines as text: each has a time, and ours are written from the level that is set."""

from __future__ import annotations

import logging
import re
import subprocess
import sys

from streams.runtime.text_logs import write_text

LOGS = """
import logging
from streams.runtime.text_logs import write_text
write_text({level!r})
write_text({level!r})  # a second time changes nothing
logging.getLogger("threadfold.gateway.tls").info("ours, info")
logging.getLogger("streams.log").warning("ours, warning")
logging.getLogger("aiokafka").info("theirs, info")
logging.getLogger("aiokafka").warning("theirs, warning")
"""


def lines(level: str) -> list[str]:
    run = [sys.executable, "-c", LOGS.format(level=level)]
    said = subprocess.run(run, capture_output=True, text=True, check=True).stderr
    found = [
        re.fullmatch(r"\[\d{4}-\d\d-\d\d [\d:,]+\] \[\d+\] (\[\w+\] .*)", line)
        for line in said.splitlines()
    ]
    assert all(found), said
    return [one[1] for one in found if one]


def test_ours_are_written_from_the_level_on_and_libraries_warnings() -> None:
    assert lines("info") == [
        "[INFO] ours, info",
        "[WARNING] ours, warning",
        "[WARNING] theirs, warning",
    ]
    assert lines("error") == []


def test_what_a_process_has_set_up_stays() -> None:
    handlers, level = logging.root.handlers[:], logging.root.level
    assert handlers, "pytest's own"
    write_text("debug")
    assert (logging.root.handlers, logging.root.level) == (handlers, level)
