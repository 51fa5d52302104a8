"""Requests to learn from a span: what the projector asks the encoder for. They stand on the topic
of compaction requests; each id follows from what is asked.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Literal

import msgspec

from projections.events.untrusted import Undecodable, json_decoder
from projections.fold.extraction_due import Extraction, Reason
from projections.names import Key

RULES = "rules"
"""The extractor that needs no model."""


class ExtractionRequest(msgspec.Struct):
    """A request to learn from a conversation: see :class:`projections.fold.extraction_due.
    Extraction`. ``summarizer`` names who extracts, as the line in which it waits is that one's.
    ``again``: the rollback that brought back what it is about.
    """

    request_id: str
    tenant: str
    conversation: str
    partition: int
    at: int
    reason: Reason
    gists: bool
    summarizer: str = RULES
    kind: Literal["extraction"] = "extraction"
    again: int | None = None


def request_of(
    key: Key, partition: int, due: Extraction, model: str = ""
) -> ExtractionRequest | None:
    """The request for what there is to learn from; ``model`` is the endpoint that is to say it,
    empty: the rules. None where it would be told twice: asked again, a model says the same in
    other words.
    """
    if model and due.again is not None:
        return None
    again = () if due.again is None else (due.again,)
    asked = msgspec.json.encode([str(key), partition, due.offset, due.reason, *again])
    return ExtractionRequest(
        request_id=sha256(asked).hexdigest()[:32],
        tenant=key.tenant,
        conversation=key.conversation,
        partition=partition,
        at=due.offset,
        reason=due.reason,
        gists=due.gists,
        summarizer=model or RULES,
        again=due.again,
    )


_request = json_decoder(ExtractionRequest)


def decode_extraction(value: bytes) -> ExtractionRequest | None:
    """A request as it stands on its topic, None for what is not one."""
    try:
        return _request(value)
    except Undecodable:
        return None
