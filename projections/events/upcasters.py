"""Upcasters: functions that turn the data of an older version of an event type into the next one's,
so that the fold knows only the latest.

The log keeps every event as it was written, for ever. A type whose data changed in a way that its
struct cannot read gets a new version (``threadfold.message.v2``) and one function from the former
to it; what is several versions old goes through all of them in turn. Only an event of an outdated
version pays for it. ``docs/events-versions.md`` says how a version is added.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

Upcast = Callable[[dict[str, Any]], dict[str, Any]]
"""Data of one version in, data of the next one out. Pure and total: whatever was accepted as the
former must come out as the latter. Fields that a later release of the former version added come in,
too.
"""
_VERSIONED = re.compile(r"(.+)\.v(0|[1-9][0-9]{0,2})", re.ASCII)


class Upcaster(NamedTuple):
    """One step: from version ``version`` of the type with the short name ``name`` (``message``) to
    the next one.
    """

    name: str
    version: int
    upcast: Upcast


class UpcastFailed(ValueError):
    """An event of an outdated version could not be turned into one of the present; the message
    quotes nothing of its data.
    """


class Upcasters:
    """The steps there are, by the full type they begin with."""

    def __init__(self, steps: Iterable[Upcaster], current: Iterable[str], prefix: str) -> None:
        """Args: ``current`` are the full types that are decoded as they are; all of them begin with
        ``prefix``.

        Raises:
            ValueError: two steps begin at one version, or a chain does not end at a current type: a
                fault of this release's code.
        """
        self._steps: dict[str, tuple[str, Upcast]] = {}
        for name, version, upcast in steps:
            full = f"{prefix}{name}.v{version}"
            if full in self._steps:
                raise ValueError(f"there are two upcasters from {full}")
            self._steps[full] = (f"{prefix}{name}.v{version + 1}", upcast)
        ends = frozenset(current)
        for full, (after, _) in self._steps.items():
            if full in ends:
                raise ValueError(f"{full} is current, and there is an upcaster from it")
            if after not in ends and after not in self._steps:
                raise ValueError(
                    f"the upcaster from {full} leads to {after}, which is neither current nor"
                    " outdated"
                )

    def __contains__(self, full: object) -> bool:
        """Whether a full type is an outdated version of a known one."""
        return full in self._steps

    def lift(self, full: str, data: object) -> tuple[str, object]:
        """The present type and data of an event of the type ``full``, which stay as they are where
        it is not outdated.

        Raises:
            UpcastFailed: a step raised, or did not give an object; the message says which.
        """
        while (step := self._steps.get(full)) is not None:
            after, upcast = step
            if not isinstance(data, dict):
                raise UpcastFailed(f"the data of {full} is not an object")
            try:
                # A copy: a step may change what it is given, and whoever calls keeps the event as
                # it was written.
                data = upcast(dict(data))
            except Exception as error:
                raise UpcastFailed(
                    f"the upcaster from {full} to {after} failed ({type(error).__name__})"
                ) from error
            if not isinstance(data, dict):
                raise UpcastFailed(f"the upcaster from {full} to {after} gave no object")
            full = after
        return full, data


def version_of(full: str) -> tuple[str, int]:
    """``threadfold.message.v1`` → ``("threadfold.message", 1)``; raises ``ValueError`` for what is
    no such name.
    """
    match = _VERSIONED.fullmatch(full)
    if match is None:
        raise ValueError(f"{full!r} is no type with a version")
    return match[1], int(match[2])
