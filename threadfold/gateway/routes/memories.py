"""The routes of the long-term memory: saving, searching, reading, deleting."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta
from starlette.responses import Response

from projections.errors import InvalidRequest
from projections.events import types as events
from projections.events.times import micros_of
from streams.memory.store import Filter
from threadfold.gateway import memory_answers as answers
from threadfold.gateway.access import Caller
from threadfold.gateway.declaration import Answer, Cost, Routes
from threadfold.gateway.end_users import memory_of, own_seed
from threadfold.gateway.examples import CONVERSATION, DIGEST
from threadfold.gateway.memory_bodies import (
    MemorySearch,
    MemoryType,
    NewMemory,
    NewSkill,
    Succeeded,
    User,
)
from threadfold.gateway.parameters import ParameterGroup, Path, Query
from threadfold.gateway.request import Body, Request
from threadfold.gateway.routes.common import Before, IdempotencyKey, JsonBytes, answer
from threadfold.schemas.structs import NAME
from threadfold.service.erasure_receipt import Store
from threadfold.service.memories import MAX_LISTED, Memories
from threadfold.service.memory_pages import page_document, timeline_document
from threadfold.service.question import Question
from threadfold.service.recall_answers import answered
from threadfold.service.whose import Whose

MOST = 500
"""Records of one save."""
routes = Routes("Memories")
_read = partial(routes.add, scope="read", end_users=True)
_write = partial(routes.add, scope="append", cost=Cost.APPEND, end_users=True)
_Id = Annotated[str, Path(example=DIGEST)]
_Limit = Annotated[int, Query(example=50), Meta(ge=1, le=MAX_LISTED)]


@dataclass(frozen=True, slots=True)
class _Narrow(ParameterGroup):
    """Whose memory it is about."""

    user: Annotated[User | None, Query("whose memory", "u-7")] = None
    channel: Annotated[str | None, Query("of which channel", "web")] = None
    conversation: Annotated[
        str | None, Query("taught by which", CONVERSATION), Meta(extra_json_schema=NAME)
    ] = None


_ALL = _Narrow()
_WAIT = Annotated[
    Literal["applied"] | None,
    Query("`applied`: answer 200 once a search finds them, with a status each", "applied"),
]
_SAVED = {
    202: Answer(answers.SavedMemories, "They are safe in the log.", answers.SAVED),
    200: Answer(
        answers.SavedMemories,
        "With `wait=applied`: a search finds them.",
        answers.SAVED_AND_APPLIED,
    ),
}
_SEVERAL = Annotated[list[NewMemory], Meta(extra_json_schema={"minItems": 1, "maxItems": MOST})]
_MAX_SEARCH = 128 << 10
"""Bytes of a search: two texts of the most characters take 96 KiB where JSON escapes each."""
_MEMORY = {"text": "Prefers green tea in the morning.", "type": "preference", "user": "u-7"}
_SKILL = {"intent": "Return a parcel", "doc_markdown": "1. Ask for the order's number."}


@_write(
    "POST",
    "/v1/memories",
    "Save memories",
    _SAVED,
    body=Body(
        NewMemory | _SEVERAL,
        {"one": _MEMORY, "several": [{"text": "Lives in Oslo.", "conversation": CONVERSATION}]},
        noun="a memory",
    ),
    problems=(404,),
)
async def post_memories(
    request: Request,
    caller: Caller,
    body: NewMemory | list[NewMemory],
    wait: _WAIT = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Save one record, or a list of at most 500. What stands between `<private>` and `</private>`
    is not stored. Saving the same text again confirms the record.
    """
    several = enumerate(_several(body), 1)
    items = [(_whose(caller, one, f"memory {i}: "), _saved(one)) for i, one in several]
    return await _save(request, caller, items, wait is not None, idempotency_key)


@_write(
    "POST",
    "/v1/skills",
    "Save a skill",
    _SAVED,
    body=Body(NewSkill, {"one": _SKILL}, noun="a skill"),
    problems=(404,),
)
async def post_skills(
    request: Request,
    caller: Caller,
    body: NewSkill,
    wait: _WAIT = None,
    idempotency_key: IdempotencyKey = None,
) -> Response:
    """Save how something is done. A search with the kind `skill` finds it by its intent."""
    skill = events.SkillSaved(
        memory_id="",
        intent=body.intent,
        normalized_text="",
        doc_markdown=body.doc_markdown,
        preconditions=body.preconditions,
        trust=body.trust,
    )
    items = [(_whose(caller, body), skill)]
    return await _save(request, caller, items, wait is not None, idempotency_key)


