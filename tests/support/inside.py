"""Running the threadfold command in this process: a command of its own takes a second to import
what is imported here already.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
from collections.abc import Mapping
from pathlib import Path

from tests.support.commands import Ran
from threadfold.cli.main import main


async def inside(*args: str | Path, env: Mapping[str, str] | None = None) -> Ran:
    """Run a command line in a thread, which has an event loop of its own; one at a time, as output
    and environment are the process'.
    """
    out, err = (
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8"),
        io.TextIOWrapper(io.BytesIO(), encoding="utf-8"),
    )
    before = {name: os.environ.get(name) for name in env or {}}
    os.environ.update(env or {})
    try:
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            code = await asyncio.to_thread(main, [str(arg) for arg in args])
    finally:
        for name, value in before.items():
            if value is None:
                del os.environ[name]
            else:
                os.environ[name] = value
    out.flush()
    err.flush()
    return Ran(code, out.buffer.getvalue().decode(), err.buffer.getvalue().decode())  # type: ignore[attr-defined]
