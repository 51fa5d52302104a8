"""What ``up`` tells of a service that ended: the last line of its log that says something."""

from __future__ import annotations

from pathlib import Path

from threadfold.cli.fleet import LONGEST_LINE, _last_line


def test_the_last_line_with_words_is_told(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    assert _last_line(log) == "no log"
    log.write_text("starting\nthreadfold: too much of it; stop the producer\n+-----------+\n\n")
    assert _last_line(log) == "threadfold: too much of it; stop the producer"
    log.write_text("\n+---+\n")
    assert _last_line(log) == "its log is empty"


def test_a_line_that_is_cut_says_so(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.write_text("x" * (LONGEST_LINE + 1))
    assert _last_line(log) == "x" * LONGEST_LINE + "…"
