"""Generations of a projection's results, recorded on the control topic under ``view/NAME``: Redis
can be lost, and with it no switch.

Any process may write the record (``Control.change_projection``). Of two that were written on top of
the same one the first counts; the other's writer sees that and repeats its change.
"""

from __future__ import annotations

import logging

import msgspec

from projections.events.untrusted import json_decoder

logger = logging.getLogger(__name__)


class ProjectionGeneration(msgspec.Struct, frozen=True):
    """Results of one version of a projection; ``ends`` is what the log's partitions held when they
    were begun.
    """

    version: int
    ends: tuple[int, ...]


class ProjectionRecord(msgspec.Struct, frozen=True):
    """All generations there are, and the one that readers see (None: there is none).

    ``last`` is the highest number there was when all were dropped: none is given twice, as a
    process that did not know yet may have left results under it.
    """

    revision: int = 0
    live: int | None = None
    generations: dict[int, ProjectionGeneration] = {}
    last: int = 0

    def newest(self, version: int) -> int | None:
        """The latest generation of a version, the live one before others."""
        live = self.generations.get(self.live) if self.live is not None else None
        if live is not None and live.version == version:
            return self.live
        return max(
            (
                number
                for number, generation in self.generations.items()
                if generation.version == version
            ),
            default=None,
        )

    def candidate(self, version: int) -> int | None:
        """The latest generation of a version that is younger than the live one: its building was
        begun and is not over.
        """
        live = self.live or 0
        return max(
            (
                number
                for number, generation in self.generations.items()
                if generation.version == version and number > live
            ),
            default=None,
        )

    def begun(self, version: int, ends: dict[int, int]) -> ProjectionRecord:
        """With a new generation; the first one is live at once, as there is nothing else to
        read.
        """
        number = max(self.generations, default=max(self.live or 0, self.last)) + 1
        generation = ProjectionGeneration(
            version, tuple(ends[partition] for partition in sorted(ends))
        )
        return ProjectionRecord(
            self.revision + 1,
            self.live if self.live is not None else number,
            {**self.generations, number: generation},
        )

    def switched(self, number: int) -> ProjectionRecord:
        """With another generation live."""
        return ProjectionRecord(self.revision + 1, number, self.generations)

    def emptied(self) -> ProjectionRecord:
        """Without any."""
        return ProjectionRecord(
            self.revision + 1, None, {}, max(self.generations, default=self.last)
        )

    def without(self, numbers: set[int]) -> ProjectionRecord:
        """Without some generations."""
        return ProjectionRecord(
            self.revision + 1,
            self.live,
            {n: g for n, g in self.generations.items() if n not in numbers},
        )


_record = json_decoder(ProjectionRecord)


def take_record(records: dict[str, ProjectionRecord], name: str, value: bytes | None) -> None:
    """Take a record of the control topic in, unless another one of its revision came first; raises
    ``ValueError`` for one that is none.
    """
    if not value:
        records.pop(name, None)
        return
    new = _record(value)
    known = records.get(name)
    if known is None or new.revision > known.revision:
        records[name] = new
    else:
        logger.debug(
            "a record of projection %s is skipped: revision %d is newer",
            name,
            new.revision,
        )
