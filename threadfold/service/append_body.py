"""The body of an append: from the bytes a caller sends to events ready for the log.

All of it is pure, and all that a large body costs is here. So it runs where it holds up nobody: in
the event loop for what is small, in a thread or in a process of its own for what is not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from enum import Enum
from functools import partial
from typing import Any, NamedTuple

from projections.errors import InvalidEvent, InvalidRequest, MalformedInput, ThreadfoldError
from projections.events.json_text import count_items, decode, items_of, values_at_most
from projections.events.known_fields import Known, explain_unknown, unknown_field, without_unknown
from projections.events.tokenizer import count_all
from projections.formats import anthropic_input
from projections.formats.anthropic_input import from_anthropic
from projections.names import one_line
from projections.window import bodies
from projections.window.bodies import to_flat
from streams.runtime.shared_bytes import SharedBytes
from threadfold.service.drafts import UNCONDITIONED, Conditions, Drafter
from threadfold.service.spill import Drafts
from threadfold.service.user_messages import check_message

MAX_ITEMS = 500
"""Events or messages in one request; more answers 422, because the list is not too large but too
long.
"""
LOOP_BYTES = 16 << 10
LOOP_VALUES = 4_000
"""A body of more bytes or JSON values is not read in the event loop."""
THREAD_BYTES = 256 << 10
THREAD_VALUES = 20_000
"""A body of more bytes or JSON values is read in another process: a thread would share the
interpreter's lock with the event loop.
"""


PART_BYTES = 4 << 20
"""Bytes of a list that are decoded and drafted at a time."""
RawBody = bytes | SharedBytes
"""A body as it came; a large one lies where the process that reads it takes it."""


def prepare() -> None:
    """Make the tables that count tokens, which the first body would wait for."""
    count_all(["first"])


class Form(Enum):
    """What the items of a body are."""

    EVENTS = "event"
    EVENTS_OF_SEVERAL = "events of several conversations"
    OPENAI = "message"
    ANTHROPIC = "message of Anthropic's"


class Place(Enum):
    """Where a body is read."""

    LOOP = "event loop"
    THREAD = "thread"
    PROCESS = "process"


class AppendBody(NamedTuple):
    """A body as it came, and what it is to be read as. ``conversation`` is the path's; empty where
    each event names its own. Fields of a message that its format does not have are refused, if
    they are not to be left out (``lenient``); an event's always are. An end user (``by_user``) may
    send messages of the role user only.
    """

    text: RawBody
    form: Form
    conversation: str = ""
    lenient: bool = False
    by_user: bool = False

    def place(self) -> Place:
        """Where it is to be read."""
        text = self.text
        size = len(text)
        if size > THREAD_BYTES or isinstance(text, SharedBytes):
            return Place.PROCESS  # what follows would take long already
        values = values_at_most(text) if size > LOOP_VALUES else size
        if size <= LOOP_BYTES and values <= LOOP_VALUES:
            return Place.LOOP
        return Place.THREAD if values <= THREAD_VALUES else Place.PROCESS

    def items_at_first(self) -> int:
        """How many events it seems to be before it is read: the items of a list that this process
        reads, else 1. A message of Anthropic's may be several.
        """
        if isinstance(self.text, SharedBytes) or self.text[:1] == b"{":
            return 1
        if self.text.count(b"{") > THREAD_VALUES:  # to count them takes long
            return MAX_ITEMS
        return max(1, min(MAX_ITEMS, count_items(self.text)))

    def drafts(
        self, drafter: Drafter, id_seed: str | None, conditions: Conditions = UNCONDITIONED
    ) -> Drafts:
        """The drafts of its events (``Drafter.drafts``).

        Raises:
            MalformedInput: it is not JSON.
            InvalidRequest: it has no item, or too many items or values.
            InvalidName, InvalidEvent, EventTooLarge, InvalidPolicy: the first item that is wrong,
                named.
            Forbidden: an end user may not send an item.
            WorkerLost: the process that took a shared body ended.
        """
        text = [self.text.take() if isinstance(self.text, SharedBytes) else self.text]
        found = Drafts([], [], [])
        owners = _Owners()
        noun = "message" if self.form in _FIELDS else "event"
        given: dict[str, Any] = {
            "operator": False,
            "id_seed": id_seed,
            "conditions": conditions,
        }
        for begin, items in parts_of(text, noun, drafter.check_size):
            draft = partial(drafter.drafts, **given, goes_on=begin > 0)
            part = self._part(items, begin, draft, owners)
            found = part if not begin else found.and_(part)
            del items, part  # before the next ones are decoded
        return found

    def _part(
        self, items: list[Any], begin: int, draft: Callable[..., Drafts], owners: _Owners
    ) -> Drafts:
        """The drafts of the items from place ``begin`` on. ``owners`` are the messages that the
        events so far were made of.
        """
        fields, first = _FIELDS.get(self.form), begin + 1
        if fields is not None and self.lenient:
            items = without_unknown(items, fields)
        elif fields is not None:
            for i, item in enumerate(items, first):
                _check_fields(item, fields, f"message {i}")
        if self.form is Form.ANTHROPIC:
            return self._from_anthropic(items, begin, draft, owners)
        if self.form is Form.EVENTS_OF_SEVERAL:
            named = [_named(i, flat) for i, flat in enumerate(items, first)]
            return draft(named, "event")
        if self.form is Form.OPENAI:
            flats: list[Any] = [
                to_flat(item, f"message {i}") for i, item in enumerate(items, first)
            ]
        else:
            flats = [self._of_this(i, flat) for i, flat in enumerate(items, first)]
        self._check_user(flats, self.form.value, first)
        pairs = [(self.conversation, flat) for flat in flats]
        return draft(pairs, self.form.value)

    def drafts_apart(
        self, drafter: Drafter, id_seed: str | None, conditions: Conditions = UNCONDITIONED
    ) -> Drafts | bytes:
        """:meth:`drafts`, in another process. Those of a shared body are put in its place: whoever
        owns it receives them with the bytes that this returns (``SharedBytes.received``).
        """
        drafts = self.drafts(drafter, id_seed, conditions)
        return self.text.put_back(drafts) if isinstance(self.text, SharedBytes) else drafts

    def _of_this(self, number: int, flat: Any) -> Any:
        if (
            isinstance(flat, dict)
            and flat.get("conversation", self.conversation) != self.conversation
        ):
            raise InvalidEvent(
                f"event {number}: field conversation: this route appends to"
                f" {self.conversation} only, POST /v1/events to several"
            )
        return flat

    def _check_user(self, flats: list[Any], noun: str, first: int) -> None:
        if self.by_user:
            for i, flat in enumerate(flats, first):
                check_message(flat, f"{noun} {i}")

    def _from_anthropic(
        self,
        messages: list[Any],
        begin: int,
        draft: Callable[..., Drafts],
        owners: _Owners,
    ) -> Drafts:
        first = len(owners.numbers) + 1
        flats = []
        for number, message in enumerate(messages, begin + 1):
            made = from_anthropic(message, f"message {number}")
            owners.add(number, [flat.get("id") for flat in made])
            flats += made
        if len(owners.numbers) > MAX_ITEMS:
            raise InvalidRequest(
                f"the messages are {len(owners.numbers)} events: at most {MAX_ITEMS} go in one"
                " request"
            )
        pairs = [(self.conversation, flat) for flat in flats]

        def named(text: str) -> str:
            # The caller knows its messages, not the events that were made of them.
            return re.sub(
                r"^event ([0-9]+)(?=:|$)",
                lambda found: f"message {owners.numbers[int(found[1]) - 1]}",
                text,
            )

        try:
            self._check_user(flats, "event", first)
            drafts = draft(pairs, "event")
        except ThreadfoldError as error:
            raise type(error)(named(str(error))) from None
        excess = [each._replace(where=named(each.where)) for each in drafts.pinned_excess]
        return drafts._replace(pinned_excess=excess)


class _Owners:
    """The messages of a list, by the events that were made of them: ``numbers`` has one each."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self._given: dict[str, int] = {}
        self._derived: dict[str, int] = {}

    def add(self, number: int, ids: list[object]) -> None:
        """Add the events of a message by their ids, the first of which its caller gave.

        Raises:
            InvalidEvent: an id that a caller gave is the one of another message's event. The later
                event would be taken for a repeat, and lost.
        """
        self.numbers += [number] * len(ids)
        for i, id_ in enumerate(ids):
            if not isinstance(id_, str):
                continue
            own, others = (self._derived, self._given) if i else (self._given, self._derived)
            own.setdefault(id_, number)
            if id_ in others:
                given, made = (others[id_], number) if i else (number, others[id_])
                raise InvalidEvent(
                    f"message {given}: field id: {one_line(id_)} is the id of an event that is made"
                    f" of message {made}: choose another"
                )


