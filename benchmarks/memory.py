"""Figure `memory`: bytes of Redis a conversation, against the raw JSON of the same messages.

Windows are folded in process and written by the store as a worker writes them; many conversations
get the content of a few prototypes, each its own copy. What is told is the growth of Redis'
``used_memory``. The raw JSON is that of the messages rendered from the window, as one array a
conversation, without anything that a store would need around it. Typical windows have messages of
60 tokens (users) and 180 (assistants); tool-heavy ones four tool results of 6,000 tokens with calls
and short messages between; long ones are single conversations of up to 100,000 events that stand on
summaries, as they are when the next summary is due.
"""

from __future__ import annotations

import inspect
import random
import time
from collections.abc import Iterable, Sequence
from functools import partial
from typing import Any

from benchmarks.harness import Args, Measured, Result, interleave, rounded, say
from benchmarks.support.children import run_side
from benchmarks.support.stacks import Bench, filled_log, running_stack
from benchmarks.support.texts import TENANT, Template, conversation, text
from benchmarks.support.windows import Writer, fold_window
from benchmarks.window_read import long_window
from projections.names import Key
from projections.redis.store import RedisStore
from projections.render.render import render_openai
from projections.window.window import Window
from streams.settings.settings import Settings

PROTOTYPES = 40
TOKENS = 30_000
USER, ASSISTANT = 240, 780
"""Characters of a message: 60 and 180 tokens."""
RESULT_TOKENS = 6_000


class Memory:
    """Bytes of Redis over bytes of raw JSON."""

    name = "memory"
    goal = "at most 1.1 x raw_json, 0.5 with compress; linear in conversations, slope 0 in length"

    async def run(self, args: Args) -> Result:
        """Weigh each kind of conversation; the figure is the typical one at the largest number."""
        few, many = (100, 1_000) if args.quick else (1_000, 10_000)
        lengths = (1_000, 3_000) if args.quick else (1_000, 10_000, 100_000)
        with running_stack() as bench:
            settings = bench.settings("memory", partitions=8)
            async with filled_log(settings, ()):
                pass
            typical, heavy = _prototypes(settings, _typical), _prototypes(settings, _tool_heavy)
            table: dict[str, Any] = {"tool_heavy": await _weigh(bench, settings, heavy, few)}
            table[f"typical_{few}"] = await _weigh(bench, settings, typical, few)
            weighed: dict[str, Any] = {}

            async def ours() -> Measured:
                weighed.update(await _weigh(bench, settings, typical, many))
                return Measured(weighed["redis_bytes"])

            async def raw() -> Measured:
                return Measured(_raw(typical))

            rounds = await interleave({"ours": ours, "raw_json": raw}, args.runs or 1)
            table[f"typical_{many}"] = weighed
            table["long"] = {
                str(n): await _weigh(bench, settings, [await long_window(settings, n)], 20)
                for n in lengths
            }
            if compressible():
                table["compressed"] = {
                    name: await _weigh(bench, settings, windows, few, compress=True)
                    for name, windows in (("typical", typical), ("tool_heavy", heavy))
                }
                table["compressed"]["reads"] = await _reads(bench, settings, typical, args)
            table["worker"] = (
                "resident memory of a worker: usage.ours.process of figures projection and visible"
            )
        parameters = {
            "conversations": many,
            "tokens": TOKENS,
            "few": few,
            "result_tokens": RESULT_TOKENS,
            "lengths": list(lengths),
        }
        return rounds.result(
            self.name, "bytes/conversation", parameters, better="lower", more={"table": table}
        )


def compressible() -> bool:
    """Whether the store can compress."""
    return "compress" in inspect.signature(RedisStore.__init__).parameters


def _store(settings: Settings, compress: bool) -> RedisStore:
    options: dict[str, Any] = {"compress": True} if compress else {}
    return RedisStore(settings.redis, settings.topic_prefix, timeout=30, **options)


