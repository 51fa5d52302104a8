"""The demo's chats: the chitchat dataset, joined into long conversations of many sessions.

The PyPI package ``chitchat-dataset`` (MIT) has 7,168 conversations of two people each, 258,145
messages with their times. Each becomes one *session*. Several sessions in the order of their times
make one long conversation. The text is not changed.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from projections.errors import InvalidSettings
from projections.names import Key, make_key

Flat = dict[str, Any]
"""A flat event with an id and a time, as ``make_record`` takes it."""

PAIRS, GROUP = "pairs", "group"
"""The tenants of the chats: in ``pairs`` one person is the user and the other stands in for the
assistant, in ``group`` all are users with names.
"""
LONG_SESSION = 20
"""Messages a session has at least unless the whole dataset is played: half of the dataset's are
greetings nobody answered.
"""
GREETING = "Two people who do not know each other chat about whatever comes to their minds."


class ChatMessage(msgspec.Struct, gc=False):
    """One message of the dataset."""

    text: str
    timestamp: str
    sender: str


class Session(msgspec.Struct):
    """A conversation of the dataset; ``messages`` are turns of messages by one sender."""

    messages: list[list[ChatMessage]]
    start: str

    @property
    def in_order(self) -> list[ChatMessage]:
        """Its messages in order."""
        return [message for turn in self.messages for message in turn]


@dataclass(frozen=True)
class Script:
    """What will happen in one conversation: ``length`` events, made anew by each call of
    ``events``, always the same.
    """

    key: Key
    length: int
    events: Callable[[], Iterator[Flat]]


def load_sessions() -> list[Session]:
    """The dataset's conversations, ordered by the time of their first message (ties: by the
    dataset's ids).

    Raises:
        InvalidSettings: the package ``chitchat-dataset`` is not installed.
    """
    spec = find_spec("chitchat_dataset")
    if spec is None or spec.origin is None:
        raise InvalidSettings(
            "the package chitchat-dataset is not installed: run `make setup`, or pip install"
            " 'threadfold[demo]'"
        )
    raw = (Path(spec.origin).parent / "dataset.json").read_bytes()
    found = msgspec.json.decode(raw, type=dict[str, Session])
    ordered = sorted(found.items(), key=lambda item: (item[1].messages[0][0].timestamp, item[0]))
    return [session for _, session in ordered]


def join_sessions(
    sessions: list[Session], conversations: int | None, per_conversation: int, seed: int
) -> list[Script]:
    """Join sessions into long conversations; equal arguments give equal scripts.

    Args:
        sessions: in the order of their times, as :func:`load_sessions` gives them.
        conversations: how many to make, of sessions with at least :data:`LONG_SESSION` messages.
            None: all sessions are used, and the last conversation may have fewer.
        per_conversation: sessions in each.
        seed: selects the sessions of each conversation.

    Raises:
        InvalidSettings: the dataset has too few sessions.
    """
    pool = (
        sessions
        if conversations is None
        else [s for s in sessions if sum(map(len, s.messages)) >= LONG_SESSION]
    )
    most = len(pool) // per_conversation
    if conversations is not None and not 1 <= conversations <= most:
        raise InvalidSettings(
            f"--conversations {conversations}: the dataset has sessions for 1 to {most}"
            " conversations; choose a number in that range, or --all"
        )
    order = list(range(len(pool)))
    random.Random(seed).shuffle(order)
    used = len(pool) if conversations is None else conversations * per_conversation
    chunks = [sorted(order[i : i + per_conversation]) for i in range(0, used, per_conversation)]
    return [_script(number, [pool[i] for i in chunk]) for number, chunk in enumerate(chunks)]


def _script(number: int, sessions: list[Session]) -> Script:
    tenant = PAIRS if number % 2 == 0 else GROUP
    messages = sum(len(turn) for session in sessions for turn in session.messages)
    extra = 2 if tenant == PAIRS else 1
    return Script(
        make_key(tenant, f"chat-{number:04d}"),
        messages + len(sessions) + extra,
        lambda: chat_events(tenant, sessions),
    )


def chat_events(tenant: str, sessions: list[Session]) -> Iterator[Flat]:
    """The flat events of one long conversation, each with its original time; ``session.closed``
    ends every session.
    """
    begin = sessions[0].messages[0][0].timestamp
    opened = {"type": "conversation.opened", "id": "opened", "time": begin, "channel": "chat"}
    yield {**opened, "metadata": {"sessions": len(sessions)}}
    if tenant == PAIRS:
        system = {"type": "message", "id": "system", "time": begin, "role": "system"}
        yield {**system, "content": GREETING}
    for number, session in enumerate(sessions):
        messages = session.in_order
        first = messages[0].sender
        for n, message in enumerate(messages):
            flat: Flat = {"type": "message", "id": f"s{number}-m{n}", "time": message.timestamp}
            flat |= {"role": "user", "content": message.text}
            if tenant == GROUP:
                flat["name"] = f"person-{message.sender[:8]}"
            elif message.sender != first:
                flat["role"] = "assistant"
            yield flat
        closed = {"type": "session.closed", "id": f"s{number}-closed", "reason": "idle"}
        yield {**closed, "time": messages[-1].timestamp}


def interleave(scripts: list[Script], seed: int) -> Iterator[tuple[Key, Flat]]:
    """All scripts' events as they would arrive: in bursts of a few events of one conversation, each
    conversation's in its order.

    Which one goes on is drawn in proportion to what each has left, so all end at about the same
    time.
    """
    rng = random.Random(seed)
    running = [(script.key, script.events()) for script in scripts]
    left = [script.length for script in scripts]
    while running:
        at = rng.choices(range(len(running)), left)[0]
        key, events = running[at]
        burst = min(left[at], rng.choice((1, 1, 2, 3, 5, 8)))
        for _ in range(burst):
            yield key, next(events)
        left[at] -= burst
        if not left[at]:
            del running[at], left[at]
