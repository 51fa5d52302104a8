"""A chat endpoint that is asked for something else than a summary: within the same limits, budget,
attempts and breaker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from streams.compaction.summarizers.attempts import Attempts
from streams.compaction.summarizers.endpoint import ChargedChat, Completion, Judged
from streams.compaction.summarizers.endpoint_call import CHARACTERS, cost_of
from streams.compaction.summarizers.failures import AnswerRejected, AttemptFailed

Answer = TypeVar("Answer")


def nothing_changed() -> None:
    """The check of what may be sent whenever its turn comes."""


class ChatModel:
    """One endpoint's model. Any number of questions may be under way at once."""

    def __init__(
        self,
        chat: ChargedChat,
        attempts: Attempts,
        count: Callable[[str, str], None] = lambda endpoint, outcome: None,
    ) -> None:
        """Args: ``count`` is called with each attempt's endpoint and outcome."""
        self.name = chat.name
        self.model = f"{chat.name}/{chat.options.model}"
        """Endpoint and model, as what they made names them."""
        self._chat = chat
        self._attempts = attempts
        self._count = count

    async def ask(
        self,
        tenant: str,
        messages: list[dict[str, str]],
        max_tokens: int,
        read: Callable[[str], Answer],
        *,
        taken: bool = False,
        check: Callable[[], None] = nothing_changed,
    ) -> Answer:
        """What ``read`` makes of the answer's text; it raises AnswerRejected for one of no use,
        which is then tried again.

        Args:
            taken: the endpoint's limits and the tenant's budget allowed the first call already.
            check: raises where the endpoint must not be sent this any more; called before each try.

        Raises:
            AttemptFailed: there was no answer of use, and why.
        """
        self._attempts.check(tenant)
        if not taken:
            await self._chat.check(tenant)

        async def judge(answer: Completion) -> Judged[Answer | AnswerRejected]:
            return self._judged(messages, answer, read)

        async def call(until: float) -> Answer:
            outcome = "ok"
            check()
            try:
                judged = await self._chat.ask(tenant, messages, max_tokens, until, judge)
                if isinstance(judged.made, AnswerRejected):
                    raise judged.made
                return judged.made
            except AttemptFailed as error:
                outcome = error.kind
                raise
            finally:
                self._count(self.name, outcome)

        return await self._attempts.run(tenant, call, taken=taken)

    def _judged(
        self, messages: list[dict[str, str]], answer: Completion, read: Callable[[str], Answer]
    ) -> Judged[Answer | AnswerRejected]:
        sent, got = answer.input_tokens, answer.output_tokens
        if sent is None:
            sent = sum(len(message["content"]) for message in messages) // CHARACTERS
        if got is None:
            got = len(answer.text) // CHARACTERS
        cost = cost_of(self._chat.options, sent, got)
        try:
            return Judged(sent + got, cost, read(answer.text))
        except AnswerRejected as error:
            return Judged(sent + got, cost, error)
