"""A hash of rendered messages that can go on."""

from __future__ import annotations

from hashlib import sha256


class RenderedHash:
    """The SHA-256 of a JSON array of messages that grows at its end.

    ``of`` identifies what the array is of, ``end`` is the running number of the first entry that is
    not in it.
    """

    __slots__ = ("_any", "_sha", "end", "of")

    def __init__(self, of: tuple[int, int, int], lead: list[bytes], start: int) -> None:
        self.of = of
        self.end = start
        self._sha = sha256(b"[" + b",".join(lead))
        self._any = bool(lead)

    def extend(self, bodies: list[bytes], end: int) -> bytes:
        """Put messages at the end, up to running number ``end``; returns the digest of the
        array.
        """
        if bodies:
            self._sha.update((b"," if self._any else b"") + b",".join(bodies))
            self._any = True
        self.end = end
        whole = self._sha.copy()
        whole.update(b"]")
        return whole.digest()
