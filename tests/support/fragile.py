"""A deployment's own code, in two releases: what it is registered with as ``callables``, to see
what a fold that fails does.
"""

from __future__ import annotations


class Panic(BaseException):
    """What a library in another language may raise: no ``Exception``, so that nothing in between
    takes it for one.
    """


def broken(tool: str, call_id: str, text: str) -> str:
    """Replaces a tool's result, and fails on some."""
    if "trap" in text:
        raise Panic(f"cannot shorten {text[:20]!r}")
    return mended(tool, call_id, text)


def mended(tool: str, call_id: str, text: str) -> str:
    """The same, without the fault."""
    return f"{tool}: {len(text)} characters"
