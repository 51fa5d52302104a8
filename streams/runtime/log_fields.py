"""Fields of log lines that are about a conversation, for whoever collects them as JSON."""

from __future__ import annotations

from projections.names import Key, Position


def about(key: Key, position: Position | str | None = None) -> dict[str, str]:
    """The ``extra`` of a log line: ``tenant``, ``conversation`` and, where it is known,
    ``position``.
    """
    fields = {"tenant": key.tenant, "conversation": key.conversation}
    return fields if position is None else fields | {"position": str(position)}
