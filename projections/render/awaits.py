"""Who acts next in a conversation, and the message that closes a render which does not show it.

A tool's result that comes late stands with its call, although others spoke since. Such a render may
end with an assistant's message while it is the model's turn: some providers refuse that, and others
take it for the begin of the answer. Where the call is not in sight the result is not shown at all.
Then the message says where the result stands, whoever spoke last.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from projections.window.bodies import result_call_id
from projections.window.entry import EARLY, Entry, Kind
from projections.window.groups import Group
from projections.window.window import Window

USER, MODEL, TOOL, APPROVAL = "user", "model", "tool", "approval"
MOST_NAMED = 8
"""Results that a closing message names one by one; of more it names the first and the last."""
_TELLING = (Kind.USER, Kind.ASSISTANT, Kind.RESULT, Kind.RESOLUTION)


def awaits_of(window: Window) -> str:
    """``model`` (a user's message or a result is to be answered), ``approval`` (one is open),
    ``tool`` (a result is to be appended) or ``user``.

    A user who speaks while an approval is open is to be answered first, whatever has come since.
    """
    state, last = window.state, _last(window)
    if state.closed is not None:
        return USER
    spoken = _spoken(window)
    asked = spoken is not None and spoken.kind == Kind.USER
    if asked and (state.suspensions or (last is not None and last.kind == Kind.USER)):
        return MODEL
    kinds = {suspension.kind for suspension in state.suspensions}
    if "approval" in kinds:
        return APPROVAL
    if kinds:
        return TOOL if "external" in kinds else USER
    if last is None:
        return USER
    # Results may come before their calls, and before decisions.
    answered = spoken is not None and _answered(window, spoken)
    if any(not call.dead for call in state.calls):
        return TOOL
    if last.kind == Kind.RESOLUTION:
        return MODEL if asked or answered or unread_results(window) else USER
    return MODEL if last.kind == Kind.RESULT or answered else USER


def closing_message(window: Window, groups: Sequence[Group]) -> bytes | None:
    """The message that says that results have come which a render of these groups does not show, or
    shows only before an assistant's last message; None where it is not the model's turn, or the end
    shows them. Of results whose calls are not in sight it says where they stand.
    """
    if awaits_of(window) != MODEL:
        return None
    end, last = groups[-1] if groups else None, _last(window)
    bare = end is None or (end.head.kind == Kind.ASSISTANT and not end.shown_calls())
    results = unread_results(window)
    tools = _shown(groups) if results else {}
    unseen = _late([entry for entry in results if entry.offset not in tools], groups)
    if bare and results and results[-1] is last and last.offset not in tools and not unseen:
        unseen = [last]  # Its call may still come: there is nothing else to answer.
    texts = []
    if bare and results and results[-1].offset in tools:
        tool = tools[results[-1].offset]
        texts.append(f"[The result of the call of {tool} has come: it stands with the call]")
    if unseen:
        texts.append(_named(window, unseen))
    if bare and not texts:
        texts.append("[The conversation goes on]")
    # In the user's role: providers want the last message to be a user's or a tool's. A user's
    # message may stand before it.
    return msgspec.json.encode({"role": "user", "content": "\n".join(texts)}) if texts else None


def unread_results(window: Window) -> list[Entry]:
    """The results in the tail that came after all that the model said, in the order of the log."""
    found: list[Entry] = []
    for entry in reversed(window.tail):
        if entry.kind == Kind.ASSISTANT:
            break
        # What was left out with its call before a summary went around that was read.
        if entry.kind == Kind.RESULT and not (entry.out and entry.offset <= window.covered_to):
            found.append(entry)
    return found[::-1]


def _shown(groups: Sequence[Group]) -> dict[int, str]:
    """The tools of the results that a render of these groups shows, by the results' offsets."""
    return {
        group.results[i].offset: (group.head.calls or ())[i][1]
        for group in groups
        if group.results
        for i in group.shown_calls()
        if i in group.results
    }


def _late(results: Sequence[Entry], groups: Sequence[Group]) -> list[Entry]:
    """Those of the results whose calls have been: not one that waits for its call, and none that
    repeats what stands with a call in sight. Of a reused id another call may have been.
    """
    if not results:
        return []
    shown: dict[str, list[Entry | None]] = {}
    for group in groups:
        for i in group.shown_calls():
            call_id = (group.head.calls or ())[i][0]
            shown.setdefault(call_id, []).append(group.results.get(i))
    return [
        entry
        for entry in results
        if entry.link != EARLY
        and (
            entry.link
            or not entry.body
            or not _repeats(entry, shown.get(result_call_id(entry.body), []))
        )
    ]


def _repeats(entry: Entry, others: Sequence[Entry | None]) -> bool:
    """Whether one of the results in sight may have been the same; None: a call that has none."""
    return any(one is None or one.variants or one.body == entry.body for one in others)


def _named(window: Window, results: Sequence[Entry]) -> str:
    """The line that says where results stand whose calls are not in sight."""
    at = [window.position_of(entry.offset) for entry in results]
    if len(at) == 1:
        return f"[A result has come at {at[0]}: its call is not in sight any more]"
    where = ", ".join(at) if len(at) <= MOST_NAMED else f"{at[0]} to {at[-1]}"
    return f"[{len(at)} results have come at {where}: their calls are not in sight any more]"


def _answered(window: Window, said: Entry) -> bool:
    """Whether a message has calls, and all of them have results."""
    return bool(said.calls) and all(call.offset != said.offset for call in window.state.calls)


def _spoken(window: Window) -> Entry | None:
    """The last message of a user or of the model."""
    kinds = (Kind.USER, Kind.ASSISTANT)
    return next((entry for entry in reversed(window.tail) if entry.kind in kinds), None)


def _last(window: Window) -> Entry | None:
    """The last entry that somebody may have to answer."""
    return next((entry for entry in reversed(window.tail) if entry.kind in _TELLING), None)
