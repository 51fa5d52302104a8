"""Policies that cannot be used are refused where they are given: at the start of a worker, or by the
command that reads them.
"""

from __future__ import annotations

import pytest

from projections.errors import InvalidPolicy
from streams.log.topics import create_topics
from streams.settings.settings import Settings
from streams.worker_parts import Runtime
from tests.conftest import fresh_settings
from tests.support.commands import cli, ok
from tests.support.generations import open_generation
from tests.support.pipeline import POLICY
from threadfold.embedded.stack import EmbeddedStack


@pytest.mark.parametrize(
    ("policy", "said"),
    [
        ('summarizer = "nowhere"', "'nowhere' is none of this deployment's summarisers"),
        (
            'reducers = [{ name = "compact_tool_results", replacement = "callable:gone" }]',
            "no 'callable:gone' is registered",
        ),
    ],
)
async def test_a_deployments_policy_that_names_what_is_not_there_is_refused_at_the_start(  # type: ignore[no-untyped-def]
    stack: EmbeddedStack, tmp_path, policy: str, said: str
) -> None:
    """Taken, it was found out by each new tenant's first append, which then answered 422."""
    file = tmp_path / "policy.toml"
    file.write_text(policy)
    made = fresh_settings(stack, policy=str(file))
    await create_topics(made)
    runtime = Runtime(made)
    with pytest.raises(InvalidPolicy, match=said):
        await runtime.start()
    await runtime.stop()


async def test_a_tenants_policy_file_is_checked_over_the_deployments_and_not_alone(
    settings: Settings, tmp_path
) -> None:  # type: ignore[no-untyped-def]
    await open_generation(settings, POLICY)
    file = tmp_path / "tenant.toml"
    env = {
        "THREADFOLD_KAFKA": settings.kafka,
        "THREADFOLD_REDIS": settings.redis,
        "THREADFOLD_TOPIC_PREFIX": settings.topic_prefix,
    }
    file.write_text(
        "model_window = 9000"
    )  # less than the default reserve_tokens, more than this deployment's
    assert (await ok("tenants", "add", "narrow", "--policy", file, env=env)).out.startswith("tf_")
    file.write_text("model_window = 100")
    ran = await cli("tenants", "add", "other", "--policy", file, env=env)
    assert (ran.code, ran.out) == (2, "")
    assert "reserve_tokens" in ran.said
