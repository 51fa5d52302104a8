"""``dead-letters retry --all`` leaves others time."""

from __future__ import annotations

import asyncio
from typing import Any, cast

import pytest

from projections.errors import CallableFailed
from projections.names import Key
from streams.maintenance.dead_letters import DeadLetters
from threadfold.cli.dead_letters import PAUSE, retry_each

TOOK = 0.02


class Letters:
    """Retries one conversation in :data:`TOOK` seconds; that of one name fails."""

    def __init__(self) -> None:
        self.began: list[float] = []

    async def retry(self, key: Key) -> tuple[int, None]:
        self.began.append(asyncio.get_running_loop().time())
        await asyncio.sleep(TOOK)
        if key.conversation == "busy":
            raise CallableFailed("it raised an error")
        return 3, None


@pytest.mark.parametrize("names", [("a", "busy", "b"), ("a", "b", "c")])
async def test_between_two_retries_the_worker_has_time(
    names: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    letters = Letters()
    keys = [Key("acme", name) for name in names]
    well = await retry_each(cast("DeadLetters", cast("Any", letters)), keys)
    assert well == ("busy" not in names)
    first, second, third = letters.began
    assert second - first >= TOOK * (1 + PAUSE) and third - second >= TOOK * (1 + PAUSE)
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [f"acme/{name}" for name in names]