def decode_apart(text: SharedBytes) -> bytes:
    """Decode a shared body in another process, and put what it holds in its place."""
    return text.put_back(decode(text.take()))


_FIELDS = {Form.OPENAI: bodies.MESSAGE_FIELDS, Form.ANTHROPIC: anthropic_input.MESSAGE_FIELDS}


def _check_fields(message: Any, known: Mapping[str, Known], where: str) -> None:
    """Raises :class:`InvalidEvent` if a message has a field that its format does not have."""
    field = unknown_field(message, known)
    if field is not None and isinstance(message, dict) and "messages" in message:
        raise InvalidEvent(
            f"{where}: field messages: unknown to a message: send the list of messages itself, as"
            " the whole body; a system text goes before it, as a message of the role system"
        )
    if field is not None:
        more = "with ?unknown=ignore others are left out"
        raise InvalidEvent(f"{where}: {explain_unknown(field, 'a message', known, more)}")


def as_list(body: Any, noun: str) -> list[Any]:
    """One item, or a bare array of 1 to 500 of them; raises :class:`InvalidRequest`."""
    if not isinstance(body, list):
        return [body]
    if not body:
        raise InvalidRequest(f"the list is empty: send at least one {noun}")
    if len(body) > MAX_ITEMS:
        raise InvalidRequest(
            f"the list has {len(body)} {noun}s: at most {MAX_ITEMS} go in one request"
        )
    return body


