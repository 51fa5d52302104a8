"""Callables that policies may name: functions of the deployment's own code, registered in its
settings and never in a policy.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import Any

import msgspec

from projections.errors import InvalidSettings
from projections.policy.policy import Callables


def load_callables(named: dict[str, str]) -> Callables:
    """Import the functions that settings register as ``NAME = "package.module:function"``.

    Each is called as ``(tool_name, call_id, result_text)`` inside the fold, and answers the text
    that stands in the result's place. It has to be a pure function, and the same in every process
    of a deployment: windows differ otherwise, and ``verify`` says so.

    Raises:
        InvalidSettings: one of them cannot be imported or called; the message names it.
    """
    return {name: _load(name, place) for name, place in named.items()}


def _load(name: str, place: str) -> Callable[[str, str, str], str]:
    module, colon, attribute = place.partition(":")
    if not colon:
        raise InvalidSettings(
            f"setting 'callables': {name} is {place!r}: it must be package.module:function"
        )
    try:
        found: Any = getattr(importlib.import_module(module), attribute)
    except Exception as error:  # noqa: BLE001 (a deployment's own module may fail in any way while it is imported)
        raise InvalidSettings(
            f"setting 'callables': {name} ({place}) cannot be imported: {type(error).__name__}:"
            f" {error}"
        ) from None
    if not callable(found):
        raise InvalidSettings(f"setting 'callables': {name} ({place}) is not a function")
    function: Callable[[str, str, str], str] = found
    return function


def read_callables(value: object) -> dict[str, str]:
    """The setting as it stands in a file (a table) or in the environment (a JSON object); raises
    :class:`InvalidSettings`.
    """
    try:
        return (
            msgspec.json.decode(value, type=dict[str, str])
            if isinstance(value, str)
            else msgspec.convert(value, dict[str, str])
        )
    except (msgspec.DecodeError, msgspec.ValidationError):
        raise InvalidSettings(
            "setting 'callables': expected a table of names, each package.module:function"
        ) from None
