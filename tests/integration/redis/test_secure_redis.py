"""Redis over TLS, with a client certificate, for a user whose rights an ACL lists. The embedded
server speaks no TLS itself, so it stands behind a front that does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from projections.errors import RedisUnavailable
from projections.redis.store import RedisStore
from streams.settings.settings import Settings
from tests.support.certificates import Authority
from tests.support.commands import cli
from tests.support.generations import open_generation
from tests.support.redis_servers import Server
from tests.support.tls_front import tls_front
from tests.support.worker import running_worker
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.cli.doctor import examine
from threadfold.embedded.ports import HOST
from threadfold.service.conversations import ConversationService

RIGHTS = "+@all -@dangerous +info +config|get +role"
"""What docs/security.md gives to a user."""


@dataclass
class Secure:
    """A TLS port, and what a client needs."""

    port: int
    authority: Authority

    def url(self, login: str = "ann:pw", **query: object) -> str:
        certificate, key = self.authority.issue("client")
        options = {
            "ssl_ca_certs": self.authority.ca,
            "ssl_certfile": certificate,
            "ssl_keyfile": key,
            **query,
        }
        text = "&".join(f"{name}={value}" for name, value in options.items() if value)
        return f"rediss://{login}@{HOST}:{self.port}/0?{text}"


@pytest.fixture
async def secure(settings: Settings, tmp_path: Path) -> AsyncIterator[Secure]:
    prefix = settings.topic_prefix
    server = Server(tmp_path / "redis", user=f"ann on >pw ~{prefix}:* &{prefix}:* {RIGHTS}")
    server.start()
    authority = Authority(tmp_path / "authority")
    try:
        server.ask("ACL", "SETUSER", "default", "-@all", "+ping")
        async with tls_front(authority, server.port, client=True) as port:
            yield Secure(port, authority)
    finally:
        server.stop()


@pytest.mark.long
async def test_a_conversation_is_folded_and_read_by_a_user_of_few_rights(
    settings: Settings, secure: Secure, tmp_path: Path
) -> None:
    made = msgspec.structs.replace(settings, redis=secure.url(), snapshot_events=5)
    await open_generation(made, {}, acme=None)
    async with running_worker(made), ConversationService(made) as backend:
        flat = {"type": "message", "role": "user", "content": "hello"}
        for _ in range(8):
            sent = await backend.append("acme", [("c", flat)])
        (applied,) = await backend.wait_applied("acme", "c", sent)
        assert applied.status == "applied"
        write_config(tmp_path / CONFIG_FILE, made)
        ran = await cli("doctor", "--data", tmp_path)
        assert "ok    redis: " in ran.out and "ok    certificates: redis_certificate" in ran.out
        ran = await cli("verify", "--data", tmp_path)
        assert ran.lines == ["verified: 1, differing: 0"]


async def said(settings: Settings, url: str, capsys: pytest.CaptureFixture[str]) -> str:
    """What doctor says of a Redis that it cannot use."""
    made = msgspec.structs.replace(settings, redis=url)
    assert (await examine(made)).exit_code == 2
    lines = capsys.readouterr().out.splitlines()
    (line,) = [line for line in lines if line.startswith("wrong redis: ")]
    return line


@pytest.mark.parametrize(
    ("login", "query", "why"),
    [
        ("ann:guessed", {}, "check the user and the password in its URL"),
        ("", {}, "give its user the rights"),
        ("ann:pw", {"ssl_ca_certs": None}, "name the authority that signed its certificate"),
        ("ann:pw", {"ssl_certfile": None, "ssl_keyfile": None}, "set ssl_certfile and ssl_keyfile"),
    ],
    ids=["a wrong password", "nobody", "an unknown authority", "no client certificate"],
)
async def test_others_are_refused_and_doctor_says_why(
    settings: Settings,
    secure: Secure,
    login: str,
    query: dict[str, object],
    why: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    store = RedisStore(secure.url(login, **query), settings.topic_prefix)
    try:
        with pytest.raises(RedisUnavailable):
            await store.ping()
    finally:
        await store.close()
    line = await said(settings, secure.url(login, **query), capsys)
    assert why in line and "guessed" not in line, line


@pytest.mark.long
async def test_doctor_says_that_tls_is_spoken_there_or_is_not(
    settings: Settings, secure: Secure, capsys: pytest.CaptureFixture[str]
) -> None:
    plain = f"redis://ann:pw@{HOST}:{secure.port}/0"
    assert "its URL begins with rediss" in await said(settings, plain, capsys)
    encrypted = settings.redis.replace("redis://", "rediss://")
    line = await said(settings, encrypted, capsys)
    assert line.endswith("if it does not speak TLS there, its URL begins with redis")


async def test_a_password_changes_while_both_are_valid(tmp_path: Path) -> None:
    server = Server(tmp_path / "redis", user="ann on >former ~t:* &t:* +@all")
    server.start()

    def store(password: str) -> RedisStore:
        return RedisStore(f"redis://ann:{password}@{server.place}/0", "t")

    former, later, late = store("former"), store("later"), store("former")
    try:
        server.ask("ACL", "SETUSER", "default", "on", "nopass", "~*", "&*", "+@all")
        assert await former.ping()
        with pytest.raises(RedisUnavailable):
            await later.ping()
        server.ask("ACL", "SETUSER", "ann", ">later")
        assert await former.ping() and await later.ping()
        server.ask("ACL", "SETUSER", "ann", "<former")
        assert await former.ping(), "a connection that is open stays open"
        assert await later.ping()
        with pytest.raises(RedisUnavailable, match=r"(?i)invalid username-password|wrongpass"):
            await late.ping()
    finally:
        for one in (former, later, late):
            await one.close()
        server.stop()
