"""One real Kafka and Redis for the whole run; every test module gets topics, consumer groups and a
Redis database of its own.
"""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from streams.log.topics import create_topics
from streams.settings.settings import Settings
from tests.support import profiles
from tests.support.redis_cluster import RedisCluster
from tests.support.worker import until
from threadfold.embedded.stack import EmbeddedStack

SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"
_numbers = itertools.count(1)

# Programs that tests start import the client of this checkout, as the tests do themselves.
CLIENT = Path(__file__).resolve().parents[1] / "clients" / "python"
os.environ["PYTHONPATH"] = os.pathsep.join(
    filter(None, (os.environ.get("PYTHONPATH"), str(CLIENT)))
)

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A run in the background of a script ignores Ctrl-C, and so would every process the tests start
    # to interrupt it.
    signal.signal(signal.SIGINT, signal.default_int_handler)


# A broker of a test lives for minutes: the second compiler would take more time than it saves.
os.environ.setdefault("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1")

profiles.register()
ALL_LONG = re.compile(r"^pytestmark = .*\bpytest\.mark\.long\b", re.MULTILINE)
KINDS = ("chaos", "integration", "contract", "unit")


def _only_short(config: pytest.Config) -> bool:
    return bool(config.option.markexpr == "not long")


def pytest_configure(config: pytest.Config) -> None:
    """Load schemathesis, which takes seconds, for runs that may use it."""
    if not _only_short(config):
        config.pluginmanager.import_plugin("schemathesis.pytest.plugin")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not import a file whose tests are all long where none of them runs."""
    if not _only_short(config) or collection_path.suffix != ".py":
        return None
    return bool(ALL_LONG.search(collection_path.read_text())) or None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Long files first, so that no process has one left when the others have ended."""

    def kind(item: pytest.Item) -> int:
        folder = item.path.relative_to(Path(__file__).parent).parts[0]
        return KINDS.index(folder) if folder in KINDS else len(KINDS)

    items.sort(key=kind)


def _kafka_tasks() -> set[asyncio.Task[object]]:
    codes = {task: getattr(task.get_coro(), "cr_code", None) for task in asyncio.all_tasks()}
    return {task for task, code in codes.items() if code and "aiokafka" in code.co_filename}


@pytest.fixture(scope="module", autouse=True)
async def no_kafka_client_is_left() -> AsyncIterator[None]:
    """Fail a test file that leaves a client of Kafka behind: it would go on beside other tests."""
    before = _kafka_tasks()
    yield

    async def ended() -> bool:
        return _kafka_tasks() <= before

    try:
        await until(ended)
    except TimeoutError:
        left = "\n".join(str(task) for task in _kafka_tasks() - before)
        raise AssertionError(f"a client of Kafka was left behind:\n{left}") from None


@pytest.fixture(scope="session")
def stack() -> Iterator[EmbeddedStack]:
    """The configured Kafka and Redis, else embedded ones, started once."""
    with EmbeddedStack(
        kafka=os.environ.get("THREADFOLD_KAFKA"), redis=os.environ.get("THREADFOLD_REDIS")
    ) as running:
        yield running


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RedisCluster]:
    """Three masters, for tests that do them no harm."""
    with RedisCluster(tmp_path_factory.mktemp("redis-cluster")) as running:
        yield running


def fresh_settings(stack: EmbeddedStack, **overrides: object) -> Settings:
    """Settings with topics and a consumer group nobody else uses, and one of Redis' 16 databases in
    turn (flushed by `settings`).
    """
    number = next(_numbers)
    base = stack.redis.rpartition("/")[0]
    values: dict[str, object] = {
        "kafka": stack.kafka,
        "redis": f"{base}/{number % 16}",
        "topic_prefix": f"t{os.getpid()}x{number}",
        "group": f"g{os.getpid()}x{number}",
        "partitions": 4,
        "replication": 1,
        "min_isr": 1,
        **overrides,
    }
    return Settings.load(env={}, **values)


@pytest.fixture(scope="module")
async def settings(stack: EmbeddedStack) -> AsyncIterator[Settings]:
    """Fresh settings with their topics made and their Redis database empty."""
    import redis.asyncio as aredis

    made = fresh_settings(stack)
    client = aredis.Redis.from_url(made.redis)
    await client.flushdb()
    await client.aclose()
    await create_topics(made)
    yield made


@pytest.fixture(scope="session")
def airline() -> Path:
    """100 real agent runs; skipped where the file is not at hand (a generated counterpart is always
    tested).
    """
    path = SHARED_DATA / "airline.jsonl"
    if not path.exists():
        pytest.skip(
            "the shared data file airline.jsonl is not beside this checkout; its generated"
            " counterpart is tested"
        )
    return path
