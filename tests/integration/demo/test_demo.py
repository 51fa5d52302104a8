"""``make demo`` as a process: the whole of it, small, on servers of its own."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.processes import until
from threadfold.embedded.stack import EmbeddedStack

COMMAND = [sys.executable, "-m", "threadfold.demo"]


def run_demo(env: dict[str, str], *options: str) -> subprocess.CompletedProcess[str]:
    """Runs in the temporary folder, so that nothing can hide in the checkout."""
    return subprocess.run(
        [*COMMAND, *options],
        env=env,
        cwd=env["TMPDIR"],
        capture_output=True,
        text=True,
        timeout=150,
    )


def check_output(out: str) -> None:
    same = re.search(r"^(\d+) of (\d+) windows byte-identical$", out, re.MULTILINE)
    assert same, out
    assert same[1] == same[2] == "8"
    compactions = re.search(
        r"compactions +([\d,]+) summaries in the log, ([\d,]+) accepted and received", out
    )
    assert compactions, out
    assert int(compactions[2].replace(",", "")) >= 8
    rates = [
        re.search(rf"^  {row} .* s \(([\d,]+) events/s\)$", out, re.MULTILINE)
        for row in ("events", "with summaries")
    ]
    assert rates[0] and rates[1], out
    applied, sustained = (int(rate[1].replace(",", "")) for rate in rates if rate)
    assert 0 < sustained <= applied, "summaries come after the events they cover"
    assert re.search(r"events/s [\d,]+, summaries included [\d,]+", out), out
    assert re.search(r"reads now: [1-8] of 8 windows answer `healing`", out), out
    for part in (
        r"learnt: The user lives in Lisbon\. \(said by the user in monday at \d-\d+\)",
        r"learnt: The user lives in Porto\. \(said by the user in friday at \d-\d+\)",
        r"recalled: .* The user lives in Porto\.",
        r"known at .*: The user lives in Lisbon\.",
        r"rebuilt from its topic: digest [0-9a-f]{16} as before",
        r"the conversations are erased: nothing is recalled",
    ):
        assert re.search(part, out), out


@pytest.fixture
def env(tmp_path: Path) -> dict[str, str]:
    """The environment without a configured stack, and with a temporary folder in which what is left
    behind would be seen.
    """
    named = ("THREADFOLD_KAFKA", "THREADFOLD_REDIS", "THREADFOLD_CONFIG", "THREADFOLD_POLICY")
    kept = {name: value for name, value in os.environ.items() if name not in named}
    return {**kept, "TMPDIR": str(tmp_path), "COLUMNS": "200"}


@pytest.mark.long
def test_a_quick_demo_keeps_every_promise_and_leaves_nothing_behind(
    env: dict[str, str], tmp_path: Path
) -> None:
    done = run_demo(env, "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    check_output(done.stdout)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.long
async def test_configured_servers_are_used_and_left_as_they_were(
    env: dict[str, str], stack: EmbeddedStack
) -> None:
    import redis.asyncio as aredis
    from aiokafka.admin import AIOKafkaAdminClient

    url = stack.redis.rpartition("/")[0] + "/15"
    redis = aredis.Redis.from_url(url)
    admin = AIOKafkaAdminClient(bootstrap_servers=stack.kafka)
    await admin.start()
    try:
        await redis.flushdb()
        await redis.set("somebody", "else's")
        topics = set(await admin.list_topics())
        env |= {
            "THREADFOLD_KAFKA": stack.kafka,
            "THREADFOLD_REDIS": url,
            "THREADFOLD_REPLICATION": "1",
            "THREADFOLD_MIN_ISR": "1",
        }
        done = await asyncio.to_thread(run_demo, env, "--quick")
        assert done.returncode == 0, done.stdout + done.stderr
        check_output(done.stdout)
        assert await redis.keys("*") == [b"somebody"]
        assert {t for t in await admin.list_topics() if t.startswith("threadfold-demo-")} <= topics
    finally:
        await redis.flushdb()
        await redis.aclose()
        await admin.close()


@pytest.mark.long
def test_an_interrupted_demo_stops_cleanly_and_leaves_nothing_behind(
    env: dict[str, str], tmp_path: Path
) -> None:
    out = tmp_path / "out.txt"
    with out.open("wb") as file:
        demo = subprocess.Popen(
            [*COMMAND, "--conversations", "20"], env=env, cwd=tmp_path, stdout=file, stderr=file
        )
    try:
        until(lambda: " applied " in out.read_text() or demo.poll() is not None, 90)
        assert demo.poll() is None, out.read_text()
        demo.send_signal(signal.SIGINT)
        assert demo.wait(60) == 130
    finally:
        if demo.poll() is None:
            demo.kill()
            demo.wait()
    printed = out.read_text()
    assert printed.endswith("demo: stopped\n")
    assert "Traceback" not in printed
    pids = [int(pid) for pid in re.findall(r"\(pid (\d+)\)", printed)]
    assert len(pids) == 2
    for pid in pids:
        with pytest.raises(ProcessLookupError):
            os.kill(pid, 0)
    assert list(tmp_path.iterdir()) == [out]


def test_a_wrong_size_is_one_clear_error(env: dict[str, str]) -> None:
    done = run_demo(env, "--conversations", "100000")
    assert done.returncode == 2
    assert done.stderr.startswith(
        "demo: --conversations 100000: the dataset has sessions for 1 to "
    )
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.long
def test_a_kept_demo_has_its_stack_where_up_looks_for_it(
    env: dict[str, str], tmp_path: Path
) -> None:
    kept = tmp_path / "kept"
    done = run_demo(env, "--quick", "--keep", str(kept))
    assert done.returncode == 0, done.stdout + done.stderr
    settings = {
        "THREADFOLD_PARTITIONS": "8",
        "THREADFOLD_REPLICATION": "1",
        "THREADFOLD_MIN_ISR": "1",
    }
    with EmbeddedStack(kept / "stack") as stack:
        reach = {
            **env,
            **settings,
            "THREADFOLD_KAFKA": stack.kafka,
            "THREADFOLD_REDIS": stack.redis,
        }
        verify = [sys.executable, "-m", "threadfold.cli", "verify", "--all", "--deep"]
        verified = subprocess.run(verify, env=reach, capture_output=True, text=True, timeout=60)
    assert verified.stdout.splitlines()[-1] == "verified: 11, differing: 0", verified.stderr
    assert (kept / "worker.log").stat().st_size > 0


def test_a_kept_folder_must_be_empty(env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "something").write_text("of mine")
    done = run_demo(env, "--quick", "--keep", str(tmp_path))
    assert done.returncode == 2
    assert "is not empty" in done.stderr
    assert (tmp_path / "something").read_text() == "of mine"
