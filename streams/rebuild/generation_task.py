"""A build, a switch or a drop of a generation as one task, in a process of its own."""

from __future__ import annotations

import asyncio
from typing import Literal

import msgspec

from streams.control.generations import drop
from streams.rebuild.build import worthwhile_jobs
from streams.rebuild.rebuild import Loss, rebuild
from streams.runtime.tune_gc import tune_gc
from streams.settings.settings import Settings
from streams.stack import open_stack


class GenerationTask(msgspec.Struct, frozen=True):
    """What to do with which generation. ``accept_loss``: switch even where conversations lose what
    their windows hold.
    """

    doing: Literal["build", "switch", "drop"]
    number: int
    accept_loss: bool = False


def run_task(settings: Settings, task: GenerationTask) -> tuple[Loss, ...]:
    """Do it, whole; returns what a switch lost, and raises what ``rebuild`` and ``drop`` do. It may
    be killed and called again: it goes on from what is written.
    """
    return asyncio.run(_run(settings, task))


async def _run(settings: Settings, task: GenerationTask) -> tuple[Loss, ...]:
    tune_gc()
    async with open_stack(settings) as stack:
        control, log, store = stack.control, stack.log, stack.store
        if task.doing == "drop":
            await drop(control, store, task.number)
            return ()
        report = await rebuild(
            settings,
            control,
            log,
            store,
            number=task.number,
            switch=task.doing == "switch",
            accept_loss=task.accept_loss,
            jobs=await worthwhile_jobs(control, log, store, task.number),
        )
        return report.losses or ()
