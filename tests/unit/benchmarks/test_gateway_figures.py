"""The gateway's figures count what they say: ratios by route, pooled percentiles, and requests that
are what a server expects.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip(
    "psutil", reason="the benchmarks' packages are not installed: make bench does it"
)

from benchmarks import gateway_noisy, gateway_server, gateway_single
from benchmarks.harness import Measured, Rounds, figures
from benchmarks.sides.http_load import call_all
from benchmarks.sides.mixed_tenants import Talk
from benchmarks.support.http import Caller, keep, raw
from benchmarks.support.single import ROUTES, made
from projections.events.validation import make_record
from projections.names import Key

LATENCIES = {"ms_p50": 1.0, "ms_p99": 2.0}


def taken(rounds: dict[str, list[float]]) -> Rounds:
    found = Rounds(list(rounds))
    for name, values in rounds.items():
        found.taken[name] = [
            Measured(value, {"server": {"cores": 0.5}}, LATENCIES) for value in values
        ]
    return found


def test_the_figures_of_the_gateway_are_found() -> None:
    assert figures().keys() >= {
        "gateway_single",
        "gateway_mixed",
        "gateway_noisy",
        "gateway_server",
        "append_applied",
        "append_gateway",
    }


def test_each_route_is_held_against_the_bare_route_that_moves_its_bytes_round_by_round() -> None:
    sides = ("ours", "bare", "bare_starlette", "no_io")
    values = {f"{route}.{side}": [100.0, 100.0, 100.0] for route in ROUTES for side in sides}
    values |= {
        "append.ours": [80.0, 60.0, 70.0],
        "read.ours": [50.0, 150.0, 90.0],
        "append.no_io": [400.0] * 3,
    }
    result = gateway_single.result_of("gateway_single", taken(values), {})
    assert result.ratios == {"append.bare": 0.7, "read.bare": 0.9, "read_long.bare": 1.0}
    assert result.conditions["ratio_spread"]["read.bare"] == [0.5, 1.5]
    told = result.conditions["table"]["append"]["no_io"]
    assert (told["requests_s"], told["ours_over_it"], told["ms_p99"], told["server_us"]) == (
        400.0,
        0.175,
        2.0,
        1250.0,
    )


def test_a_servers_ratio_is_ours_over_it_by_route() -> None:
    values = {
        f"{route}.{side}": [100.0]
        for route in gateway_server.ROUTES
        for side in gateway_server.SERVERS
    }
    values |= {"read.granian": [125.0]}
    ratios = gateway_server.result_of("gateway_server", taken(values), {}).ratios
    assert ratios["read.granian"] == 0.8 and ratios["append.uvicorn_h11_asyncio"] == 1.0


def test_the_noisy_figure_is_the_worse_routes_p99_over_all_rounds_together() -> None:
    rounds = Rounds(["ours", "alone"])
    quick, slow = [1.0] * 99, [1.0] * 97
    for name, append, read in (
        ("alone", [*quick, 2.0], [*quick, 4.0]),
        ("ours", [*slow, 3.0, 3.0, 3.0], [*slow, 5.0, 5.0, 5.0]),
    ):
        rounds.taken[name] = [
            Measured(1.0, more={"took": {"append": append, "read": read}}) for _ in range(2)
        ]
    result = gateway_noisy.result_of("gateway_noisy", rounds, {}, {"429": 7})
    assert result.ratios == {"append": 1.5, "read": 1.25}
    assert result.ours == 1.5
    assert result.conditions["table"]["read"]["requests"] == {"ours": 200, "alone": 200}
    assert result.conditions["noisy_answers"] == {"429": 7}


def test_single_requests_are_events_that_intake_takes(tmp_path: Path) -> None:
    single = made(tmp_path, "Bearer key")
    method, path, headers, body = json.loads(Path(single.requests["append"]).read_text())[0]
    assert (method, path, headers["Authorization"]) == (
        "POST",
        "/v1/conversations/conversation-0000000/events",
        "Bearer key",
    )
    assert make_record(
        Key("acme", "c"), json.loads(body), where="test", now="2026-01-01T00:00:00Z", new_id="1"
    ).type
    assert [conversation for conversation, _ in json.loads(Path(single.texts).read_text())[:2]] == [
        "conversation-0000000",
        "conversation-0000001",
    ]


@pytest.fixture
async def server() -> AsyncIterator[tuple[str, list[bytes]]]:
    """A server that answers every request with 200 and the request's body, and remembers the first
    line of each.
    """
    asked: list[bytes] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                asked.append(head.partition(b"\r\n")[0])
                size = next(
                    (
                        int(line[15:])
                        for line in head.split(b"\r\n")
                        if line.startswith(b"Content-Length:")
                    ),
                    0,
                )
                body = await reader.readexactly(size)
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size + body)
        except asyncio.IncompleteReadError:
            writer.close()

    running = await asyncio.start_server(serve, "127.0.0.1", 0)
    yield f"127.0.0.1:{running.sockets[0].getsockname()[1]}", asked
    running.close()


async def test_callers_ask_everything_once_and_a_status_that_is_not_expected_ends_the_run(
    server: tuple[str, list[bytes]],
) -> None:
    address, asked = server
    requests = [raw("POST", f"/{i}", {}, "é" * i) for i in range(50)]
    assert len(await call_all(address, iter(requests), 200, 4)) == 50
    assert sorted(asked) == sorted(b"POST /%d HTTP/1.1" % i for i in range(50))
    with pytest.raises(RuntimeError, match="the server answered"):
        await call_all(address, iter(requests), 202, 4)


async def test_an_asker_keeps_its_connection_and_gives_back_what_was_answered(
    server: tuple[str, list[bytes]],
) -> None:
    asker = Caller(server[0], "Bearer key")
    assert await asker.ask("POST", "/a", {"text": "é"}, If_Match='"1"') == (
        200,
        b'{"text": "\\u00e9"}',
    )
    assert await asker.ask("GET", "/b") == (200, b"")
    asker.close()
    assert server[1] == [b"POST /a HTTP/1.1", b"GET /b HTTP/1.1"]


def test_requests_in_a_file_are_the_ones_that_were_kept(tmp_path: Path) -> None:
    name = keep(tmp_path / "r.json", [("POST", "/a", {"X": "1"}, "é")])
    assert (
        raw(*json.loads(Path(name).read_text())[0])
        == b"POST /a HTTP/1.1\r\nHost: gateway\r\nX: 1\r\nContent-Length: 2\r\n\r\n\xc3\xa9"
    )


async def test_a_caller_of_the_mix_asks_for_every_route_within_some_turns_and_any_error_ends_the_run() -> (
    None
):
    class Answering(Caller):
        async def ask(
            self, method: str, path: str, body: Any = None, **headers: str
        ) -> tuple[int, bytes]:
            known = {
                "turn_id": "t",
                "fencing_token": 1,
                "position": "0-1",
                "render_digest": "d",
                "tokens": 1,
                "id": "r",
                "next_before": "c",
            }
            return (500 if path.endswith("broken/turns") else 200), json.dumps(known).encode()

        async def join(self, path: str, until: bytes) -> int:
            return 200

    took: dict[str, list[float]] = {}
    texts = iter({"content": str(i)} for i in range(10_000))
    talk = Talk(Answering("h:1", "Bearer key"), 3, "talk", texts, took)
    for _ in range(6):
        await talk.play()
    said = {route.partition(",")[0] for route in took}
    assert len(took) == 32 and said >= {
        "POST turns",
        "GET context",
        "GET stream",
        "POST renders",
        "DELETE conversation",
        "GET metrics",
    }
    with pytest.raises(RuntimeError, match="POST turns answered 500"):
        await Talk(Answering("h:1", "Bearer key"), 0, "broken", texts, took).play()
