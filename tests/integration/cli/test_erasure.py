"""``erase`` and ``keys`` as a user runs them."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import msgspec
import pytest

from projections.errors import InvalidSettings
from streams.encryption.master_keys import master_keys_of
from streams.settings.settings import Settings
from tests.support.commands import cli, ok
from tests.support.grep import raw_records
from tests.support.worker import running_worker
from threadfold.cli.common import CONFIG_FILE
from threadfold.cli.configuration import write_config
from threadfold.cli.up import master_key_file

ENCRYPTED = (
    "encryption = true\nworking_budget = 400\nkeep_recent_tokens = 100\nmin_messages ="
    " 4\nsummary_max_tokens = 150\n"
)
SAID = "".join(
    f'{{"role": "{("user", "assistant")[i % 2]}", "content": "the marmalade is in the attic, {i}:'
    f' {"x y " * 40}"}}\n'
    for i in range(16)
)


async def test_a_conversation_is_sealed_summarised_rotated_and_erased_by_command(
    settings: Settings, tmp_path: Path
) -> None:
    master, policy = tmp_path / "master.keys", tmp_path / "policy.toml"
    policy.write_text(ENCRYPTED)
    line = (await ok("keys", "new-master", "--id", "first")).out
    assert line.startswith("first:") and line.count("\n") == 1
    master.write_text(line)
    made = msgspec.structs.replace(settings, master_keys_file=str(master))
    write_config(tmp_path / CONFIG_FILE, made)
    at = ("--data", tmp_path)
    async with running_worker(made) as runtime:
        await ok("tenants", "add", "vault", "--policy", policy, *at)
        await ok("append", "vault", "c1", "-", *at, text=SAID)
        await ok(
            "append",
            "vault",
            "c2",
            "-",
            *at,
            text='{"type": "conversation.opened", "user": "ann"}\n',
        )

        async def summaries() -> list[dict[str, object]]:
            return [
                json.loads(found)
                for found in (await ok("summaries", "--tenant", "vault", *at)).lines
            ]

        while not (found := await summaries()):
            pass  # each look is a process of its own
        assert "marmalade" in json.dumps(found)
        assert not any(
            b"marmalade" in (value or b"") for _, value in await raw_records(made, "summaries")
        )
        assert "marmalade" in (await ok("history", "vault", "c1", *at)).out
        assert (await ok("verify", "--all", *at)).lines[-1].endswith("differing: 0")

        second = (await ok("keys", "new-master")).out
        master.write_text(second + line)
        assert (await ok("keys", "rotate", *at)).out == "rotated: 2\n"
        assert (await ok("keys", "rotate", *at)).out == "rotated: 0\n"
        # Whoever runs with the old file alone is told, and is told nothing of the keys.
        master.write_text(line)
        refused = await cli("history", "vault", "c1", *at)
        assert refused.code == 2
        assert "is wrapped by master key" in refused.said
        assert line.partition(":")[2].strip() not in refused.err
        master.write_text(second + line)
        runtime.keys.masters = master_keys_of(made)

        receipt = json.loads((await ok("erase", "vault", "c1", *at)).out)
        assert (receipt["conversation"], receipt["log"]) == ("c1", "opaque")
        assert json.loads((await ok("erase", "vault", "c1", *at)).out) == receipt
        (of_user,) = (await ok("erase", "vault", "--user", "ann", *at)).lines
        assert json.loads(of_user)["conversation"] == "c2"
        for args, code, said in (
            (("erase", "vault", "unknown"), 1, "not known"),
            (("erase", "vault", "--user", "nobody"), 1, "not known"),
            (("erase", "vault"), 2, "give a conversation"),
            (("context", "vault", "c1"), 1, "was erased"),
        ):
            ran = await cli(*args, *at)
            assert ran.code == code, ran.err
            assert said in ran.said
        assert (await ok("verify", "--all", *at)).lines[-1].endswith("differing: 0")
        assert "marmalade" not in (await ok("summaries", "--tenant", "vault", *at)).out


def test_up_makes_a_master_key_once_for_its_owners_eyes_only(tmp_path: Path) -> None:
    path = master_key_file(tmp_path)
    made = path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert len(master_keys_of(Settings.load(env={}, master_keys_file=str(path))).ids) == 1
    assert master_key_file(tmp_path) == path
    assert path.read_text() == made


def test_up_makes_no_other_master_keys_where_those_of_its_folder_are_missing(
    tmp_path: Path,
) -> None:
    path = master_key_file(tmp_path)
    write_config(tmp_path / CONFIG_FILE, Settings.load(env={}, master_keys_file=str(path)))
    path.unlink()
    with pytest.raises(InvalidSettings, match="are missing: put the file back"):
        master_key_file(tmp_path)
    assert not path.exists()


@pytest.mark.long
async def test_a_wrong_master_key_file_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "keys").write_text("a:c2VjcmV0IHNlY3JldA==\n")
    env = {
        "THREADFOLD_KAFKA": "127.0.0.1:1",
        "THREADFOLD_REDIS": "redis://127.0.0.1:1",
        "THREADFOLD_MASTER_KEYS_FILE": str(tmp_path / "keys"),
    }
    for command in ("worker", "gateway"):
        ran = await cli(command, env=env)
        assert ran.code == 2
        assert "entry 1" in ran.said
        assert "c2VjcmV0" not in ran.err


@pytest.mark.parametrize("name", ["a b", "a:b", ""])
async def test_an_id_that_is_none_is_refused(name: str) -> None:
    ran = await cli("keys", "new-master", "--id", name)
    assert (ran.code, ran.out) == (2, "") if name else ran.code == 0
