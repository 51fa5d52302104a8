"""Usage per tenant and day as a projection of one's own: how many events, tokens and tool results
there were.

threadfold projection run examples.usage:Usage        # keeps it up with the log
python examples/usage.py TENANT                       # prints a tenant's days

Beside `threadfold up`, Kafka's and Redis' addresses are in its folder: set
THREADFOLD_CONFIG=threadfold-data/threadfold.toml.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from streams.settings.settings import Settings
from threadfold.custom import Event, Projection, ProjectionReader, Result


class Usage(Projection):
    """A counter a day in each tenant."""

    name = "usage"
    version = 1

    async def apply(self, batch: Sequence[Event], result: Result) -> None:
        for event in batch:
            tools = 1 if event.type == "tool.result" else 0
            result.add(event.tenant, event.day, events=1, tokens=event.tokens, tool_results=tools)


async def main(tenant: str) -> None:
    """Print a tenant's days, one a line."""
    async with ProjectionReader.open(Settings.load(), Usage()) as view:
        for day, used in (await view.all(tenant)).items():
            print(day, used["events"], used["tokens"], used["tool_results"])


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python examples/usage.py TENANT")
    asyncio.run(main(sys.argv[1]))
