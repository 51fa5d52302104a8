"""Processors for tests that ask where something is worked out."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Reached(Exception):
    """A processor was asked for something."""


class Refusing:
    """A processor that does nothing."""

    async def run(self, tenant: str, function: Callable[..., T], *args: object) -> T:
        raise Reached(function.__name__)
