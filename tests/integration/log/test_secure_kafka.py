"""Kafka with TLS and every login that is supported: what logs in works whole, what does not is
explained.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import msgspec
import pytest
from aiohttp import BasicAuth, web
from aiohttp.test_utils import TestServer
from faust.transport.drivers.aiokafka import credentials_to_aiokafka_auth

from projections.errors import InvalidSettings, KafkaUnavailable, WaitTimedOut
from streams.log.clients import admin_client, make_producer
from streams.log.login import connection, why_refused
from streams.log.topics import create_topics
from streams.maintenance.verify import verify
from streams.settings.settings import Settings
from streams.worker import create_app
from tests.support.certificates import Authority
from tests.support.commands import COMMAND, clean_env, cli, ok
from tests.support.generations import open_generation
from tests.support.secure_kafka import (
    PASSWORD,
    USER,
    WAYS,
    Platform,
    SecureKafka,
    alter_user,
    set_password,
    ways,
)
from tests.support.worker import until
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.embedded.process import GuardedProcess
from threadfold.embedded.stack import EmbeddedStack
from threadfold.service.append_result import Appended
from threadfold.service.conversations import ConversationService

pytestmark = pytest.mark.long


@pytest.fixture(scope="module")
def platform(stack: EmbeddedStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Platform]:
    folder = tmp_path_factory.mktemp("secure")
    authority = Authority(folder / "authority")
    kafka = SecureKafka(folder / "kafka", authority)
    kafka.start()
    try:
        for bits in (256, 512):
            set_password(kafka, USER, PASSWORD, bits)
        yield Platform(kafka, stack.redis, authority, folder)
    finally:
        kafka.stop()


@pytest.mark.parametrize("way", WAYS)
async def test_every_way_in_creates_topics_writes_and_is_called_well_by_doctor(
    platform: Platform, way: str
) -> None:
    settings = ways(platform)[way]
    await create_topics(settings)
    async with make_producer(settings) as producer:
        await producer.send_and_wait(settings.topic("control"), b"1", b"nothing", partition=0)
    assert await why_refused(settings, settings.kafka) is None
    # Faust makes its clients of the same arguments.
    found = credentials_to_aiokafka_auth(create_app(settings).conf.broker_credentials)
    mine = connection(settings)
    assert {name: value for name, value in found.items() if isinstance(value, str)} == {
        name: value
        for name, value in mine.items()
        if isinstance(value, str) and name != "bootstrap_servers"
    }
    assert bool(found.get("ssl_context")) == settings.kafka_tls
    assert found.keys() | {"bootstrap_servers"} >= mine.keys()


def worker_process(settings: Settings, folder: Path, **env: Path) -> GuardedProcess:
    """A worker that has started."""
    folder.mkdir(exist_ok=True)
    write_config(folder / CONFIG_FILE, settings)
    found = {name: str(path) for name, path in env.items()}
    process = GuardedProcess(
        [*COMMAND, "worker"],
        env=clean_env({"THREADFOLD_CONFIG": str(folder / CONFIG_FILE), **found}),
        log=folder / "log",
    )
    process.start()
    return process


async def test_a_worker_folds_what_a_gateway_appends_by_scram_over_tls(
    platform: Platform, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(
        ways(platform)["SCRAM-SHA-512"],
        topic_prefix="secure-whole",
        group="secure-whole",
        append_timeout=15.0,
    )
    await create_topics(settings)
    await open_generation(settings, {}, acme=None)
    process = worker_process(settings, tmp_path)
    try:
        async with ConversationService(settings) as backend:
            flat = {"type": "message", "role": "user", "content": "hello"}
            sent = await backend.append("acme", [("c", flat)])

            async def applied() -> bool:
                with suppress(WaitTimedOut):  # its worker has only begun to start
                    (one,) = await backend.wait_applied("acme", "c", sent)
                    return bool(one.status == "applied")
                return False

            await until(applied)

        async def assigned() -> bool:
            async with admin_client(settings) as admin:
                (answer,) = await admin.describe_consumer_groups([f"{settings.group}.agents"])
            return answer.groups[0][2] == "Stable"

        await until(assigned, what="Faust's consumer has its partitions")
    finally:
        process.stop(20.0)


class Traffic:
    """Appends without an end, by whichever service it is given, every ``pause`` seconds. An append
    that fails ends it; where it ``repeats``, what is answered 503 is sent again with the same id.
    """

    def __init__(
        self, service: ConversationService, *, pause: float = 0.02, repeats: bool = False
    ) -> None:
        self.service = service
        self._pause = pause
        self._repeats = repeats
        self.sent: list[tuple[str, Appended]] = []
        self._ends = False
        self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while not self._ends:
            number = len(self.sent)
            name, text = f"c{number % 5}", f"number {number}"
            said = {"type": "message", "role": "user", "content": text, "id": f"{number}"}
            try:
                (appended,) = await self.service.append("acme", [(name, said)])
                self.sent.append((name, appended))
            except KafkaUnavailable:
                if not self._repeats:
                    raise
            await asyncio.sleep(self._pause)

    async def flows(self) -> None:
        """Wait until twenty more events are appended, and the last of them is applied."""
        enough = len(self.sent) + 20

        async def applied() -> bool:
            assert not self._task.done(), self._task.exception()
            if len(self.sent) < enough:
                return False
            name, last = self.sent[-1]
            with suppress(WaitTimedOut):
                (one,) = await self.service.wait_applied("acme", name, [last])
                # A repeat may find what its first attempt appended.
                return one.status == "applied" or (self._repeats and one.status == "duplicate")
            return False

        await until(applied, 60, "events that are appended and applied")

    async def stop(self) -> None:
        """End it after the append that is under way; raises what an append raised."""
        self._ends = True
        await self._task


async def test_one_user_takes_the_place_of_another_while_events_flow_and_nothing_is_lost(
    platform: Platform, tmp_path: Path
) -> None:
    first = msgspec.structs.replace(
        ways(platform)["SCRAM-SHA-512"],
        topic_prefix="secure-users",
        group="secure-users",
        partitions=2,
        append_timeout=15.0,
    )
    second = msgspec.structs.replace(first, kafka_user="ben", kafka_password="battery staple")

    async def change(call: Callable[..., None], *arguments: str) -> None:
        await asyncio.to_thread(call, platform.kafka, *arguments)

    await change(set_password, first.kafka_user, first.kafka_password)
    await create_topics(first)
    await open_generation(first, {}, acme=None)
    workers = [worker_process(first, tmp_path / "first")]
    before, after = AsyncExitStack(), AsyncExitStack()
    traffic = Traffic(await before.enter_async_context(ConversationService(first)))
    try:
        await traffic.flows()
        # A second user: both are valid while services are restarted one by one.
        await change(set_password, second.kafka_user, second.kafka_password)
        traffic.service = await after.enter_async_context(ConversationService(second))
        await traffic.flows()
        await before.aclose()
        workers.append(worker_process(second, tmp_path / "second"))
        workers[0].stop(20.0)
        await traffic.flows()
        await change(alter_user, first.kafka_user, "--delete-config", "SCRAM-SHA-512")
        assert await why_refused(first, first.kafka)
        await traffic.flows()
        await traffic.stop()
        async with ConversationService(second) as service:
            await check_all_there(service, traffic.sent)
    finally:
        await before.aclose()
        await after.aclose()
        for process in workers:
            process.stop(20.0)
        await change(set_password, first.kafka_user, first.kafka_password)


@pytest.mark.timeout(600)
async def test_a_user_gets_another_password_in_a_file_while_connections_break_and_nothing_is_lost(
    platform: Platform, tmp_path: Path
) -> None:
    user, file = "carl", tmp_path / "password"
    file.write_text("first password\n")
    await asyncio.to_thread(set_password, platform.kafka, user, "first password")
    read = Settings.load(
        {"THREADFOLD_KAFKA_PASSWORD_FILE": str(file), "THREADFOLD_KAFKA_USER": user}
    )
    settings = platform.settings(
        "SHORT",
        topic_prefix="secure-password",
        group="secure-password",
        kafka_mechanism="SCRAM-SHA-512",
        kafka_user=user,
        kafka_password=read.kafka_password,
        append_timeout=15.0,
    )
    await create_topics(settings)
    await open_generation(settings, {}, acme=None)
    process = worker_process(settings, tmp_path / "worker", THREADFOLD_KAFKA_PASSWORD_FILE=file)

    async def logs_in() -> bool:
        return await why_refused(settings, settings.kafka) is None

    try:
        async with ConversationService(settings) as service:
            # Twenty events take several lives of a connection.
            traffic = Traffic(service, pause=0.1, repeats=True)
            await traffic.flows()
            await asyncio.to_thread(set_password, platform.kafka, user, "another password")
            file.write_text("another password\n")
            await until(logs_in, what="a login with the file's password")
            await traffic.flows()
            await traffic.stop()
            await check_all_there(service, traffic.sent)
    finally:
        process.stop(20.0)


async def check_all_there(
    service: ConversationService, sent: Sequence[tuple[str, Appended]]
) -> None:
    """Each event is in the window of its conversation once, in the order of the appends."""
    said: dict[str, list[str]] = {}
    last: dict[str, Appended] = {}
    for number, (name, appended) in enumerate(sent):
        said.setdefault(name, []).append(f"number {number}")
        last[name] = appended

    async def applied() -> bool:
        with suppress(WaitTimedOut):
            for name, appended in last.items():
                await service.wait_applied("acme", name, [appended])
            return True
        return False

    await until(applied, 60, "the last events that are applied")
    for name, texts in said.items():
        document = json.loads(await service.context("acme", name))
        assert [one["content"] for one in document["messages"]] == texts
    generation = service.control.state.live_generation
    rules = service.control.state.rules(generation)
    report = await verify(service.log, service.store, generation, rules)
    assert (report.verified, report.differing) == (len(said), [])


@pytest.mark.parametrize(
    ("listener", "changes", "why"),
    [
        ("TLS", {"kafka_tls": False}, "it speaks TLS there: set kafka_tls = true"),
        ("TLS", {"kafka_tls": True}, "its certificate is refused"),
        ("MUTUAL", {}, "client certificate: set kafka_certificate and kafka_private_key"),
        ("OPEN", {"kafka_tls": True}, "it does not speak TLS there"),
        ("OPEN", {}, "if it wants a login, set kafka_mechanism, kafka_user"),
        ("SCRAM", {}, "if it wants a login, set kafka_mechanism, kafka_user"),
        ("PLAIN", {"kafka_user": USER, "kafka_password": "no"}, "it refuses the login as ann by"),
        (
            "SCRAM",
            {"kafka_user": USER, "kafka_password": "no", "kafka_mechanism": "SCRAM-SHA-512"},
            "it refuses the login as ann by SASL/SCRAM-SHA-512 over TLS",
        ),
        (
            "SCRAM",
            {"kafka_user": USER, "kafka_password": PASSWORD},
            "it does not accept kafka_mechanism PLAIN",
        ),
    ],
)
async def test_what_is_refused_is_explained(
    platform: Platform, listener: str, changes: dict[str, Any], why: str
) -> None:
    settings = platform.settings(listener, **changes)
    found = await why_refused(settings, settings.kafka)
    assert found is not None and why in found
    with pytest.raises(KafkaUnavailable):
        async with admin_client(settings):
            raise AssertionError("nobody is let in")


async def test_a_token_that_has_ended_is_refused_and_a_new_one_in_the_file_is_taken(
    platform: Platform,
) -> None:
    token = platform.folder / "changing"
    token.write_text(platform.token(-60))
    settings = platform.settings(
        "BEARER", kafka_mechanism="OAUTHBEARER", kafka_token_file=str(token)
    )
    found = await why_refused(settings, settings.kafka)
    assert found is not None and "it refuses the login by SASL/OAUTHBEARER" in found
    token.write_text(platform.token())
    assert await why_refused(settings, settings.kafka) is None
    token.unlink()
    found = await why_refused(settings, settings.kafka)
    assert found is not None and "kafka_token_file cannot be read" in found


async def test_a_token_is_got_for_client_credentials_and_used_until_shortly_before_its_end(
    platform: Platform,
) -> None:
    asked: list[dict[str, str]] = []

    async def give(request: web.Request) -> web.Response:
        login = BasicAuth.decode(request.headers["Authorization"])
        if login.password != PASSWORD:
            return web.Response(status=401)
        asked.append({"user": login.login, **(await request.post())})  # type: ignore[dict-item]
        return web.json_response({"access_token": platform.token(), "expires_in": 600})

    app = web.Application()
    app.router.add_post("/token", give)
    async with TestServer(app) as issuer:
        settings = platform.settings(
            "BEARER",
            kafka_mechanism="OAUTHBEARER",
            kafka_token_url=str(issuer.make_url("/token")),
            kafka_token_scope="kafka",
            kafka_user=USER,
            kafka_password=PASSWORD,
        )
        await create_topics(settings)
        asked.clear()
        async with make_producer(settings) as producer:
            await producer.send_and_wait(settings.topic("control"), b"1", b"nothing", partition=0)
        assert asked == [{"user": USER, "grant_type": "client_credentials", "scope": "kafka"}]
        wrong = msgspec.structs.replace(settings, kafka_password="guessed")
        found = await why_refused(wrong, wrong.kafka)
    assert found is not None and "no token from kafka_token_url: " in found and "401" in found


def test_files_of_tls_that_cannot_be_used_are_named(platform: Platform) -> None:
    certificate, _ = platform.authority.issue("one")
    _, key = platform.authority.issue("two")
    settings = platform.settings(
        "MUTUAL", kafka_certificate=str(certificate), kafka_private_key=str(key)
    )
    with pytest.raises(InvalidSettings, match="'kafka_certificate' and 'kafka_private_key'"):
        make_producer(settings)
    missing = platform.settings("TLS", kafka_tls=True, kafka_ca="/nowhere/ca.pem")
    with pytest.raises(InvalidSettings, match=r"'kafka_ca': /nowhere/ca\.pem"):
        make_producer(missing)


async def test_doctor_says_how_it_logged_in_what_ends_soon_and_why_it_was_refused(
    platform: Platform, tmp_path: Path
) -> None:
    who = {"kafka_user": USER, "kafka_password": PASSWORD, "kafka_mechanism": "SCRAM-SHA-512"}
    certificate, key = platform.authority.issue("soon", days=3)
    settings = platform.settings(
        "SCRAM", **who, kafka_certificate=str(certificate), kafka_private_key=str(key)
    )
    (tmp_path / "well").mkdir()
    write_config(tmp_path / "well" / CONFIG_FILE, settings)
    await ok("topics", "create", "--data", tmp_path / "well")
    ran = await cli("doctor", "--data", tmp_path / "well")
    assert "logged in as ann by SASL/SCRAM-SHA-512 over TLS" in ran.out
    assert "wrong certificates: kafka_certificate expires in " in ran.out
    assert "ok    certificates: kafka_ca expires in " in ran.out
    assert PASSWORD not in ran.out + ran.err

    (tmp_path / "ill").mkdir()
    write_config(
        tmp_path / "ill" / CONFIG_FILE, platform.settings("SCRAM", **who | {"kafka_password": "x"})
    )
    ran = await cli("doctor", "--data", tmp_path / "ill")
    assert ran.code == 2
    assert f"wrong kafka: {settings.kafka}: it refuses the login as ann" in ran.out
