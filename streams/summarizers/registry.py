"""Summarisers by the name that policies use."""

from __future__ import annotations

from projections.errors import InvalidPolicy
from streams.summarizers.base import Summarizer
from streams.summarizers.extractive import ExtractiveSummarizer


def summarizer_names() -> tuple[str, ...]:
    """The names of the summarisers there are, sorted."""
    return tuple(sorted(_makers()))


def get_summarizer(name: str) -> Summarizer:
    """The summariser of that name; raises ``InvalidPolicy`` that names the known ones for any other."""
    maker = _makers().get(name)
    if maker is None:
        raise InvalidPolicy(f"Unknown summarizer {name!r}: choose one of {', '.join(summarizer_names())}.")
    return maker()


def _makers() -> dict[str, type[ExtractiveSummarizer]]:
    return {ExtractiveSummarizer.name: ExtractiveSummarizer}
