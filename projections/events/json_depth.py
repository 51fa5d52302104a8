"""How deep a JSON text nests, found without parsing it: Python's own limit depends on the caller's
stack, and a fold must not.
"""

from __future__ import annotations

import re

_BRACKETS = re.compile(rb'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


def nested_beyond(value: bytes, levels: int) -> bool:
    """Whether arrays and objects of a JSON text nest deeper than ``levels``; for what is no JSON
    the answer only has to be the same.
    """
    return value.count(b"[") + value.count(b"{") > levels and _nesting(value) > levels


def _nesting(value: bytes) -> int:
    """How deep arrays and objects nest in a JSON text, at most."""
    depth = deepest = 0
    for match in _BRACKETS.finditer(value):
        bracket = match[0][:1]
        if bracket in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif bracket in b"]}":
            depth -= 1
    return deepest
