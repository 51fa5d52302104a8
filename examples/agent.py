"""One turn of an agent: append the user's text, take the bounded context, stream the model's
answer to readers, append it.

    pip install 'threadfold-client[openai]'    # from a checkout: './clients/python[openai]'
    export THREADFOLD_URL=http://localhost:8080 THREADFOLD_KEY=… OPENAI_API_KEY=…
    python examples/agent.py CONVERSATION 'What did we agree on?'

``OPENAI_BASE_URL`` and ``MODEL`` name any endpoint that speaks OpenAI's chat completions.
"""

from __future__ import annotations

import asyncio
import os
import sys

from openai import AsyncOpenAI, OpenAIError

from threadfold_client import AsyncClient, ClientError
from threadfold_client.adapters.openai import respond


async def turn(
    threadfold: AsyncClient, openai: AsyncOpenAI, conversation: str, text: str, model: str
) -> str:
    """Run one turn and return the answer; another turn on the same conversation waits until this
    one is over.
    """
    async with threadfold.turn(conversation, policy="queue", seconds=120, model=model) as lease:
        message = {"type": "message", "role": "user", "content": text}
        appended = await threadfold.append(conversation, message, fence=lease.fencing_token)
        answer = await respond(
            threadfold,
            conversation,
            openai,
            model=model,
            after=appended.position,
            turn_id=lease.turn_id,
            fence=lease.fencing_token,
        )
        return answer.text


async def main(conversation: str, text: str) -> None:
    """Run one turn, as the environment says."""
    async with (
        AsyncClient(os.environ["THREADFOLD_URL"], os.environ["THREADFOLD_KEY"]) as threadfold,
        AsyncOpenAI() as openai,
    ):
        print(
            await turn(
                threadfold, openai, conversation, text, os.environ.get("MODEL", "gpt-5-mini")
            )
        )


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit("usage: agent.py CONVERSATION TEXT")
    try:
        asyncio.run(main(*sys.argv[1:]))
    except KeyError as missing:
        sys.exit(f"{missing.args[0]} is not set")
    except (ClientError, OpenAIError) as error:
        sys.exit(str(error))
