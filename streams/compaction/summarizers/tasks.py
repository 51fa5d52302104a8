"""Sentences that leave something open: a summary that forgets them forgets work.

Found by English cues, so what they take for a task may be none; other languages go without. What
tools return is not looked at: their rows say "pending" of everything.
"""

from __future__ import annotations

import re

from streams.compaction.summarizers.base import SummaryInput
from streams.compaction.summarizers.lines import Line, lines_of_messages, read_summary
from streams.compaction.summarizers.terms import terms

MAX_TASKS = 3
"""Open sentences that are checked for: the newest, for older ones are more often done."""

SAID = 0.4
"""A task counts as said when a text has this share of its terms: a summary says it in words of its
own.
"""

_OPEN = re.compile(
    r"\b(?:to-?do|open (?:task|item|question|point|issue)s?|open:|still"
    r" (?:have|has|need|needs|open|pending|waiting|missing|to)\b"
    r"|pending|awaiting|waiting (?:for|on)|follow[ -]?up|remind (?:me|us|you)|don't forget|do not"
    r" forget|next steps?"
    r"|i(?:'ll| will) (?:get back|send|check|call|ask|confirm|follow|update|let you know))",
    re.IGNORECASE,
)


def open_tasks(request: SummaryInput) -> list[Line]:
    """The newest sentences of users, the assistant and the earlier summary that leave something
    open, in order, at most ``MAX_TASKS``.
    """
    lines, _ = read_summary(request.previous or "")
    lines += lines_of_messages(
        [
            message
            for message in request.messages
            if message.role in ("user", "assistant") and _OPEN.search(message.text)
        ]
    )
    found = {line.text: line for line in lines if line.role != "tool" and _OPEN.search(line.text)}
    return list(found.values())[-MAX_TASKS:]


def says(text_terms: set[str], task: Line) -> bool:
    """Whether a text, given by its terms, says a task."""
    wanted = {
        term
        for term in terms(task.text)
        if len(term) > 3 or not term.isalpha() or not term.isascii()
    }
    return not wanted or len(wanted & text_terms) >= SAID * len(wanted)
