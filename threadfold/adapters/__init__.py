"""The former place of ``threadfold_client.adapters``: its modules can be imported from here until
0.3.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Sequence
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

_ELSEWHERE = {"eventsourcing": "threadfold.custom.eventsourcing"}


class _Moved(MetaPathFinder, Loader):
    """Finds the modules of this package at their new place."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        inside = fullname.startswith(f"{__name__}.")
        return ModuleSpec(fullname, self) if inside else None

    def exec_module(self, module: ModuleType) -> None:
        name = module.__name__.removeprefix(f"{__name__}.")
        place = _ELSEWHERE.get(name, f"threadfold_client.adapters.{name}")
        warnings.warn(
            f"{module.__name__} is called {place} now; the old name works until 0.3",
            DeprecationWarning,
            stacklevel=2,
        )
        sys.modules[module.__name__] = import_module(place)


sys.meta_path.append(_Moved())
