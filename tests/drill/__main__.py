"""``python -m tests.drill run DIR [FAULT…]`` puts each fault in, and prints what showed it and when
it was well again. ``practise DIR`` starts a deployment for people; ``put DIR FAULT`` puts a fault
into it, ``heal DIR FAULT`` does what heals it.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import time
from pathlib import Path

from tests.drill.deployment import Deployment, deployed
from tests.drill.faults import FAULTS, Fault
from tests.support.worker import until

NAMES = {fault.name: fault for fault in FAULTS}
SEEN, WELL = 90.0, 150.0
"""Seconds within which a fault shows, and within which it is over."""


async def exercise(stack: Deployment, fault: Fault) -> str:
    """Put a fault in, wait until it shows, heal it, wait until all is well; returns a line of the
    table.
    """
    against = ""

    async def well() -> bool:
        nonlocal against
        against = await fault.well(stack)
        return not against

    begun = time.monotonic()
    try:
        await fault.put(stack)
        sign = await until(lambda: fault.seen(stack), SEEN, f"a sign of {fault.name}")
        shown, healed = time.monotonic() - begun, time.monotonic()
        await fault.heal(stack)
        await until(well, WELL, f"the end of {fault.name}")
    except TimeoutError as error:
        raise AssertionError(f"{fault.name}: {error}; {against}\n{stack.last_lines()}") from None
    return f"{fault.name}\t{shown:.0f} s\t{time.monotonic() - healed:.0f} s\t{sign}"


async def _run(folder: Path, names: list[str]) -> None:
    async with deployed(folder) as stack:
        print("fault\tseen after\twell after\tsign")
        for name in names or NAMES:
            print(await exercise(stack, NAMES[name]), flush=True)


async def _practise(folder: Path) -> None:
    async with deployed(folder) as stack:
        print(f"--data {stack.data}\ngateway {stack.settings.gateway_url}, CA {stack.authority.ca}")
        print(
            f"worker's metrics http://127.0.0.1:{stack.metrics_port}/metrics\nup's log {stack.log}"
        )
        for tenant, key in stack.keys.items():
            print(f"key of tenant {tenant}: {key}", flush=True)
        while True:
            for what, name in _orders(folder):
                await getattr(NAMES[name], what)(stack)
            await asyncio.sleep(0.2)


def _orders(folder: Path) -> list[list[str]]:
    """What ``put`` and ``heal`` have asked for since the last look."""
    found = []
    for order in sorted(folder.glob("*.order")):
        found.append(order.read_text().split())
        order.unlink()
    return found


def main(words: list[str]) -> None:
    """Run one of the commands."""
    for number in (signal.SIGTERM, signal.SIGINT):
        # Also where it runs in the background: the deployment ends with it.
        signal.signal(number, signal.default_int_handler)
    command, folder, *names = words
    if command in ("put", "heal") and names[0] in NAMES:
        Path(folder, f"{time.time_ns()}.order").write_text(f"{command} {names[0]}")
    elif command == "practise":
        asyncio.run(_practise(Path(folder)))
    elif command == "run":
        asyncio.run(_run(Path(folder), names))
    else:
        sys.exit(f"{__doc__}\nfaults: {', '.join(NAMES)}")


if __name__ == "__main__":
    main(sys.argv[1:])
