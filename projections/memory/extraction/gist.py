"""The gist of a message: its sentence that says most, for messages that leave a window one by
one.
"""

from __future__ import annotations

from projections.memory.extraction.candidate import Candidate
from projections.memory.extraction.clauses import clauses
from projections.memory.extraction.dates import resolve_dates
from projections.memory.extraction.statements import day_of, entities_of
from projections.memory.extraction.third_person import THE_USER
from projections.memory.similarity import stems

LEAST = 4
"""Words with a meaning of their own that a sentence needs to be worth keeping."""
MAX_CHARS = 240


def gist(text: str, offset: int, time: str | None, role: str, name: str | None) -> Candidate | None:
    """The gist of a message as a fact; None where it says too little."""
    best, most = "", LEAST - 1
    for clause in clauses(text):
        weight = len(stems(clause))
        if weight > most and len(clause) <= MAX_CHARS:
            best, most = str(clause), weight
    dated = resolve_dates(best, day_of(time)) if best else None
    if dated is None:
        return None
    who = "The assistant" if role == "assistant" else name or THE_USER
    return Candidate(
        memory_type="fact",
        text=f'{who} said: "{dated.text}".',
        offsets=(offset,),
        time=time,
        role=role,
        trust="model" if role == "assistant" else "user",
        confidence=0.4,
        entities=entities_of(best),
    )
