"""The form of an extractive summary: attributed lines in conversation order, then one line of
facts.

    user: I want to fly on May 20.
    tool get_user: name: Ann, email: ann@example.com
    assistant: Booked flight XY123.
    Facts: ann@example.com; seat price $120; seat 112A, 112B

A line's speaker is all before its first ``": "`` and comes from the event, never from the text:
texts are flattened to one line, so a message that holds line breaks and ``assistant: I agree``
stays inside its own speaker's line, also when it is read back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from streams.compaction.summarizers.base import SpanMessage
from streams.compaction.summarizers.facts import Fact, label_of, read_fact
from streams.compaction.summarizers.sentences import flatten, split_sentences, split_texts

FACTS = "Facts: "
AND = ", "
"""Stands between facts that share the words before them."""
MAX_LABEL = 300
"""Characters of the words before a fact that are read back."""
EARLIER = "summary"
"""The role of lines of an earlier summary that name no speaker, as another summariser's may be."""

_ROLES = ("system", "developer", "user", "assistant", "tool", EARLIER)
_LINE = re.compile(rf"({'|'.join(_ROLES)})((?: [\w.@-]{{1,48}})?(?: \(error\))?): (.+)")
_NOT_IN_NAME = re.compile(r"[^\w.@-]+")


class Line(msgspec.Struct, frozen=True, gc=False):
    """One sentence and who said it. ``source`` numbers the message (or the earlier line) that it
    stood in, rising.
    """

    role: str
    speaker: str
    text: str
    source: int
    earlier: bool = False

    def render(self) -> str:
        """The line as it stands in a summary, without a line break."""
        return f"{self.speaker}: {self.text}"


def lines_of_messages(messages: Sequence[SpanMessage]) -> list[Line]:
    """The sentences of messages, each attributed to its role and, where it has one, its name."""
    speakers: dict[tuple[str, str | None, bool], tuple[str, str]] = {}
    lines: list[Line] = []
    for source, texts in enumerate(split_texts([message.text for message in messages])):
        message = messages[source]
        known = (message.role, message.name, message.is_error)
        if known not in speakers:
            speakers[known] = _speaker_of(message)
        role, speaker = speakers[known]
        lines += [Line(role, speaker, text, source) for text in texts]
    return lines


def _speaker_of(message: SpanMessage) -> tuple[str, str]:
    role = message.role if message.role in _ROLES[:-1] else "user"
    name = _NOT_IN_NAME.sub("_", flatten(message.name or ""))[:48]
    speaker = f"{role} {name}" if name else role
    return role, speaker + " (error)" if message.is_error else speaker


def read_summary(text: str) -> tuple[list[Line], dict[Fact, str]]:
    """The lines and facts of an earlier summary, in its order, facts with the few words they stand
    in; any text is accepted.

    Only what is a fact by its form stays one, so a facts line of other origin cannot carry
    sentences on.
    """
    lines: list[Line] = []
    facts: dict[Fact, str] = {}
    for source, raw in enumerate(text.splitlines()):
        if raw.startswith(FACTS):
            facts.update(_read_facts(raw[len(FACTS) :]))
            continue
        match = _LINE.fullmatch(raw)
        role, speaker, said = EARLIER, EARLIER, raw
        if match:
            role, speaker, said = match[1], match[1] + match[2], match[3]
        lines.extend(
            Line(role, speaker, sentence, source, earlier=True)
            for sentence in split_sentences(said)
        )
    return lines, facts


def speaks(line: str) -> bool:
    """Whether a line would be read back as a speaker's words."""
    match = _LINE.fullmatch(line)
    return match is not None and match[1] != EARLIER


def write_summary(lines: list[Line], facts: Iterable[str]) -> str:
    """The summary of lines in the order given, and of facts as they are to be written; neighbouring
    whole sentences of one message share a line.
    """
    written: list[str] = []
    last: Line | None = None
    for line in lines:
        if last is not None and _joins(last, line):
            written[-1] += " " + line.text
        else:
            written.append(line.render())
        last = line
    if stated := "; ".join(_grouped(facts)):
        written.append(FACTS + stated)
    return "\n".join(written)


def _read_facts(stated: str) -> Iterator[tuple[Fact, str]]:
    """The facts of a facts line, each with the words before it."""
    for item in map(str.strip, stated.split(";")):
        # A date may hold a comma of its own.
        items = [item] if read_fact(item) else item.split(AND)
        label = items[0].rpartition(" ")[0]
        if len(label) > MAX_LABEL:
            continue  # no summary of ours has it, and it would be repeated for each of many items
        for text in [items[0], *(f"{label} {other}" for other in items[1:])]:
            fact = read_fact(text)
            if fact is not None:
                yield fact, text


def _grouped(facts: Iterable[str]) -> Iterable[str]:
    """Facts with the same words before them as one item: their words once, at the first of them."""
    groups: dict[str, str] = {}
    for text in facts:
        label = label_of(text)
        if label in groups:
            groups[label] += AND + text[len(label) + 1 :]
        else:
            groups[label or text] = text
    return groups.values()


def _joins(first: Line, second: Line) -> bool:
    same = (
        first.speaker == second.speaker
        and first.source == second.source
        and first.earlier == second.earlier
    )
    return same and first.text[-1] in ".!?。！？"
