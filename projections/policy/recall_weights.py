"""How much each part of a memory's score counts (``projections.memory.recall_scores``)."""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, Struct

Share = Annotated[float, Meta(ge=0, le=1)]


class RecallWeights(Struct, frozen=True, forbid_unknown_fields=True):
    """The weights of the parts of a score; ``token_cost`` is taken off."""

    semantic: Share = 0.30
    action: Share = 0.25
    temporal: Share = 0.15
    recency: Share = 0.10
    evidence: Share = 0.10
    token_cost: Share = 0.10
