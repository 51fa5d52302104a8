"""Records that nobody can read, on every topic of a real Kafka: what runs goes on, what starts
starts, and operators' commands answer.
"""

from __future__ import annotations

import base64
from pathlib import Path

import msgspec

from streams.encryption.master_keys import new_master
from streams.settings.settings import Settings
from tests.support.command_folder import folder
from tests.support.commands import cli, ok
from tests.support.platform import Platform, requests_to, running_platform
from tests.support.raw_records import put_raw
from tests.support.worker import until

POLICY = {"encryption": True, "memory_auto": "off"}
NESTED = b"[" * 2_000 + b"]" * 2_000
VALUES = (b'{"name":"evil","policy":{"x":' + NESTED + b"}}", b'{"position":"\xff","source":"\xff"}')
KEY = b"acme/" + b"zz/" + base64.urlsafe_b64encode(b"A" * 12)
RECORDS = {
    "control": b"tenant/evil",
    "keys": KEY,
    "memories": b"acme/~evil",
    "dead-letters": b"acme/zz",
    "summaries": b"acme/zz",
    "compactions": b"acme/zz",
    "renders": b"acme/zz",
    "snapshots": b"acme/zz",
    "events": b"acme/zz",
}


async def works(platform: Platform, name: str) -> None:
    """A new conversation is appended to, read and found; a memory is kept."""
    async with requests_to(platform) as http:
        said = [{"role": "user", "content": f"{name} is about kingfishers"}]
        answer = await http.post(f"/conversations/{name}/messages?wait=applied", json=said)
        answer.raise_for_status()
        shown = await http.get(f"/conversations/{name}/context")
        assert shown.json()["messages"][-1]["content"] == said[0]["content"]
        memory = {"user": "ann", "text": f"Ann saw kingfishers in {name}."}
        kept = await http.post("/memories?wait=applied", json=memory)
        kept.raise_for_status()

        async def found() -> bool:
            body = {"query": f"kingfishers in {name}", "user": "ann"}
            answer = await http.post("/memories/search", json=body)
            answer.raise_for_status()
            return any(name in one["text"] for one in answer.json()["results"])

        await until(found, 60, "the memory is found")


async def test_records_that_nobody_can_read_stop_nothing_neither_now_nor_after_a_restart(
    settings: Settings, tmp_path: Path
) -> None:
    settings = msgspec.structs.replace(settings, master_keys=new_master("first"))
    async with running_platform(settings, POLICY) as platform:
        await works(platform, "before")
        for topic, key in RECORDS.items():
            await put_raw(settings, topic, *((0, key, value) for value in VALUES))
        await works(platform, "beside")
    async with running_platform(settings, POLICY) as platform:
        await works(platform, "afterwards")
        data = folder(tmp_path, settings)
        env = {"THREADFOLD_MASTER_KEYS": str(settings.master_keys)}
        examined = await cli("doctor", "--data", data, env=env)
        assert not [line for line in examined.lines if line.startswith("wrong")], examined.out
        tenants = await ok("tenants", "list", "--data", data, env=env)
        assert "acme" in tenants.out and "evil" not in tenants.out
        await ok("dead-letters", "list", "--data", data, env=env)
        await ok("summaries", "--data", data, env=env)
        await ok("verify", "--all", "--deep", "--data", data, env=env)
