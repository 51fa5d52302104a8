"""LangGraph: hooks that append a graph's messages and give its model the bounded window, beside
LangGraph's own checkpointer.

    from threadfold_client.adapters.langgraph import ThreadfoldMemory

    memory = ThreadfoldMemory(AsyncClient(url, key))
    hooks = {"pre_model_hook": memory.before_model, "post_model_hook": memory.after_model}
    agent = create_react_agent(model, tools, checkpointer=saver, **hooks)

docs/decisions/0017-langgraph.md says why this is no checkpointer.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple
from uuid import uuid4

from threadfold_client.adapters.extras import needs_asynchronous, require

require("langgraph", "langgraph")
require("langchain_core", "langgraph")

from langchain_core.messages import BaseMessage, RemoveMessage  # noqa: E402
from langgraph.graph.message import REMOVE_ALL_MESSAGES  # noqa: E402

from threadfold_client import Conflict  # noqa: E402
from threadfold_client.adapters.kept import shown_messages  # noqa: E402
from threadfold_client.adapters.langchain_messages import to_event, to_messages  # noqa: E402
from threadfold_client.adapters.langgraph_history import is_lost, is_ours, since  # noqa: E402
from threadfold_client.adapters.langgraph_log import (  # noqa: E402
    BEGIN,
    ROLLBACK,
    Difference,
    Reading,
    cannot_follow,
    differ,
    event_id,
    key_of,
    mark_of,
    read_log,
    why_not,
)
from threadfold_client.adapters.sessions import check_applied  # noqa: E402

if TYPE_CHECKING:
    from langchain_core.runnables import RunnableConfig

    from threadfold_client import AsyncClient

MAX_MESSAGES = 500
"""Events in one list."""
MAX_THREADS = 1_000
"""Threads whose messages are remembered; of others the log is read first."""
ATTEMPTS = 10
"""Attempts to go back while others append."""


class _Step(NamedTuple):
    """A step of a thread of a graph with a checkpointer ``saver``, and the checkpoint it began at.

    ``thread`` is the thread's id as the saver has it.
    """

    namespace: str
    number: int
    checkpoint: str
    thread: Any
    saver: Any


@dataclass
class _Known:
    """What this process knows of a conversation: the last known position, the marks of its messages
    by key, as they were appended, and the step in which they were.

    Up to position ``seen`` it knows the others' events. It has ``sent`` these ids since. ``stale``:
    others have changed what the log has of the state, or it is unknown what it has.
    """

    position: str | None = None
    marks: dict[str, str] = field(default_factory=dict)
    step: _Step | None = None
    seen: str | None = None
    sent: set[str] = field(default_factory=set)
    stale: bool = False


class ThreadfoldMemory:
    """Hooks for a graph whose state has ``messages`` (``MessagesState``, ``create_react_agent``).

    A thread's id is its conversation. Each message's event id is made of its own id, so a node that
    runs again (a retry, a resumed interrupt, another process) appends nothing twice. If the graph
    changes or removes messages, or goes on from an earlier checkpoint, the conversation is rolled
    back to before the first of them, and what the state has from there on is appended again.

    Args:
        client: used in the loop the graph runs in.
        max_tokens: a limit of this reader's own.
        trim_state: replace the state's messages by the window as well, so that checkpoints stay
            bounded. Removed messages and forks are not noticed then.
    """

    def __init__(
        self, client: AsyncClient, *, max_tokens: int | None = None, trim_state: bool = False
    ) -> None:
        needs_asynchronous(client, "ThreadfoldMemory")
        self._client = client
        self._max_tokens = max_tokens
        self._trim_state = trim_state
        self._known: OrderedDict[str, _Known] = OrderedDict()

    async def before_model(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        """Append the state's new messages and give the window: as ``llm_input_messages``, or in
        place of the state's.

        Raises:
            Conflict: the graph changed or removed a message, and the conversation cannot go back to
                before it.
        """
        conversation, whole = _thread(config), not self._trim_state
        position = await self._append(conversation, state["messages"], whole, _step_of(config))
        window = await self.window(conversation, after=position)
        if not self._trim_state:
            return {"llm_input_messages": window}
        for i, message in enumerate(window):
            # A shortened or summarised message is none of the state's; an id of this kind is never
            # appended.
            message.id = message.id or f"{_WINDOW}{i}-{mark_of(message)}"
        return {"messages": [RemoveMessage(REMOVE_ALL_MESSAGES), *window]}

    async def after_model(self, state: Any, config: RunnableConfig) -> dict[str, Any]:
        """Append the model's answer; changes nothing of the state."""
        conversation, whole = _thread(config), not self._trim_state
        await self._append(conversation, state["messages"], whole, _step_of(config))
        return {}

    async def append(
        self, conversation: str, messages: Sequence[BaseMessage], *, whole: bool = False
    ) -> str | None:
        """Append a state's new messages, at most 500 in one list; returns the last known position,
        None without any. A message without an id gets one, as in a graph's ``add_messages``.

        Args:
            whole: these are all messages of the state, so that others that the conversation has
                of it were removed. Otherwise only changed ones are noticed, and no forks.

        Raises:
            Conflict: a message was changed or removed, and the conversation cannot go back to
                before it.
        """
        return await self._append(conversation, messages, whole)

    async def window(self, conversation: str, *, after: str | None = None) -> list[BaseMessage]:
        """The bounded window as LangChain's messages. It includes ``after``; by default what was
        appended here last.
        """
        if after is None and conversation in self._known:
            after = self._known[conversation].position
        return to_messages(
            await shown_messages(
                self._client, conversation, max_tokens=self._max_tokens, after=after
            )
        )

    async def _append(
        self,
        conversation: str,
        messages: Sequence[BaseMessage],
        whole: bool,
        step: _Step | None = None,
    ) -> str | None:
        by_key: dict[str, BaseMessage] = {}
        for message in messages:
            if (message.id or "").startswith(_WINDOW):
                _check_given(conversation, message)
                whole = False  # the state was trimmed: it lacks messages that were not removed
                continue
            message.id = message.id or str(uuid4())
            by_key[key_of(message.id)] = message
        marks = {key: mark_of(m, renamed=self._trim_state) for key, m in by_key.items()}
        known = self._known.setdefault(conversation, _Known())
        self._known.move_to_end(conversation)
        if len(self._known) > MAX_THREADS:
            self._known.popitem(last=False)
        await self._look(conversation, known)
        cleared = whole and await _is_cleared(known, marks, step)
        fresh = None if known.stale else _fresh(known.marks, marks, whole)
        try:
            if fresh is not None:
                await self._send(conversation, known, [_with_id(by_key[key]) for key in fresh])
            elif marks or cleared:
                await self._follow(conversation, known, by_key, marks, whole, cleared)
        except BaseException:
            # What was sent may be in the log all the same, also when it was cancelled.
            known.stale = True
            raise
        known.marks = marks if whole or known.stale else known.marks | marks
        known.step, known.stale = step, False
        return known.position

    async def _look(self, conversation: str, known: _Known) -> None:
        """Look at what others appended since the last look."""
        if known.position is None:
            return
        later = await since(self._client, conversation, known.seen, after=known.position)
        if any(is_ours(event) and event["id"] not in known.sent for event in later):
            known.stale = True
        known.seen = later[0]["position"] if later else known.seen
        known.sent.clear()

    async def _follow(
        self,
        conversation: str,
        known: _Known,
        by_key: Mapping[str, BaseMessage],
        marks: Mapping[str, str],
        whole: bool,
        cleared: bool,
    ) -> None:
        """Append what the log does not have of a state; go back first if it has something else."""
        log = await read_log(
            self._client,
            conversation,
            marks,
            whole=whole,
            after=known.position,
            renamed=self._trim_state,
        )
        known.seen = known.position = log.newest or known.position
        held = {key: mark for key, mark in marks.items() if key not in log.dropped}
        found = differ(log, held, whole=whole, cleared=cleared)
        rest = [by_key[key] for key in found.rest]
        to = _target(conversation, log, found, by_key, whole)
        if to is not None and log.newest is not None:
            await self._go_back(conversation, known, to, rest, log.newest)
            return
        begin = [_begin(found.rest[0], log.newest)] if found.begins and rest else []
        await self._send(conversation, known, [*begin, *map(_with_id, rest)])

    async def _go_back(
        self,
        conversation: str,
        known: _Known,
        to: str,
        rest: Sequence[BaseMessage],
        newest: str,
    ) -> None:
        """Roll back, and append the rest under new ids: the log knows the first ones.

        Where another process does so at once, one of them is refused, and does it again: history
        shows what was refused, and not that it was, but a later rollback takes it away. So
        if others appended meanwhile, it goes back to what they appended last.

        Raises:
            Conflict: others appended what it would take away; the conversation is as it was.
        """
        expect, refusal = newest, None
        for attempt in range(1, ATTEMPTS + 1):
            again = uuid4().hex[:12]
            rollback = {"type": "rollback", "id": f"{ROLLBACK}{again}", "to": to}
            events = [rollback, *(_with_id(message, again) for message in rest)]
            try:
                await self._send(conversation, known, events, expect=expect)
            except Conflict as error:
                if attempt == ATTEMPTS:
                    raise
                later = await since(self._client, conversation, newest, after=newest)
                expect = later[0]["position"] if later else newest
                lost = next(filter(is_lost, later), None)
                if lost is not None:
                    to, rest, refusal = lost["position"], [], error
            else:
                break
        if refusal is not None:
            raise refusal

    async def _send(
        self,
        conversation: str,
        known: _Known,
        events: Sequence[dict[str, Any]],
        *,
        expect: str | None = None,
    ) -> None:
        """Append events, the first list after position ``expect``; nothing may have come since."""
        for begin in range(0, len(events), MAX_MESSAGES):
            part = events[begin : begin + MAX_MESSAGES]
            checked = expect if begin == 0 else None
            known.sent.update(event["id"] for event in part)
            wait = None if checked is None else "applied"
            answer = await self._client.append(conversation, part, wait=wait, expect=checked)
            if checked is not None:
                check_applied(answer)
            known.position = answer.position


