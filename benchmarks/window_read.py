"""Figure `window_read`: reading a window of 30,000 tokens, in process, as the bytes the gateway
answers with.

200 conversations are read in turn by eight readers of one process, ours and `redis_session_125`
alike. Ours runs with its defaults, so after the first turn it has what does not change of these
windows and reads their heads and newest chunks (see `threadfold.service.window_cache`); the table
has reads of whole windows, with that switched off, and the reads of one reader alone. The peers
keep messages of the same texts: `redis_session_125` reads the last 125 items (30,000 tokens as
well) of such sessions on the same Redis, `redis_session_whole` all of one session of 20,000
messages, `langgraph_sqlite` plays turns on a state of 800 messages. Our reads of conversations of
1,000 to 100,000 events, whose windows stand on summaries, are of whole windows by one reader.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any

import redis.asyncio as aredis

from benchmarks.harness import Args, Measured, Result, interleave, say
from benchmarks.support.children import run_side
from benchmarks.support.grown import GrownLog
from benchmarks.support.stacks import Bench, filled_log, running_stack
from benchmarks.support.texts import TENANT, Messages, conversation
from benchmarks.support.windows import Writer, fold_window
from projections.redis.store import RedisStore
from streams.settings.settings import Settings

WINDOWS = 200
AT_ONCE = 8
MESSAGES = 125
CHARACTERS = 1_040
"""Characters of a message: 240 tokens, so 125 of them are 30,000."""
LONG = 9_000_000
"""Numbers of the long conversations, one each length, begin here."""


class WindowRead:
    """Reads a second of whole windows."""

    name = "window_read"
    goal = "at least 5,000/s, 3 x redis_session_125, flat in the conversation's length"

    async def run(self, args: Args) -> Result:
        """Write windows and sessions, then read them in turn."""
        seconds, whole, turns = (0.5, 2_000, 40) if args.quick else (4.0, 20_000, 800)
        lengths = (1_000, 3_000) if args.quick else (1_000, 10_000, 100_000)
        with running_stack() as bench:
            settings = bench.settings("read", partitions=8)
            async with filled_log(settings, ()):
                pass
            tokens = await _write_windows(settings, lengths)
            await _write_sessions(bench, whole)
            names = [conversation(i).conversation for i in range(WINDOWS)]
            session = partial(
                run_side, "window_reader", bench, settings, how="redis_session", seconds=seconds
            )
            rounds = await interleave(
                {
                    "ours": partial(_ours, bench, settings, names, seconds),
                    "redis_session_125": partial(
                        session, names=names, limit=MESSAGES, at_once=AT_ONCE
                    ),
                    "redis_session_whole": partial(session, names=["whole"], limit=None),
                    "langgraph_sqlite": partial(
                        run_side,
                        "langgraph_turns",
                        bench,
                        settings,
                        messages=turns,
                        characters=CHARACTERS,
                    ),
                },
                args.rounds(),
            )
            uncached = await _ours(bench, settings, names, seconds, cache=0)
            flat = {}
            for length in lengths:
                flat[str(length)] = await _flat(bench, settings, length, seconds)
        parameters = {
            "windows": WINDOWS,
            "messages": MESSAGES,
            "whole": whole,
            "langgraph_messages": turns,
            "seconds": seconds,
        }
        last = {
            name: {"reads_s": taken[-1].value, **taken[-1].more}
            for name, taken in rounds.taken.items()
        }
        last["ours_whole_windows"] = {"reads_s": uncached.value, **uncached.more}
        more = {
            "table": {"sides": last, "by_length": flat},
            "window_tokens": tokens,
            "peers_note": "whole: reads/s; langgraph: turns/s",
        }
        return rounds.result(self.name, "reads/s", parameters, more=more)


async def _write_windows(settings: Settings, lengths: tuple[int, ...]) -> int:
    """The windows of the figure, and one long conversation each length; returns the tokens of one
    window.
    """
    messages = Messages(CHARACTERS, 2_000)
    store = RedisStore(settings.redis, settings.topic_prefix)
    try:
        writer = Writer(store, settings)
        windows = [
            fold_window(
                conversation(i),
                settings.partitions,
                [messages.record(t * WINDOWS + i, WINDOWS).value for t in range(MESSAGES)],
            )
            for i in range(WINDOWS)
        ]
        await writer.write(windows)
        for length in lengths:
            await writer.write([await long_window(settings, length)])
        return sum(window.tail_tokens for window in windows) // WINDOWS
    finally:
        await store.close()


async def long_window(settings: Settings, length: int, messages: Messages | None = None) -> Any:
    """The window of one conversation of about ``length`` events, with its summaries, as it stands
    when the next one is due.

    So windows of every length hold about as much, and what is compared is the length alone.
    """
    messages = messages or Messages()
    key = conversation(LONG + length)
    grown = GrownLog(settings)

    def ripe() -> bool:
        return grown.counts[key] >= length and grown.windows[key].meta.due is not None

    made = (_of(messages, key, number) for number in range(2 * length + 5_000))
    await grown.grow(made, until=ripe)
    window = grown.windows[key]
    say(
        f"a conversation of {window.meta.count} events: {grown.summaries} summaries,"
        f" {window.tail_tokens} tokens in the tail"
    )
    return window


def _of(messages: Messages, key: Any, number: int) -> Any:
    return messages.template(number, 0).record(key, number)


async def _write_sessions(bench: Bench, whole: int) -> None:
    """The peer's sessions, as ``RedisSession.add_items`` lays them out: a list of JSON objects
    each.
    """
    from agents.extensions.memory import RedisSession

    messages = Messages(CHARACTERS, 2_000)
    client = aredis.Redis.from_url(bench.stack.redis)

    def items(place: int, count: int) -> list[Any]:
        made = (
            json.loads(messages.record(t * WINDOWS + place, WINDOWS).value)["data"]
            for t in range(count)
        )
        return [{"role": data["role"], "content": data["content"]} for data in made]

    for i in range(WINDOWS):
        await RedisSession(conversation(i).conversation, redis_client=client).add_items(
            items(i, MESSAGES)
        )
    await RedisSession("whole", redis_client=client).add_items(items(0, whole))
    await client.aclose()


async def _ours(
    bench: Bench, settings: Settings, names: list[str], seconds: float, **job: Any
) -> Measured:
    side = partial(
        run_side, "window_reader", bench, settings, how="backend", tenant=TENANT, at_once=AT_ONCE
    )
    return await side(names=names, seconds=seconds, **job)


async def _flat(bench: Bench, settings: Settings, length: int, seconds: float) -> dict[str, Any]:
    names = [conversation(LONG + length).conversation]
    side = partial(
        run_side, "window_reader", bench, settings, how="backend", tenant=TENANT, cache=0
    )
    measured = await side(names=names, seconds=min(2.0, seconds))
    return {
        "reads_s": round(measured.value),
        "p50_ms": measured.more["p50_ms"],
        "bytes": measured.more["size"],
    }


FIGURE = WindowRead()
