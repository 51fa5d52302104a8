"""Whether others than a tenant are active: one that is alone need not leave them room."""

from __future__ import annotations


class OtherTenants:
    """The tenant that was active last, and the other one before, and when."""

    def __init__(self, active: float) -> None:
        """Args: ``active``: for so many seconds after its last call a tenant counts."""
        self._active = active
        self._last = self._before = ("", float("-inf"))

    def note(self, tenant: str, now: float) -> None:
        """A tenant is active now."""
        if self._last[0] != tenant:
            self._before = self._last
        self._last = tenant, now

    def than(self, tenant: str, now: float) -> bool:
        """Whether another one than this is active."""
        _, at = self._before if self._last[0] == tenant else self._last
        return now - at < self._active
