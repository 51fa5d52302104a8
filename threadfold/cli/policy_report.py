"""What another policy would change, as text for a terminal; the document is made by
``streams.rebuild.preview``.
"""

from __future__ import annotations

from typing import Any


def policy_report(document: dict[str, Any]) -> list[str]:
    """The report's lines: what was compared, tokens, cost, compactions, examples, and what the
    figures do not say.
    """
    found, differing, tokens = document["conversations"], document["differing"], document["tokens"]
    about = "about " if found["in_log_estimated"] else ""
    erased = f" ({found['erased']} erased)" if found["erased"] else ""
    lines = [
        (
            f"compared: {found['compared']} of {about}{found['in_log']} conversations{erased},"
            f" {document['events']} events"
        ),
        (
            f"differing: {differing['windows']} windows, {differing['renders']} of them in what a"
            " model is sent"
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
            f"cannot be rendered (what must stay is over the ceiling): {unfit['before']} ->"
            f" {unfit['after']}"
        )
    lines += _cost(document)
    lines += _compactions(document["compactions"])
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
        f"estimated cost of sending each once, at {price:g} a million tokens: {cost['before']:.4f}"
        f" -> {cost['after']:.4f}"
    ]


def _compactions(found: dict[str, Any]) -> list[str]:
    due, taken, force, cost = (
        found["due"],
        found["summaries_taken"],
        found["summaries_in_force"],
        found["cost_of_due_estimated"],
    )
    priced = (
        ""
        if cost is None
        else f", estimated cost {cost['after']:.4f} by what the log's summaries cost"
    )
    return [
        (
            f"compactions asked for at once after a switch: {due['after']} conversations (now"
            f" {due['before']}){priced}"
        ),
        (
            f"summaries of the log taken: {taken['before']} -> {taken['after']}"
            f" ({found['refused_after']} refused, {found['taken_only_after']} taken that were"
            f" refused); in force: {force['before']} -> {force['after']} conversations"
        ),
    ]
