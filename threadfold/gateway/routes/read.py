"""The routes that read: the context, the log, recorded model calls, and a tenant's lists."""

from __future__ import annotations

import re
from datetime import datetime
from functools import partial
from typing import Annotated, Any, Literal

from msgspec import Meta
from starlette.responses import Response

from projections.errors import Forbidden
from projections.names import make_key, parse_position
from threadfold.gateway.access import Caller
from threadfold.gateway.answers import (
    Context,
    Conversations,
    History,
    LoggedEvent,
    Render,
    State,
    Summaries,
    Suspensions,
    WorkingMemory,
)
from threadfold.gateway.declaration import Answer, Routes
from threadfold.gateway.end_users import check_own
from threadfold.gateway.examples import CURSOR, EVENT, POSITION, RENDER, example_of
from threadfold.gateway.parameters import Path, Query
from threadfold.gateway.request import Request
from threadfold.gateway.routes.common import Before, C, Conversation, JsonBytes
from threadfold.schemas.structs import POSITION as POSITION_SCHEMA
from threadfold.service import lists
from threadfold.service.conversation_list import Filter, conversations
from threadfold.service.documents import FORMATS
from threadfold.service.pages import MAX_PAGE, PAGE_TYPES
from threadfold.service.past_windows import MOST_BYTES
from threadfold.service.recall_answers import BACKGROUND_TOKENS
from threadfold.service.recalled_context import Reader, recalled_context
from threadfold.service.whole_event import MAX_PAGE_CHARS, PAGE_CHARS
from threadfold.service.working_memory import working_memory

routes = Routes("Reading")
_read = partial(routes.add, "GET", scope="read")
_read_own = partial(_read, end_users=True)
_Limit = Annotated[int, Query(example=50), Meta(ge=1, le=lists.MAX_LISTED)]
After = Annotated[
    str | None,
    Query("a position that the window must include: the answer waits for it up to 10 s", POSITION),
    Meta(extra_json_schema=POSITION_SCHEMA),
]
_TYPE = "|".join(map(re.escape, PAGE_TYPES))
_CONTEXT = example_of(Context, positions=["3-16", POSITION])


@_read_own(f"{C}/context", "Read the context", Answer(Context, example=_CONTEXT))
async def get_context(
    request: Request,
    caller: Caller,
    conversation: Conversation,
    format: Annotated[  # noqa: A002 (the contract's name)
        str,
        Query(", ".join(f"`{name}`" for name in FORMATS), "openai"),
        Meta(extra_json_schema={"enum": list(FORMATS)}),
    ] = "openai",
    max_tokens: Annotated[
        int | None,
        Query("a lower limit than the policy's ceiling", 8000),
        Meta(ge=1, le=1 << 31),
    ] = None,
    after: After = None,
    recall: Annotated[
        Literal["on", "off"], Query("`on`: with what the long-term memory has on it", "on")
    ] = "off",
    recall_tokens: Annotated[
        int, Query("tokens that recalled memories have at most", 800), Meta(ge=1, le=1 << 20)
    ] = BACKGROUND_TOKENS,
) -> Response:
    """The messages to send to a model: pinned messages, the summary and the tail. They fit into the
    policy's ceiling and `max_tokens`.

    Formats: `openai`; `anthropic`, with `system` apart; `events`, the window's own events with
    their positions; `rendered`, the messages as flat events.

    With `recall=on` what is relevant to the newest user's message stands right before it, as
    data: what its user's other conversations taught and said. `recalled` has the ids,
    `background_context` the text; of the formats `events` and `rendered` only these two have it.
    `render_digest` is that of the messages without it. If the memory cannot be asked, `away` says
    why.
    """
    if recall == "on":
        names = None if caller.end_user is None else caller.end_user.conversations
        reader = Reader(
            caller.tenant, conversation, format, max_tokens, after, recall_tokens, names
        )
        memories = request.state.memories(caller.backend)
        return JsonBytes(await recalled_context(caller.backend, memories, reader))
    document = await caller.backend.context(
        caller.tenant, conversation, fmt=format, max_tokens=max_tokens, after=after
    )
    return JsonBytes(document)


@_read(
    f"{C}/working-memory",
    "Read the working memory",
    Answer(
        WorkingMemory,
        example={
            "compressed_history": "She ordered a kettle.",
            "raw_recent_turns": [{"role": "user", "content": "Where is it?"}],
            "tokens": 12,
            "threshold": "none",
        },
    ),
    large=True,
)
async def get_working_memory(caller: Caller, conversation: Conversation) -> dict[str, Any]:
    """What was summarised, and what was said last, word for word: at least four messages, where
    there are so many that stand.

    From 70 % of the policy's `wm_max_tokens` on, reading it asks for a summary, which comes in the
    background (`threshold` is `background`). From 90 % on the answer waits for it, up to 5 s; if it
    did not come, `threshold` is `before_answer`.
    """
    return await working_memory(caller.backend, caller.tenant, conversation)