_WINDOW = "threadfold-window-"


def _thread(config: RunnableConfig) -> str:
    thread = (config.get("configurable") or {}).get("thread_id")
    if not thread:
        raise ValueError(
            'the graph runs without a thread: give config={"configurable": {"thread_id": …}}, which'
            " names the conversation"
        )
    return str(thread)


def _step_of(config: RunnableConfig) -> _Step | None:
    """The step that a graph with a checkpointer is in, None of another one."""
    options, about = config.get("configurable") or {}, config.get("metadata") or {}
    number, saver = about.get("langgraph_step"), options.get("__pregel_checkpointer")
    # The last part is the node's.
    namespace = str(options.get("checkpoint_ns") or "").rpartition("|")[0]
    checkpoint = (options.get("checkpoint_map") or {}).get(namespace)
    if number is None or not saver or not checkpoint:
        return None
    return _Step(namespace, number, checkpoint, options["thread_id"], saver)


async def _is_cleared(known: _Known, marks: Mapping[str, str], step: _Step | None) -> bool:
    """Whether a graph goes on with a thread without any of the messages that it had.

    One that begins anew, without its past, begins with the first step again, and has no checkpoint
    of before. A fork has a lower step, too, but its thread keeps its checkpoints.
    """
    last = known.step
    if step is None or last is None or step.namespace != last.namespace:
        return False
    if not known.marks or not known.marks.keys().isdisjoint(marks):
        return False
    if step.number > last.number:
        return True
    thread = {"configurable": {"thread_id": step.thread, "checkpoint_ns": step.namespace}}
    before = {"configurable": {"checkpoint_id": last.checkpoint}}
    return bool([one async for one in step.saver.alist(thread, before=before, limit=1)])


