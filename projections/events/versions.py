"""The names and versions of event types: which this release writes, which it still reads, and how
an outdated one becomes a present one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Generic, TypeVar, get_args

import msgspec

from projections.events.untrusted import json_decoder
from projections.events.upcasters import Upcaster, Upcasters, UpcastFailed, version_of

PREFIX = "threadfold."
T = TypeVar("T")
_envelope = json_decoder()


class EventTypes(Generic[T]):
    """The event types of a release."""

    def __init__(self, union: Any, steps: Iterable[Upcaster]) -> None:
        """Args: ``union`` of event structs, tagged with their full type; ``steps`` from outdated
        versions to these.

        Raises:
            ValueError: a step does not lead to one of them.
        """
        self._union = union
        tags = [str(kind.__struct_config__.tag) for kind in get_args(union)]
        self._full = {version_of(tag)[0].removeprefix(PREFIX): tag for tag in tags}
        self._names = {tag: name for name, tag in self._full.items()}
        self._upcasters = Upcasters(steps, tags, PREFIX)

    def full(self, name: str) -> str:
        """The full type of a name, at the version that is written; of one that is none of these
        (other topics have more) at its first.
        """
        return self._full.get(name) or f"{PREFIX}{name}.v1"

    def short(self, full: str) -> str:
        """The name of a present type; any other is returned whole."""
        return self._names.get(full, full)

    def is_present(self, full: str) -> bool:
        """Whether it is a version that is written."""
        return full in self._names

    def is_outdated(self, full: object) -> bool:
        """Whether it is a version that an upcaster reads."""
        return full in self._upcasters

    def present_form(self, envelope: dict[str, Any]) -> dict[str, Any]:
        """A decoded envelope with the type and data of the present version; one that is not
        outdated is returned as it is.

        Raises:
            UpcastFailed: as ``projections.events.upcasters`` says.
        """
        if not self.is_outdated(envelope.get("type")):
            return envelope
        full, data = self._upcasters.lift(envelope["type"], envelope.get("data"))
        return {**envelope, "type": full, "data": data}

    def read_outdated(self, value: bytes) -> T:
        """The event of a value whose type is outdated.

        Raises:
            Undecodable: the value is not JSON.
            UpcastFailed: an upcaster failed, or what it gave is no event; the message may quote a
                field's value.
        """
        envelope = _envelope(value)
        try:
            event: T = msgspec.convert(self.present_form(envelope), self._union)
        except (msgspec.ValidationError, RecursionError) as error:
            raise UpcastFailed(
                f"what the upcaster from {envelope['type']} gave is no event: {error}"
            ) from None
        return event