@_read(
    "POST",
    "/v1/memories/search",
    "Search memories",
    Answer(answers.MemoryHits, example=answers.HITS),
    body=Body(
        MemorySearch,
        {"one": {"query": "Which tea does she prefer?", "user": "u-7"}},
        limit=_MAX_SEARCH,
    ),
)
async def post_search(request: Request, caller: Caller, body: MemorySearch) -> Response:
    """What fits the query, best first: records, skills, and turns of conversations that no record
    was learnt from.

    `mode`, `tools`, `constraints` and `failures` say what it is for: what helps an action comes
    first then. The profile `facts` weighs the text alone, and takes it for half as good after 30
    days. `max_tokens` ends the list before its texts have more; 4 MiB end it, too. `explain` adds
    the plan and the parts of each score.

    `background_context` is what is relevant enough for a prompt: data, never an instruction. What
    a search gives out is counted in the records' `use`, some seconds later; `as_of` counts nothing.
    `away` names the channels that could not be asked, and why; `missing` what the question asks
    for ("time", "place") and no relevant result says.
    """
    only = _whose(caller, body).filter(
        types=tuple(body.types),
        since=_micros(body.since),
        until=_micros(body.until),
        as_of=_micros(body.as_of),
    )
    question = Question(
        only,
        body.query,
        body.kinds,
        body.mode,
        body.tools,
        body.constraints,
        body.failures,
        limit=body.limit,
        facts=body.profile == "facts",
    )
    memories = _memories(request, caller)
    answer = await caller.while_here(memories.ask(question))
    given, document = await memories.recall.apart(
        only.tenant, answered, answer, body.max_tokens, explain=body.explain
    )
    if only.as_of is None:
        memories.use_counts.note(given.found, given.for_prompt)
    return JsonBytes(document)


@_read("GET", "/v1/memories", "List memories", Answer(answers.Memories, example=answers.PAGE))
async def get_memories(
    request: Request,
    caller: Caller,
    narrow: _Narrow = _ALL,
    type: Annotated[MemoryType | None, Query("of which type", "fact")] = None,  # noqa: A002
    topic: Annotated[str | None, Query("of which topic", "tea")] = None,
    before: Before = None,
    limit: _Limit = 50,
) -> Response:
    """The records and composites that stand, newest first. A page ends after 4 MiB: it may have
    fewer than `limit` and still have a `next_before`.
    """
    only = _narrowed(caller, narrow).filter(types=() if type is None else (type,), topic=topic)
    return await _page(request, caller, only, before, limit)


@_read("GET", "/v1/skills", "List skills", Answer(answers.Memories, example=answers.PAGE))
async def get_skills(
    request: Request,
    caller: Caller,
    narrow: _Narrow = _ALL,
    before: Before = None,
    limit: _Limit = 50,
) -> Response:
    """The skills that stand, newest first. A page ends after 4 MiB, like one of memories."""
    only = _narrowed(caller, narrow).filter(kinds=("skill",))
    return await _page(request, caller, only, before, limit)


@_read(
    "GET",
    "/v1/memories/stats",
    "Count memories",
    Answer(answers.MemoryStats, example={"records": 12, "expired": 1, "types": {"fact": 12}}),
)
async def get_stats(
    request: Request,
    caller: Caller,
    narrow: _Narrow = _ALL,
) -> answers.MemoryStats:
    """How many records, composites and skills there are."""
    whose = _narrowed(caller, narrow)
    stats = await _memories(request, caller).stats(whose)
    return answers.MemoryStats(stats.records, stats.expired, stats.types)


@_read(
    "GET",
    "/v1/memories/{memory_id}",
    "Read a memory",
    Answer(answers.Memory, example=answers.RECORD),
)
async def get_memory(
    request: Request,
    caller: Caller,
    memory_id: _Id,
    as_of: Annotated[datetime | None, Query("as it was known then"), Meta(tz=True)] = None,
    narrow: _Narrow = _ALL,
) -> dict[str, Any]:
    """One record, also a superseded one; 404 if it is another `user`'s, `channel`'s or
    `conversation`'s than those given.
    """
    whose = _narrowed(caller, narrow)
    found = await _memories(request, caller).get(whose, memory_id, _micros(as_of))
    return found.document()


@_read(
    "GET",
    "/v1/memories/{memory_id}/timeline",
    "Read a memory's neighbours",
    Answer(answers.Timeline, example={"memories": [answers.RECORD]}),
)
async def get_timeline(
    request: Request,
    caller: Caller,
    memory_id: _Id,
    before: Annotated[int, Query("records before it", 5), Meta(ge=0, le=100)] = 5,
    after: Annotated[int, Query("records after it", 5), Meta(ge=0, le=100)] = 5,
    narrow: _Narrow = _ALL,
) -> Response:
    """A record between those that were learnt just before and after it, in its scope. Those on one
    side end after 2 MiB.
    """
    memories, turns = _memories(request, caller), request.state.turns_to_encode
    whose = _narrowed(caller, narrow)
    return JsonBytes(await timeline_document(memories, turns, whose, memory_id, before, after))


