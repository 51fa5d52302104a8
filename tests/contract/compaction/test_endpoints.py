"""The compactor with a model behind a real HTTP server: whatever the server does, a request ends in
a summary the window takes, in time.
"""

from __future__ import annotations

import asyncio
import json
import logging
import time
from typing import Any

import pytest

from projections.names import Position
from projections.policy.policy import Rules
from streams.compaction.compactor import Compactor
from streams.compaction.dispatcher import Dispatcher
from streams.compaction.requests import CompactionRequest, request_for
from streams.compaction.summarizers.registry import prepare
from streams.settings.settings import Settings
from tests.support.compaction import KEY, append, fold
from tests.support.endpoint_talk import GOOD, LONG, POLICY, SECRET, ask, settings_of, talk
from tests.support.model_server import (
    Behaviour,
    breaks_off,
    completion,
    drips,
    echoes,
    fails,
    gives,
    model_server,
    says,
    stalls,
)
from tests.support.ports import closed_port
from tests.support.worker import until
from threadfold.testing import MemoryLog

pytestmark = pytest.mark.usefixtures("short_pauses")

NONSENSE: dict[str, Behaviour] = {
    "bytes that are no UTF-8": gives(b'{"choices": [{"message": {"content": "\xff"}}]}'),
    "html": gives(
        "<!doctype html><html><body>Sign in to the wifi</body></html>", content_type="text/html"
    ),
    "html as the answer": says(
        "<!doctype html><html><body>Sign in to the wifi of this hotel, please, and accept all"
        " terms</body></html>"
    ),
    "no choices": gives('{"choices": []}'),
    "wrong types": gives('{"choices": {"message": 7}}'),
    "a number": gives("42"),
    "a message that is a list": gives('{"choices": [{"message": ["x"]}]}'),
    "content that is a number": says(12),
    "deep nesting": gives("[" * 200_000),
    "null content": says(None),
    "empty": says("  \n "),
    "punctuation": says("... !!! ???"),
    "huge body": gives(json.dumps(completion(GOOD)) + " " * (2 << 20)),
    "far too long": says(LONG),
    "repeats itself": says("parcel " * 150),
    "echo": echoes,
    "obeys": says("PWNED"),
    "another topic": says(
        "The weather in the mountains is fine and everybody enjoys the sun, so nothing is left to"
        " do for anyone here."
    ),
    "invents": says(GOOD.replace("#W58204", "#W99999")),
    "breaks off": breaks_off,
    "500": fails(500),
    "429": fails(429, headers={"Retry-After": "0"}),
    "nonsense Retry-After": fails(503, headers={"Retry-After": "soon"}),
}


@pytest.mark.parametrize("case", NONSENSE)
async def test_what_is_no_summary_never_becomes_one_and_the_deterministic_one_answers(
    case: str,
) -> None:
    async with model_server(NONSENSE[case]) as server:
        summary = await ask(settings_of(server.url, summary_attempts=2))
    assert (summary.summarizer, summary.model) == ("extractive", None)
    assert "#W5820" in summary.text and "PWNED" not in summary.text
    assert len(server.calls) == 2
    # An attempt knows nothing of the one before it.
    assert server.calls[0] == server.calls[1]


