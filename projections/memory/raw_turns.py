"""What users and assistants said, word for word, as the search finds it under the records.

Turns come from the conversations' own logs, in order. Which of their events count follows the fold:
repeats, unmet conditions, rollbacks, dropped events and erasures.
"""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from projections.events.content import TextPart
from projections.events.types import Message
from projections.memory.identity import Scope
from projections.memory.private_text import begin_without_private

MAX_TURN = 8_192
"""Characters of a turn that are indexed, of the first twice as many; its event has the rest."""
INDEXED_ROLES = ("user", "assistant")


class Turn(Struct, frozen=True):
    """A user's or an assistant's message. ``scope`` is that of its conversation when it was said,
    ``at`` its time in microseconds since 1970, ``speaker`` the author's name or the role.
    """

    scope: Scope
    conversation: str
    position: str
    role: str
    speaker: str
    text: str
    at: int

    @property
    def id(self) -> str:
        """What names it among all turns."""
        return self.position

    @property
    def trust(self) -> str:
        """Who said it, as records have it."""
        return "user" if self.role == "user" else "model"


def turn_text(message: Message) -> str:
    """The text of a message that is indexed; empty where there is none."""
    if message.role not in INDEXED_ROLES:
        return ""
    content: Any = message.content
    if isinstance(content, list):
        content = "\n".join(part.text for part in content if isinstance(part, TextPart))
    return begin_without_private(content or "", 2 * MAX_TURN)[:MAX_TURN]
