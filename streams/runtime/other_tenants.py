"""Whether others than a tenant are active: one that is alone need not leave them room."""

from __future__ import annotations


class OtherTenants:
    """The tenant that was active last, and the other one before, and when."""

    def __init__(self) -> None:
        self._last = self._before = ("", float("-inf"))

    def note(self, tenant: str, now: float) -> None:
        """A tenant is active now."""
        if self._last[0] != tenant:
            self._before = self._last
        self._last = tenant, now

    def than(self, tenant: str, since: float) -> bool:
        """Whether another one than this was active after that time."""
        _, at = self._before if self._last[0] == tenant else self._last
        return at > since
