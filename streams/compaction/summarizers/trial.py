"""A trial call of each endpoint that makes summaries: does it answer now?"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from projections.errors import InvalidSettings
from streams.compaction.summarizers.endpoint import ChatEndpoint
from streams.compaction.summarizers.endpoint_call import HttpSession, ModelEndpoint
from streams.compaction.summarizers.failures import AttemptFailed
from streams.settings.endpoints import EndpointSettings

QUESTION = [{"role": "user", "content": "Answer with the word yes."}]
ANSWER_TOKENS = 16
"""The smallest limit that a summary is asked with, too."""


async def try_endpoints(
    endpoints: Mapping[str, EndpointSettings], env: Mapping[str, str], seconds: float
) -> dict[str, float | AttemptFailed | InvalidSettings]:
    """Ask each endpoint one short question, all at once, once, beside its limits and budgets.

    Args:
        env: holds the keys that ``key_env`` names.
        seconds: how long an endpoint may take, where its own ``timeout`` is not shorter.

    Returns:
        By name the seconds until its answer, or why there is none.
    """
    http = HttpSession()

    async def ask(name: str, options: EndpointSettings) -> float | AttemptFailed | InvalidSettings:
        try:
            endpoint = ModelEndpoint(name, options, options.find_key(name, env), http.get)
            begun = time.monotonic()
            await ChatEndpoint(endpoint).complete(
                QUESTION, ANSWER_TOKENS, min(seconds, options.timeout)
            )
        except (AttemptFailed, InvalidSettings) as error:
            return error
        return time.monotonic() - begun

    try:
        answers = await asyncio.gather(*(ask(*one) for one in endpoints.items()))
    finally:
        await http.close()
    return dict(zip(endpoints, answers, strict=True))