@_read_own(f"{C}/history", "Read a page of history", History, large=True)
async def get_history(
    caller: Caller,
    conversation: Conversation,
    before: Annotated[str | None, Query("`next_before` of the previous page", CURSOR)] = None,
    limit: Annotated[int, Query(example=50), Meta(ge=1, le=MAX_PAGE)] = 50,
    types: Annotated[
        str | None,
        Query("types of events, separated by commas", "message,tool.result", "type"),
        Meta(extra_json_schema={"pattern": f"^({_TYPE})(,({_TYPE}))*$"}),
    ] = None,
    after: After = None,
    wait: Annotated[
        Literal["applied"] | None,
        Query("`applied`: wait for all that is in the log, like `after` its end", "applied"),
    ] = None,
) -> dict[str, Any]:
    """A page of events from the log, newest first.

    History is read by the window, which follows an acknowledged append within milliseconds. With
    `after` or `wait` the page waits for it, up to 10 s, then it answers 503. A page of some types
    reads 2,000 events at most, and each page ends after 4 MiB: it may be short and still have a
    `next_before`.
    """
    return await caller.backend.history(
        caller.tenant,
        conversation,
        before=before,
        limit=limit,
        types=None if types is None else types.split(","),
        after=after,
        wait=wait is not None,
    )


@_read_own(
    f"{C}/events/{{position}}",
    "Read one event whole",
    Answer(LoggedEvent, "The event; with `offset` or `limit`, a page of its text.", EVENT),
    problems=(500,),
    large=True,
)
async def get_event(
    caller: Caller,
    conversation: Conversation,
    position: Annotated[str, Path(example=POSITION), Meta(extra_json_schema=POSITION_SCHEMA)],
    offset: Annotated[
        int | None, Query("the first character of the page", 0), Meta(ge=0, le=1 << 40)
    ] = None,
    limit: Annotated[
        int | None,
        Query(f"characters of the page; {PAGE_CHARS} if only `offset` is given", 4000),
        Meta(ge=1, le=MAX_PAGE_CHARS),
    ] = None,
) -> dict[str, Any]:
    """One event with its whole content, also if its text was spilled over several records. With
    `offset` or `limit`, `content` is that page of the text.
    """
    found = await caller.backend.event_at(
        caller.tenant, conversation, position, offset=offset, limit=limit
    )
    if caller.end_user is not None:
        await check_own(caller, make_key(caller.tenant, conversation), parse_position(position))
    return found


@_read(
    "/v1/renders/{render_id}",
    "Render a model call again",
    Render,
    tag="Model calls",
    problems=(410,),
    large=True,
)
async def get_render(
    caller: Caller, render_id: Annotated[str, Path(example=RENDER)]
) -> dict[str, Any]:
    """A recorded model call, rendered again from the log. `agrees` says whether the digest is the
    same, and `why` the reasons if it is not. At most 32 MiB of events are folded, else the answer
    is 422: `threadfold renders show` has no such limit.
    """
    return await caller.backend.ledger.show(render_id, caller.tenant, most_bytes=MOST_BYTES)


@_read_own("/v1/conversations", "List conversations", Conversations)
async def get_conversations(
    caller: Caller,
    user: Annotated[str | None, Query("whose conversations", "u-7")] = None,
    channel: Annotated[str | None, Query("of which channel", "web")] = None,
    state: Annotated[State | None, Query("in which state", "awaiting_approval")] = None,
    since: Annotated[
        datetime | None,
        Query("last active at this time or later", "2026-11-21T00:00:00Z"),
        Meta(tz=True),
    ] = None,
    until: Annotated[
        datetime | None,
        Query("last active at this time or earlier", "2026-11-22T00:00:00Z"),
        Meta(tz=True),
    ] = None,
    before: Before = None,
    limit: _Limit = 50,
) -> dict[str, Any]:
    """The tenant's conversations that have all that is asked for. The one that was active last
    comes first.

    Times are the broker's. `title` is `metadata.title`. `metadata` holds the first members, up to
    1 KiB; `metadata_cut` says that there are more. A page may have fewer than `limit` conversations
    and still have a `next_before`: it looks at 2,000 conversations at most. An end user is shown
    the user's own conversations.
    """
    names = None
    if (end_user := caller.end_user) is not None:
        if user not in (None, end_user.user):
            raise Forbidden("parameter user: an end user lists the user's own conversations")
        user, names = end_user
    only = Filter(user, channel, state, since, until, names)
    return await conversations(caller.backend, caller.tenant, only=only, before=before, limit=limit)


@_read_own(f"{C}/summaries", "List a conversation's summaries", Summaries, large=True)
async def get_summaries(
    caller: Caller, conversation: Conversation, before: Before = None, limit: _Limit = 20
) -> dict[str, Any]:
    """The active summary and those that it continues, newest first. A page ends with the summary
    that makes it 4 MiB: it may have fewer than `limit` and still have a `next_before`.
    """
    return await lists.summaries(
        caller.backend, caller.tenant, conversation, before=before, limit=limit
    )


@_read("/v1/suspensions", "List open suspensions", Suspensions, large=True)
async def get_suspensions(
    caller: Caller, before: Before = None, limit: _Limit = 50
) -> dict[str, Any]:
    """The tenant's open suspensions. The conversation that was suspended last comes first.

    `limit` counts conversations. Each comes with all of its open suspensions. A page ends with the
    conversation that makes it 4 MiB: it may have fewer than `limit` and still have a `next_before`.
    """
    return await lists.suspensions(caller.backend, caller.tenant, before=before, limit=limit)