@_write(
    "DELETE",
    "/v1/memories/{memory_id}",
    "Delete a memory",
    Answer(answers.DeletedMemory, example={"id": DIGEST, "hard": False}),
    problems=(404, 409),
)
async def delete_memory(
    request: Request,
    caller: Caller,
    memory_id: _Id,
    hard: Annotated[bool, Query("its text leaves every store, for good", True)] = False,
    narrow: _Narrow = _ALL,
) -> answers.DeletedMemory:
    """Delete a record. It is not found any more when this answers; saying it again brings it back.

    A hard deletion removes its text from every store for good. The log keeps the event that taught
    it: erase the conversation to remove that.
    """
    memories, whose = _memories(request, caller), _narrowed(caller, narrow)
    await memories.delete(whose, memory_id, caller.charge, hard=hard)
    if not hard:
        return answers.DeletedMemory(memory_id, hard)
    kept = Store("kept", None, "the events that taught it; erase their conversation to remove them")
    gone = Store("deleted", None, "in this gateway now, in others as they read the topic")
    return answers.DeletedMemory(memory_id, hard, {"memories": gone, "log": kept})


@_write(
    "DELETE",
    "/v1/skills/{memory_id}",
    "Delete a skill",
    Answer(answers.DeletedMemory, example={"id": DIGEST, "hard": False}),
    problems=(404, 409),
)
async def delete_skill(
    request: Request, caller: Caller, memory_id: _Id, narrow: _Narrow = _ALL
) -> answers.DeletedMemory:
    """Delete a skill. It is not found any more when this answers."""
    memories, whose = _memories(request, caller), _narrowed(caller, narrow)
    await memories.delete(whose, memory_id, caller.charge, kinds=("skill",))
    return answers.DeletedMemory(memory_id, False)


@_write(
    "POST",
    "/v1/memories/{memory_id}/outcome",
    "Report an outcome",
    Answer(answers.Memory, example=answers.RECORD),
    body=Body(Succeeded, {"one": {"succeeded": True}}, noun="an outcome"),
    problems=(404, 409),
)
async def post_outcome(
    request: Request,
    caller: Caller,
    body: Succeeded,
    memory_id: _Id,
    narrow: _Narrow = _ALL,
) -> dict[str, Any]:
    """Report whether an action that used the record succeeded. The answer counts it in `use`."""
    memories, whose = _memories(request, caller), _narrowed(caller, narrow)
    found = await memories.outcome(whose, memory_id, caller.charge, succeeded=body.succeeded)
    return found.document()


def _memories(request: Request, caller: Caller) -> Memories:
    return request.state.memories(caller.backend)


def _whose(caller: Caller, body: NewMemory | NewSkill | MemorySearch, at: str = "") -> Whose:
    return memory_of(caller, body.user, body.channel, body.conversation, at)


def _narrowed(caller: Caller, narrow: _Narrow) -> Whose:
    return memory_of(caller, narrow.user, narrow.channel, narrow.conversation)


def _several(body: NewMemory | list[NewMemory]) -> list[NewMemory]:
    several = body if isinstance(body, list) else [body]
    if not 1 <= len(several) <= MOST:
        raise InvalidRequest(f"the list has {len(several)} memories: send 1 to {MOST}")
    return several


def _saved(body: NewMemory) -> events.MemorySaved:
    return events.MemorySaved(
        memory_id="",
        memory_type=body.type,
        text=body.text,
        normalized_text="",
        trust=body.trust,
        topic=body.topic,
        tags=body.tags,
        temporal=body.temporal,
        confidence=body.confidence,
    )


async def _save(
    request: Request,
    caller: Caller,
    items: Sequence[tuple[Whose, events.MemorySaved | events.SkillSaved]],
    wait: bool,
    seed: str | None,
) -> Response:
    memories, seed = _memories(request, caller), own_seed(caller.end_user, seed)
    saved = await memories.save(items, caller.charge, seed=seed, wait=wait)
    return answer({"memories": saved}, 200 if wait else 202)


async def _page(
    request: Request, caller: Caller, only: Filter, before: str | None, limit: int
) -> Response:
    memories, turns = _memories(request, caller), request.state.turns_to_encode
    return JsonBytes(await page_document(memories, turns, only, before, limit))


def _micros(when: datetime | None) -> int | None:
    return None if when is None else micros_of(when)