def parts_of(
    text: list[bytes], noun: str, check: Callable[[bytes, str], None]
) -> Iterator[tuple[int, list[Any]]]:
    """The items of a body, decoded: all at once, or of a large list one part after the other, each
    with the number of those before. ``text`` has the body alone, which is taken out: decoded, one
    wide character makes a text four times as large, so only a part is held at a time, and an item
    that ``check`` refuses is not decoded.

    Raises:
        MalformedInput: it is not JSON.
        InvalidRequest: it has no item, or too many items or values.
        EventTooLarge: an item is too large.
    """
    pieces = items_of(text[0]) if len(text[0]) > PART_BYTES else None
    if pieces is None:
        check(text[0], f"{noun} 1")
        yield 0, as_list(_decoded(text.pop(), noun), noun)
        return
    text.clear()
    as_list(pieces, noun)
    pieces.reverse()
    begin, number, size = 0, 0, 0
    items: list[Any] = []
    while pieces:
        piece = pieces.pop()
        number, size = number + 1, size + len(piece)
        check(piece, f"{noun} {number}")
        items.append(decode(piece, f"{noun} {number}"))
        if size > PART_BYTES or not pieces:
            yield begin, items
            begin, size, items = number, 0, []


def _decoded(text: bytes, noun: str) -> Any:
    """A body, decoded at once; raises as :func:`parts_of`, and names the item that is wrong."""
    try:
        return decode(text)
    except MalformedInput:
        for number, item in enumerate(items_of(text) or (), 1):
            decode(item, f"{noun} {number}")
        raise


def _named(number: int, flat: Any) -> tuple[str, Any]:
    if not isinstance(flat, dict):
        raise InvalidEvent(f"event {number}: expected an object with its conversation")
    name = flat.get("conversation")
    if not isinstance(name, str):
        raise InvalidEvent(
            f"event {number}: field conversation: "
            + ("missing" if name is None else "expected text")
        )
    return name, flat
