"""The summaries of a conversation as a chain: each covers what the one before left, nothing is
covered twice, and nothing left out.
"""

from __future__ import annotations

from hashlib import sha256

from tests.chaos.evidence import Findings, Flat
from tests.chaos.model import Conversation
from tests.chaos.records import offset_of

RIVAL = "rival"
"""The summariser that this suite's own foreign summaries name; their counts and digests are claims.
"""


def check_chain(
    key: str, conversation: Conversation, summaries: list[Flat], findings: Findings
) -> None:
    """Check what ``GET …/summaries`` told, newest first, against the model's chain and the log."""
    chain = conversation.chain()
    told = [summary["summary_id"] for summary in summaries]
    if told != [made.summary_id for made in chain]:
        findings.differing.append(
            f"{key}: the summaries are told as {told[:4]}, the chain is"
            f" {[m.summary_id for m in chain][:4]}"
        )
    for i, summary in enumerate(summaries):
        if summary["previous"] != (told[i + 1] if i + 1 < len(told) else None):
            findings.differing.append(
                f"{key}: summary {summary['summary_id']} does not stand on the one after it in the"
                " list"
            )
        if summary["summarizer"] != RIVAL:
            _check_claims(key, conversation, summary, findings)
    _check_cover(key, conversation, findings)


def _check_claims(key: str, conversation: Conversation, summary: Flat, findings: Findings) -> None:
    """The count and the digest of a span are those of the events it names."""
    span = summary["span"]
    events = [conversation.events.get(offset) for offset in conversation.covered_by(span)]
    ids = [event.id for event in events if event is not None]
    digest = sha256(b"".join(sha256(name.encode()).digest() for name in ids)).hexdigest()
    if len(ids) != len(events):
        findings.doubled.append(
            f"{key}: the span of summary {summary['summary_id']} names repeats, or records that are"
            " no events"
        )
    elif (span["count"], span["digest"]) != (len(ids), digest):
        findings.differing.append(
            f"{key}: the span of summary {summary['summary_id']} has another count or digest than"
            " its events"
        )
    first = min(conversation.covered_by(span), default=-1)
    if any(offset_of(span["from"]) <= offset < first for offset in conversation.standing()):
        findings.differing.append(
            f"{key}: the span of summary {summary['summary_id']} begins before what it covers"
        )


def _check_cover(key: str, conversation: Conversation, findings: Findings) -> None:
    """No event is covered by two summaries in force."""
    covered: dict[int, str] = {}
    for made in reversed(conversation.chain()):
        for offset in sorted(made.covers):
            if offset in covered:
                findings.doubled.append(
                    f"{key}: the event at {offset} is covered by {covered[offset]} and by"
                    f" {made.summary_id}"
                )
            covered[offset] = made.summary_id
