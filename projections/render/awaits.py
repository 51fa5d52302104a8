"""Who acts next in a conversation, and the message that closes a render whose end does not show it.

A tool's result that comes late stands with its call, although others spoke since. Such a render may
end with an assistant's message while it is the model's turn: some providers refuse that, and others
take it for the begin of the answer.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from projections.window.entry import Entry, Kind
from projections.window.groups import Group
from projections.window.window import Window

USER, MODEL, TOOL, APPROVAL = "user", "model", "tool", "approval"
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
    if last.kind == Kind.RESOLUTION:
        return TOOL if state.calls else MODEL if asked or answered else USER
    if any(not call.dead for call in state.calls):
        return TOOL
    return MODEL if last.kind == Kind.RESULT or answered else USER


def closing_message(window: Window, groups: Sequence[Group]) -> bytes | None:
    """The message that says that a result has come, where a render of these groups would end with
    an assistant's message instead, or with a summary; None where it is not the model's turn, or the
    end shows it. Of a result whose call has left the window it says where it stands.
    """
    end = groups[-1] if groups else None
    if end is not None and (end.head.kind != Kind.ASSISTANT or end.shown_calls()):
        return None
    if awaits_of(window) != MODEL:
        return None
    last = _last(window)
    text = "[The conversation goes on]"
    if last is not None and last.kind == Kind.RESULT:
        at = window.position_of(last.offset)
        text = f"[A result has come at {at}: its call is not in sight any more]"
    for group in groups:
        for i in group.shown_calls():
            result = group.results.get(i)
            if result is not None and last is not None and result.offset == last.offset:
                tool = (group.head.calls or ())[i][1]
                text = f"[The result of the call of {tool} has come: it stands with the call]"
    # In the user's role: providers want the last message to be a user's or a tool's.
    return msgspec.json.encode({"role": "user", "content": text})


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
