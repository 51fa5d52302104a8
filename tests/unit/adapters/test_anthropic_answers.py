"""An answer of Anthropic's SDK becomes the event that the gateway makes of the same message."""

from __future__ import annotations

from typing import Any

import pytest

from projections.formats.anthropic_input import from_anthropic
from threadfold_client.adapters.anthropic import event_of

TEXT = {"type": "text", "text": "It is on its way."}
THOUGHT = {"type": "thinking", "thinking": "The order …", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "eA=="}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "order", "input": {"id": 1182, "ö": [1.5]}}
USAGE = {"input_tokens": 5, "cache_read_input_tokens": 7, "output_tokens": 3}


class Answer:
    """A message as the SDK gives it."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document

    def model_dump(self, **_: Any) -> dict[str, Any]:
        return self.document


@pytest.mark.parametrize(
    "content",
    [[], [TEXT], [TEXT, TEXT], [THOUGHT, REDACTED, TEXT, CALL], [CALL, CALL], [THOUGHT]],
)
def test_an_answer_is_the_same_event_here_and_over_http(content: list[dict[str, Any]]) -> None:
    document = {"role": "assistant", "id": "msg_1", "model": "m", "usage": USAGE}
    answer = Answer({**document, "content": content})
    assert [event_of(answer)] == from_anthropic(answer.document, "the answer")


def test_an_empty_signature_and_blocks_of_hosted_tools_are_left_out() -> None:
    hosted = {"type": "server_tool_use", "id": "x", "name": "web_search", "input": {}}
    content = [{**THOUGHT, "signature": ""}, hosted, TEXT]
    event = event_of(Answer({"role": "assistant", "content": content}))
    assert event["content"] == [
        {"type": "reasoning", "text": THOUGHT["thinking"], "provider": "anthropic"},
        TEXT,
    ]
