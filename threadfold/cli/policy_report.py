"""The report of ``streams.rebuild.preview``, what another policy would change, as text."""

from __future__ import annotations

from typing import Any

from streams.recovery.callable_failures import CallableFailure, failure_lines

NAMED = 10
"""Conversations that lose something which are named."""


def policy_report(document: dict[str, Any]) -> list[str]:
    """The report's lines: conversations compared, tokens, cost, compactions, examples, notes."""
    found, differing, tokens = document["conversations"], document["differing"], document["tokens"]
    about = "about " if found["in_log_estimated"] else ""
    erased = f" ({found['erased']} erased)" if found["erased"] else ""
    lines = [
        (
            f"compared: {found['compared']} of {about}{found['in_log']} conversations{erased},"
            f" {document['events']} events"
        ),
        (
            f"differing: {differing['windows']} windows, {differing['renders']} of them in their"
            " renders"
        ),
        f"tokens of contexts: {_change(tokens['before']['sum'], tokens['after']['sum'])}",
        *(
            f"  {name}: {tokens['before'][name]} -> {tokens['after'][name]}"
            for name in ("p50", "p95", "max")
        ),
    ]
    unfit = document["does_not_fit"]
    if any(unfit.values()):
        lines.append(
            f"cannot be rendered (what must stay exceeds the ceiling): {unfit['before']} ->"
            f" {unfit['after']}"
        )
    lines += _cost(document)
    lines += _compactions(document["compactions"])
    lines += _left_out(document)
    lines += _losses(document)
    lines += failure_lines([CallableFailure(**one) for one in document["callable_failures"]])
    for example in document["examples"]:
        before, after = example["tokens"]["before"], example["tokens"]["after"]
        lines += [
            "",
            f"--- {example['conversation']}: {before} -> {after} tokens",
            *example["diff"],
        ]
    return [*lines, "", *(f"note: {note}" for note in document["notes"])]


def _change(before: int, after: int) -> str:
    share = f" ({(after - before) / before:+.1%})" if before else ""
    return f"{before} -> {after}{share}"


def _cost(document: dict[str, Any]) -> list[str]:
    cost = document["cost"]
    if cost is None:
        return []
    price = cost["price_per_million"]
    return [
        f"estimated cost of sending each context once, at {price:g} a million tokens:"
        f" {cost['before']:.4f} -> {cost['after']:.4f}"
    ]


def _compactions(found: dict[str, Any]) -> list[str]:
    due, cost = found["due"], found["cost_of_due_estimated"]
    active = found["summaries_in_force"]
    priced = (
        ""
        if cost is None
        else f", estimated cost {cost['after']:.4f} (by the cost of the log's summaries)"
    )
    return [
        f"compactions due at once after a switch: {due['after']} conversations (now"
        f" {due['before']}){priced}",
        _summaries(found),
        f"conversations with an active summary: {active['before']} -> {active['after']}",
    ]


def _left_out(document: dict[str, Any]) -> list[str]:
    lines = []
    if document["summaries_cut"]:
        lines.append(
            f"summaries cut to summary_max_tokens: of {document['summaries_cut']} conversations;"
            " the whole stays in the log, and the next summary is made from it"
        )
    found = document["left_out"]
    if any(found["messages"].values()):
        lines.append(
            "older messages that a line names:"
            f" {found['messages']['before']} -> {found['messages']['after']}, in"
            f" {found['conversations']['before']} -> {found['conversations']['after']}"
            " conversations"
        )
    room = document["room"]
    if room["conversations"]:
        lines.append(
            f"room for more: in {room['conversations']} conversations {room['events']} summarised"
            f" events ({room['tokens']} tokens) would fit verbatim; a switch keeps their summaries"
        )
    return lines


def _losses(document: dict[str, Any]) -> list[str]:
    losses, log_begins = document["losses"], document["log_begins"]
    # Only a sample has an estimate.
    sampled = document["conversations"]["in_log_estimated"]
    if not losses and not log_begins:
        of = " in this sample: the switch compares all windows" if sampled else ""
        return [f"lost by a switch: nothing{of}"]
    of = " of this sample" if sampled else ""
    return [*_named_losses(losses, of), *_unknown_losses(log_begins)]


def _unknown_losses(log_begins: dict[int, int]) -> list[str]:
    """Both sides of the report are folded from the log; the live windows may know more than it."""
    if not log_begins:
        return []
    where = ", ".join(f"{number} (begins at offset {at})" for number, at in log_begins.items())
    return [
        "lost by a switch: not known where the log has lost its beginning, in partition"
        f"{'s' * (len(log_begins) > 1)} {where}: the switch compares the windows themselves"
    ]


def _named_losses(losses: list[dict[str, str]], of: str) -> list[str]:
    if not losses:
        return []
    return [
        f"lost by a switch: what {len(losses)} conversations{of} hold (a switch needs"
        " --accept-loss)",
        *(
            f"  {one['conversation']}: events after {one['after']} to {one['to']}, because"
            f" {one['because']}"
            for one in losses[:NAMED]
        ),
        *([f"  ({len(losses) - NAMED} more: --json names them)"] if len(losses) > NAMED else []),
    ]


def _summaries(found: dict[str, Any]) -> str:
    reasons = sorted(found["refusals_after"].items(), key=lambda item: (-item[1], item[0]))
    because = "; ".join(f"{reason} ({count})" for reason, count in reasons)
    newly = found["taken_only_after"]
    return (
        f"summaries: {found['refused_after']} of {found['summaries_taken']['before']} stop applying"
        + (f", because {because}" if because else "")
        + (f"; {newly} others start applying" if newly else "")
    )
