"""Cutting a summary to what a policy allows.

A summary that was asked for under other rules may be longer than ``summary_max_tokens``. It is
taken all the same, in part: without it the window would forget the whole span. The event in the log
stays whole, and the next summary is made from that.
"""

from __future__ import annotations

from projections.events.tokenizer import MESSAGE_OVERHEAD, count

TOLERANCE = 16
"""Tokens that a summary may be longer than asked for: its frame, and another way to count."""
CHARS = 12
"""Characters looked at for each token of room, at either end of the text: the time depends on the
room, not on the text's length.
"""


def fit_summary(text: str, tokens: int, most: int, encoding: str, position: str) -> tuple[str, int]:
    """A summary's text of at most about ``most`` tokens, and its tokens.

    Its first and its last lines stay, two thirds of them the last: what was said latest and the
    facts stand there. A line in between says at which position the whole is.
    """
    if tokens <= most + TOLERANCE:
        return text, tokens
    note = f"[… the rest of this summary stands at position {position} …]"
    room = max(0, most - MESSAGE_OVERHEAD - count(note, encoding) - 2)
    near = room * CHARS
    lines = text.splitlines()
    if len(text) > 2 * near:
        lines = [*text[:near].splitlines(), *text[len(text) - near :].splitlines()]
    head = _lines(lines, room // 3, encoding, 1)
    tail = _lines(lines[len(head) :][::-1], room - room // 3, encoding, -1)[::-1]
    made = "\n".join([*head, note, *tail])
    while (tokens := count(made, encoding) + MESSAGE_OVERHEAD) > most + TOLERANCE and made:
        # No room even for the note, or a text whose tokens join badly.
        made = made[: len(made) * 3 // 4]
    return made, tokens


def _lines(lines: list[str], room: int, encoding: str, way: int) -> list[str]:
    """The first of these lines that take at most ``room`` tokens together; where not even one does,
    its beginning (``way`` 1) or its end (-1).
    """
    found: list[str] = []
    for line in lines:
        taken = count(line, encoding) + 1
        if taken > room:
            break
        room -= taken
        found.append(line)
    if found or not lines:
        return found
    part = lines[0][::way][: room * CHARS]
    while part and count(part[::way], encoding) >= room:
        part = part[: len(part) * 3 // 4]
    return [part[::way]] if part else []
