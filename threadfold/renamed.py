"""Names of the public interface that were renamed: the old ones work for one release."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any


def renamed(module: str, name: str, then: Mapping[str, Any]) -> Any:
    """What ``name`` of ``module`` is called now, for a module's ``__getattr__``.

    Args:
        then: Old names and what they stand for.

    Raises:
        AttributeError: it is no old name.
    """
    if name not in then:
        raise AttributeError(f"module {module!r} has no attribute {name!r}")
    found = then[name]
    warnings.warn(
        f"{module}.{name} is called {found.__module__}.{found.__qualname__} now; the old name works"
        " until 0.3",
        DeprecationWarning,
        stacklevel=3,
    )
    return found
