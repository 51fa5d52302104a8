"""What ``up`` reports of a service that ended: the last line of its log that has words."""

from __future__ import annotations

from pathlib import Path

from threadfold.cli.fleet import LONGEST_LINE, last_message


def test_thelast_message_with_words_is_told(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    assert last_message(log) == "its log is empty"
    log.write_text("starting\nthreadfold: too much of it; stop the producer\n+-----------+\n\n")
    assert last_message(log) == "threadfold: too much of it; stop the producer"
    log.write_text("\n+---+\n")
    assert last_message(log) == "its log is empty"


def test_a_line_that_is_cut_says_so(tmp_path: Path) -> None:
    log = tmp_path / "worker.log"
    log.write_text("x" * (LONGEST_LINE + 1))
    assert last_message(log) == "x" * LONGEST_LINE + "…"