async def _weigh(
    bench: Bench,
    settings: Settings,
    prototypes: Sequence[Window],
    count: int,
    *,
    compress: bool = False,
) -> dict[str, Any]:
    """Bytes of Redis and of raw JSON a conversation, and their ratio, with ``count``
    conversations.
    """
    bench.flush()
    store = _store(settings, compress)
    try:
        await store.ping()
        before, begin = bench.used_memory(), time.perf_counter()
        await Writer(store, settings).write_copies(
            prototypes, (conversation(i) for i in range(count))
        )
        took = bench.used_memory() - before
    finally:
        await store.close()
    raw = _raw(prototypes)
    say(
        f"{count} conversations: {took / count:,.0f} bytes each, raw {raw:,.0f}"
        f" ({time.perf_counter() - begin:.0f} s)"
    )
    tokens = sum(render_openai(window).tokens for window in prototypes) / len(prototypes)
    found = {
        "conversations": count,
        "redis_bytes": rounded(took / count),
        "raw_bytes": rounded(raw),
    }
    return {
        **found,
        "ratio": rounded(took / count / raw),
        "window_tokens": round(tokens),
        "used_mib": round(took / 2**20, 1),
    }


def _raw(prototypes: Sequence[Window]) -> float:
    """Bytes of the messages in a window as one JSON array, on average."""
    return sum(len(render_openai(window).messages) for window in prototypes) / len(prototypes)


async def _reads(
    bench: Bench, settings: Settings, typical: Sequence[Window], args: Args
) -> dict[str, Any]:
    """Context documents read a second, one after another, plain and compressed."""
    names = [conversation(i).conversation for i in range(200)]
    found = {}
    for compress in (False, True):
        bench.flush()
        store = _store(settings, compress)
        await Writer(store, settings).write_copies(typical, (conversation(i) for i in range(200)))
        await store.close()
        side = partial(
            run_side,
            "window_reader",
            bench,
            settings,
            how="backend",
            tenant=TENANT,
            names=names,
            cache=0,
        )
        measured = await side(seconds=0.5 if args.quick else 3.0)
        found["compressed" if compress else "plain"] = {
            "reads_s": round(measured.value),
            "p50_ms": measured.more["p50_ms"],
        }
    return found


# -- windows
# ------------------------------------------------------------------------------------------


def _prototypes(settings: Settings, values: Any) -> list[Window]:
    return [
        fold_window(conversation(i), settings.partitions, values(conversation(i), random.Random(i)))
        for i in range(PROTOTYPES)
    ]


def _typical(key: Key, rng: random.Random) -> Iterable[bytes]:
    """Users and assistants in turn up to 30,000 tokens."""
    pairs = TOKENS // 245
    for i in range(pairs):
        for role, characters in (("user", USER), ("assistant", ASSISTANT)):
            flat = {
                "type": "message",
                "role": role,
                "content": text(rng, round(characters * rng.uniform(0.4, 1.6))),
            }
            yield Template(flat).record(key, i * 2 + (role == "user")).value


def _tool_heavy(key: Key, rng: random.Random) -> Iterable[bytes]:
    """Four results of 6,000 tokens, each after a call, with messages between, up to 30,000
    tokens.
    """
    number = 0
    for i in range(4):
        flats: list[dict[str, Any]] = [
            {"type": "message", "role": "user", "content": text(rng, USER)}
        ]
        call = {
            "id": f"call_{i}",
            "name": "find_parcels",
            "arguments": '{"place":"Turku","days":7}',
        }
        flats.append({"type": "message", "role": "assistant", "tool_calls": [call]})
        flats.append(
            {
                "type": "tool.result",
                "tool_call_id": f"call_{i}",
                "name": "find_parcels",
                "content": text(rng, RESULT_TOKENS * 467 // 100),
            }
        )
        flats += [
            {
                "type": "message",
                "role": ("assistant", "user")[j % 2],
                "content": text(rng, ASSISTANT),
            }
            for j in range(7)
        ]
        for flat in flats:
            yield Template(flat).record(key, number).value
            number += 1


FIGURE = Memory()