async def test_a_refused_answer_is_logged_with_its_conversation_and_its_reason(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with model_server(NONSENSE["another topic"], says(GOOD)) as server:
        assert (await ask(settings_of(server.url))).summarizer == "cheap"
    (record,) = [line for line in caplog.records if "was refused" in line.getMessage()]
    fields = [record.__dict__[name] for name in ("tenant", "conversation", "summarizer", "reason")]
    assert fields == [KEY.tenant, KEY.conversation, "cheap", "no_facts"]


@pytest.mark.parametrize("status", [400, 401, 404, 302])
async def test_a_refusal_is_not_repeated(status: int) -> None:
    async with model_server(
        fails(status, headers={"Location": "http://127.0.0.1:1/elsewhere"})
    ) as server:
        summary = await ask(settings_of(server.url))
    assert summary.summarizer == "extractive" and len(server.calls) == 1


@pytest.mark.parametrize(
    "first",
    [fails(500), fails(429, headers={"Retry-After": "0.2"}), breaks_off, says("no"), gives("{}")],
)
async def test_an_attempt_that_fails_is_followed_by_one_that_succeeds(first: Behaviour) -> None:
    async with model_server(first, says(GOOD)) as server:
        summary = await ask(settings_of(server.url))
    assert summary.summarizer == "cheap" and len(server.calls) == 2


async def test_a_paid_answer_that_is_thrown_away_is_in_the_cost_also_of_the_last_resort() -> None:
    usage = {"prompt_tokens": 1_000, "completion_tokens": 0}
    async with model_server(says("no", usage=usage), says(GOOD, usage=usage)) as server:
        assert (await ask(settings_of(server.url))).cost == pytest.approx(0.002)
    async with model_server(says("no", usage=usage)) as server:
        summary = await ask(settings_of(server.url))
    assert (summary.summarizer, summary.cost) == ("extractive", pytest.approx(0.003))


async def test_the_endpoint_is_left_alone_for_as_long_as_it_asks() -> None:
    async with model_server(fails(429, headers={"Retry-After": "0.6"}), says(GOOD)) as server:
        start = time.monotonic()
        await ask(settings_of(server.url))
        assert time.monotonic() - start >= 0.6
    async with model_server(fails(429, headers={"Retry-After": "600"}), says(GOOD)) as server:
        start = time.monotonic()
        summary = await ask(settings_of(server.url))
        assert time.monotonic() - start < 2
    assert summary.summarizer == "extractive" and len(server.calls) == 1


@pytest.mark.parametrize("behaviour", [stalls, drips])
async def test_a_stalled_endpoint_leaves_the_last_resort_its_time(behaviour: Behaviour) -> None:
    async with model_server(behaviour) as server:
        # The last resort has a fifth of it: a second, which is enough on a busy machine too.
        settings = settings_of(server.url, summary_time_cap=5)
        prepare()
        async with asyncio.timeout(settings.summary_time_cap):
            summary = await ask(settings)
    assert summary.summarizer == "extractive" and len(server.calls) == 1


async def test_a_refusal_is_one_whatever_its_body_is() -> None:
    async with model_server(gives(b'{"error": {"code": "\xff"}}', status=401)) as server:
        assert (await ask(settings_of(server.url))).summarizer == "extractive"
    assert len(server.calls) == 1


@pytest.mark.parametrize("value", [None, b"", b"{", b'{"request_id": "\xff"}', b"[" * 100_000])
async def test_a_request_that_cannot_be_read_is_passed_over(value: bytes | None) -> None:
    """An exception here would end the agent, and with it all requests that come after."""
    compactor, done = Compactor(Settings.load(env={}), MemoryLog(1)), asyncio.Event()
    dispatcher = Dispatcher(compactor, {})
    await dispatcher.take(value, done.set)
    await asyncio.wait_for(done.wait(), 1.0)
    await dispatcher.close()
    await compactor.close()


async def test_an_attempt_has_its_own_time() -> None:
    async with model_server(stalls, says(GOOD)) as server:
        summary = await ask(settings_of(server.url, endpoint={"timeout": 0.3}))
    assert summary.summarizer == "cheap" and len(server.calls) == 2


async def test_nobody_listening_is_a_failure_like_any_other() -> None:
    assert (
        await ask(settings_of(f"http://127.0.0.1:{closed_port()}/v1"))
    ).summarizer == "extractive"


async def test_a_dead_endpoint_is_not_called_again_until_its_rest_is_over() -> None:
    async with model_server(fails(500)) as server:
        compactor = Compactor(
            settings_of(server.url, summary_breaker_failures=4, summary_breaker_seconds=0.4),
            MemoryLog(3),
        )
        request = await _request(compactor)
        for _ in range(6):
            await compactor.answer(request)
        assert len(server.calls) == 4
        other = asyncio.Event()

        async def trial(*call: Any) -> Any:
            await other.wait()
            return await says(GOOD)(*call)

        async def is_tried() -> bool:
            return len(server.calls) == 5

        async def made_by(position: Position) -> str:
            raw = (await compactor.log.read([position]))[position]
            found: str = json.loads(raw.value or b"")["data"]["summarizer"]
            return found

        server.behaviours = [trial]
        await asyncio.sleep(0.45)
        trying = asyncio.create_task(compactor.answer(request))
        await until(is_tried)
        # One trial at a time: the other request of that moment does not wait for it.
        assert await made_by(await compactor.answer(request)) == "extractive"
        assert len(server.calls) == 5
        other.set()
        assert await made_by(await trying) == "cheap"
        await compactor.answer(request)
        assert len(server.calls) == 6
        await compactor.close()


async def _request(compactor: Compactor) -> CompactionRequest:
    assert isinstance(compactor.log, MemoryLog)
    await append(compactor.log, talk())
    request = request_for(await fold(compactor.log, Rules(POLICY)), 1)
    assert request is not None
    return request


async def test_a_trial_that_is_cancelled_lets_the_next_request_try() -> None:
    async with model_server(fails(500), stalls, says(GOOD)) as server:
        settings = settings_of(server.url, summary_breaker_failures=1, summary_breaker_seconds=0.05)
        compactor = Compactor(settings, MemoryLog(3))
        request = await _request(compactor)
        await compactor.answer(request)
        await asyncio.sleep(0.06)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.3):
                await compactor.answer(request)
        position = await compactor.answer(request)
        raw = (await compactor.log.read([position]))[position]
        assert (
            json.loads(raw.value or b"")["data"]["summarizer"] == "cheap" and len(server.calls) == 3
        )
        await compactor.close()


async def test_no_message_carries_the_key_or_what_was_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.DEBUG, logger="streams"):
        for behaviour in (
            fails(401, code=SECRET),
            fails(500, code="overloaded"),
            says("no"),
            breaks_off,
            gives("{}"),
        ):
            async with model_server(behaviour) as server:
                settings = settings_of(server.url)
                await ask(settings)
                assert SECRET not in repr(settings)
    said = "\n".join(record.getMessage() + str(record.exc_info) for record in caplog.records)
    assert (
        "answered 500 (overloaded)" in said
        and "answered 401: check its base_url, model and key" in said
    )
    assert SECRET not in said and "Mia" not in said and "secret" not in said