def _fresh(
    known: Mapping[str, str], state: Mapping[str, str], whole: bool
) -> Collection[str] | None:
    """The keys of a state's messages that are not known, None if the log has to be read."""
    if whole:
        same = list(state.items())[: len(known)] == list(known.items())
    else:
        same = all(known.get(key, mark) == mark for key, mark in state.items())
    return [key for key in state if key not in known] if known and same else None


def _begin(key: str, newest: str | None) -> dict[str, Any]:
    """The event before a state's first message; the same one whoever appends it."""
    digest = sha256(f"{newest} {key}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
    return {"type": BEGIN, "id": f"langgraph-begin-{digest}"}


def _target(
    conversation: str,
    log: Reading,
    found: Difference,
    by_key: Mapping[str, BaseMessage],
    whole: bool,
) -> str | None:
    """The position to go back to before the rest is appended, None if nothing was changed.

    Raises:
        Conflict: it cannot go back there.
    """
    cut = found.cut
    if cut is None:
        # A branch that was left comes again: under new ids, like what was changed.
        is_left = not log.left.isdisjoint(found.rest) and log.events
        return log.events[-1].position if is_left else None
    if reason := why_not(log.events, cut, found.rest, whole=whole):
        key = log.events[cut].key or ""
        raise cannot_follow(conversation, (by_key[key].id if key in by_key else key) or "", reason)
    return log.events[cut - 1].position


def _check_given(conversation: str, message: BaseMessage) -> None:
    """Check that a message of the window is as it was put into the state; it is never appended."""
    mark = (message.id or "").removeprefix(_WINDOW).partition("-")[2]
    if mark and mark != mark_of(message):
        reason = "it stands for an event of the conversation (trim_state), and is never appended"
        raise cannot_follow(conversation, message.id or "", reason)


def _with_id(message: BaseMessage, again: str = "") -> dict[str, Any]:
    return {**to_event(message), "id": event_id(message.id or "", again)}
