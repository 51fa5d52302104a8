"""A subscriber of a tenant's summaries: prints each accepted summary once, and goes on where it was
after a restart.

THREADFOLD_URL=http://localhost:8080 THREADFOLD_KEY=… python examples/subscriber.py [CURSOR_FILE]
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
from pathlib import Path

from threadfold_client import AsyncClient, ClientError


def saved(cursor_file: Path | None) -> str | None:
    """The cursor after which to go on."""
    return cursor_file.read_text().strip() if cursor_file and cursor_file.exists() else None


def save(cursor_file: Path | None, cursor: str | None) -> None:
    """Remember where to go on."""
    if cursor_file and cursor:
        cursor_file.write_text(cursor)


async def main(cursor_file: Path | None) -> None:
    """Print summaries as JSON lines until it is interrupted."""
    cursor = saved(cursor_file)
    async with AsyncClient(os.environ["THREADFOLD_URL"], os.environ["THREADFOLD_KEY"]) as client:
        async for event in client.summaries(cursor, from_beginning=cursor is None):
            # First what the event is for, then the cursor: after a crash in between it comes again,
            # with the same summary_id.
            print(json.dumps({"event": event.event, **event.data}, ensure_ascii=False), flush=True)
            save(cursor_file, event.id)


if __name__ == "__main__":
    try:
        asyncio.run(main(Path(sys.argv[1]) if len(sys.argv) > 1 else None))
    except KeyboardInterrupt:
        sys.exit(0)
    except KeyError as missing:
        sys.exit(
            f"{missing.args[0]} is not set: the gateway's address and the tenant's key are taken"
            " from the environment"
        )
    except ClientError as error:
        sys.exit(str(error))
