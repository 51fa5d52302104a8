"""The report on another policy says how many summaries stop applying, and why."""

from __future__ import annotations

from typing import Any

import pytest

from threadfold.cli.policy_report import policy_report

SIDES = {"before": 0, "after": 0}
SPREAD = {"sum": 0, "p50": 0, "p95": 0, "max": 0}


def report(*, losses: list[dict[str, str]] | None = None, **compactions: Any) -> list[str]:
    return policy_report(
        {
            "conversations": {"in_log": 1, "in_log_estimated": False, "compared": 1, "erased": 0},
            "events": 1,
            "differing": {"windows": 0, "renders": 0},
            "tokens": {"before": SPREAD, "after": SPREAD},
            "does_not_fit": SIDES,
            "cost": None,
            "compactions": {"due": SIDES, "cost_of_due_estimated": None, **compactions},
            "losses": losses or [],
            "log_begins": {},
            "summaries_cut": 0,
            "left_out": {"conversations": SIDES, "messages": SIDES},
            "room": {"conversations": 0, "events": 0, "tokens": 0},
            "callable_failures": [],
            "examples": [],
            "notes": [],
        }
    )


def test_summaries_that_stop_applying_are_counted_with_their_reasons() -> None:
    lines = report(
        summaries_taken={"before": 17, "after": 8},
        summaries_in_force={"before": 3, "after": 2},
        refused_after=11,
        taken_only_after=2,
        refusals_after={"it is too long": 4, "its predecessor is another": 7},
    )
    assert (
        "summaries: 11 of 17 stop applying, because its predecessor is another (7); it is too long"
        " (4); 2 others start applying" in lines
    )
    assert "conversations with an active summary: 3 -> 2" in lines


def test_no_reason_is_named_where_no_summary_stops_applying() -> None:
    lines = report(
        summaries_taken={"before": 5, "after": 5},
        summaries_in_force={"before": 1, "after": 1},
        refused_after=0,
        taken_only_after=0,
        refusals_after={},
    )
    assert "summaries: 0 of 5 stop applying" in lines


@pytest.mark.parametrize("count", [1, 12])
def test_what_a_switch_would_lose_is_named_with_its_reason(count: int) -> None:
    found = [
        {"conversation": f"acme/c{i}", "after": "the beginning", "to": "0-9", "because": "so"}
        for i in range(count)
    ]
    lines = report(
        losses=found,
        summaries_taken={"before": 5, "after": 5},
        summaries_in_force={"before": 1, "after": 1},
        refused_after=0,
        taken_only_after=0,
        refusals_after={},
    )
    assert any(f"what {count} conversations hold" in line for line in lines)
    named = [line for line in lines if line.startswith("  acme/")]
    assert named[0] == "  acme/c0: events after the beginning to 0-9, because so"
    assert len(named) == min(10, count)
    assert ("  (2 more: --json names them)" in lines) == (count > 10)
