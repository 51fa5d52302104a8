"""How deep a JSON text nests, found without parsing it: Python's own limit depends on the caller's
stack, and a fold must not.

A producer may write any bytes, and a worker reads them between heartbeats: what is done for each
bracket is done without a call of Python.
"""

from __future__ import annotations

import re
from itertools import accumulate

_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_NO_BRACKETS = bytes(set(range(256)).difference(b"[{]}"))
_AT_ONCE = 4_096
"""Brackets after which it is looked whether the answer is known."""
_BEGIN = 16_384
"""Bytes of a longer text that are looked at first: where they nest too deep, the rest is not."""


def nested_beyond(value: bytes, levels: int) -> bool:
    """Whether arrays and objects of a JSON text nest deeper than ``levels``; for what is no JSON
    the answer only has to be the same.
    """
    if not _opens_more(value, levels):
        return False
    return (len(value) > _BEGIN and _beyond(value[:_BEGIN], levels)) or _beyond(value, levels)


def _opens_more(value: bytes, levels: int) -> bool:
    """Whether there are more opening brackets; they are looked for and not counted, as in a long
    text there are few.
    """
    for bracket in (b"[", b"{"):
        at = value.find(bracket)
        while at >= 0:
            levels -= 1
            if levels < 0:
                return True
            at = value.find(bracket, at + 1)
    return False


def _beyond(value: bytes, levels: int) -> bool:
    brackets = _TEXT.sub(b"", value).translate(_STEPS, _NO_BRACKETS)
    steps = memoryview(brackets).cast("b")  # a closing bracket is -1
    depth = 0
    for begin in range(0, len(steps), _AT_ONCE):
        depths = [*accumulate(steps[begin : begin + _AT_ONCE], initial=depth)]
        if max(depths) > levels:
            return True
        depth = depths[-1]
    return False
