"""Producers: tasks that append to the seed's conversations over HTTP, and repeat with the same ids
until they are told it is in.

Every text names its tenant and conversation, so that an oracle sees what stands in a wrong window.
"""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from tests.chaos.evidence import Ack, Flat
from tests.chaos.platform import Platform
from tests.chaos.statements import statement

WORDS = [
    "order",
    "refund",
    "Thursday",
    "window",
    "deposit",
    "passenger",
    "invoice",
    "Zürich",
    "Osaka",
    "payment",
    "draft",
    "deadline",
]
BUSY = 4
"""Conversations of each tenant that get most of what is appended."""
LONG, SELDOM = 30.0, 30.0
"""Seconds after which so many times less is appended: an operator's command may take minutes on a
slow machine, and the oracle's time grows with the square of what a conversation holds.
"""
ENOUGH = 180.0
"""Seconds after which an append that is still not acknowledged is given up, and said."""


@dataclass(slots=True)
class Sent:
    """One request: where it went, its body, and what it was."""

    conversation: str
    path: str
    body: Any
    headers: dict[str, str]
    flats: list[tuple[str, Flat]]
    """Of each event its conversation and the event as it is expected in the log."""


@dataclass
class Producer:
    """One producer of one tenant; ``acks`` are what it was told is in, in its own order."""

    number: int
    platform: Platform
    tenant: str
    conversations: list[str]
    rng: random.Random
    acks: list[Ack] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    unknown: int = 0
    """Answers that left it open whether the events are in."""
    _made: int = 0
    _said: int = 0
    _sent: list[Sent] = field(default_factory=list)
    _calls: int = 0
    _waiting: dict[str, list[str]] = field(default_factory=dict)

    async def run(self, until: asyncio.Event) -> None:
        """Append until told to end; the last append is seen through."""
        begun = time.monotonic()
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=5)) as http:
            while not until.is_set():
                if self._sent and self.rng.random() < 0.08:
                    await self._deliver(http, self.rng.choice(self._sent[-8:]), repeat=True)
                else:
                    await self._deliver(http, self._next())
                late = SELDOM if time.monotonic() - begun > LONG else 1.0
                await asyncio.sleep(self.rng.uniform(0.5, 1.5) * self.platform.plan.pause * late)

    # -- what is sent
    # ------------------------------------------------------------------------------------------

    def _next(self) -> Sent:
        busy = self.rng.random() < 0.8
        conversation = self.rng.choice(self.conversations[: BUSY if busy else None])
        kind = self.rng.choices(
            (
                "one",
                "list",
                "messages",
                "several",
                "tools",
                "wait",
                "suspend",
                "resolve",
                "rollback",
                "note",
                "close",
            ),
            (26, 20, 8, 6, 16, 4, 4, 4, self.platform.plan.rollbacks, 3, self._closes),
        )[0]
        if kind == "messages":
            return self._messages(conversation)
        if kind == "several":
            items = [
                (self.rng.choice(self.conversations), self._message())
                for _ in range(self.rng.randint(2, 4))
            ]
            flats = [(name, self._marked(name, flat)) for name, flat in items]
            return Sent(
                conversation,
                "/v1/events",
                [{**flat, "conversation": name} for name, flat in flats],
                {},
                flats,
            )
        flats_of = {
            "list": lambda: [self._message() for _ in range(self.rng.randint(2, 8))],
            "tools": self._tools,
            "suspend": lambda: [self._suspension(conversation)],
            "resolve": lambda: [self._resolution(conversation)],
            "rollback": lambda: [self._rollback(conversation)],
            "note": lambda: [self._note()],
            "close": lambda: [{"type": "session.closed", "id": self._id(), "reason": "explicit"}],
        }
        made = flats_of.get(kind, lambda: [self._message()])()
        flats = [(conversation, self._marked(conversation, flat)) for flat in made]
        bodies = [flat for _, flat in flats]
        path = f"/v1/conversations/{conversation}/events" + (
            "?wait=applied" if kind == "wait" else ""
        )
        return Sent(conversation, path, bodies if len(bodies) > 1 else bodies[0], {}, flats)

    def _messages(self, conversation: str) -> Sent:
        """Messages in OpenAI's format, whose ids derive from a key that every repeat carries."""
        bodies = [
            {"role": self.rng.choice(("user", "assistant")), "content": self._text(conversation)}
            for _ in range(self.rng.randint(1, 3))
        ]
        self._made += 1
        headers = {"Idempotency-Key": f"{self.tenant}-{self.number}-{self._made}"}
        flats = [(conversation, {"type": "message", **body}) for body in bodies]
        return Sent(
            conversation, f"/v1/conversations/{conversation}/messages", bodies, headers, flats
        )

    @property
    def _closes(self) -> int:
        return 0 if self.platform.plan.learning == "off" else 4

    def _id(self) -> str:
        self._made += 1
        return f"p{self.number}-{self._made}"

    def _message(self) -> Flat:
        role = self.rng.choices(("user", "assistant", "system"), (50, 48, 2))[0]
        return {"type": "message", "id": self._id(), "role": role, "content": ""}

    def _tools(self) -> list[Flat]:
        self._calls += 1
        # Ids of calls come again within a conversation, as real agents' do.
        name, call = self.rng.choice(("search", "book")), f"call_{self._calls % 5}"
        arguments = f'{{"n":{self.rng.randrange(3)}}}'
        asked = {"type": "message", "id": self._id(), "role": "assistant", "content": None}
        asked["tool_calls"] = [{"id": call, "name": name, "arguments": arguments}]  # type: ignore[assignment]
        result = {
            "type": "tool.result",
            "id": self._id(),
            "tool_call_id": call,
            "name": name,
            "content": "",
        }
        return [asked, result] if self.rng.random() < 0.9 else [asked]

    def _suspension(self, conversation: str) -> Flat:
        name = self._id()
        self._waiting.setdefault(conversation, []).append(name)
        return {
            "type": "suspension",
            "id": f"s-{name}",
            "suspension_id": name,
            "kind": "approval",
            "prompt": "",
        }

    def _resolution(self, conversation: str) -> Flat:
        waiting = self._waiting.get(conversation)
        name = waiting.pop(0) if waiting else "nothing"
        return {
            "type": "resolution",
            "id": self._id(),
            "suspension_id": name,
            "outcome": "approved",
        }

    def _rollback(self, conversation: str) -> Flat:
        known = [ack for ack in self.acks[-60:] if ack.key == f"{self.tenant}/{conversation}"]
        if not known:
            return self._note()
        back = self.rng.choice(known[-6:] if self.rng.random() < 0.7 else known)
        return {
            "type": "rollback",
            "id": self._id(),
            "to": back.id if self.rng.random() < 0.7 else back.position,
        }

    def _note(self) -> Flat:
        if self.rng.random() < 0.5:
            return {"type": "compaction.requested", "id": self._id()}
        return {"type": "com.example.noted.v1", "id": self._id(), "about": ""}

    def _marked(self, conversation: str, flat: Flat) -> Flat:
        """The event with text that says whose it is where it may have text."""
        fields = {
            name: self._text(conversation)
            for name in ("content", "prompt", "about")
            if flat.get(name) == ""
        }
        return {**flat, **fields}

    def _text(self, conversation: str) -> str:
        mark = f"@{self.tenant}/{conversation}@"
        parts = (
            " ".join(self.rng.choices(WORDS, k=self.rng.randint(4, 12)))
            for _ in range(self.rng.randint(1, 3))
        )
        sentences = [f"{part.capitalize()} {mark} {self._number()}." for part in parts]
        if self.rng.random() < 0.4:
            said = statement(self.rng, self.rng.choice(WORDS), mark, self._number())
            sentences.insert(self.rng.randint(0, len(sentences)), said)
        return " ".join(sentences)

    def _number(self) -> str:
        self._said += 1
        return f"n{self.number}x{self._said}"

    # -- delivery
    # ------------------------------------------------------------------------------------------

    async def _deliver(
        self, http: aiohttp.ClientSession, sent: Sent, *, repeat: bool = False
    ) -> None:
        deadline = asyncio.get_running_loop().time() + ENOUGH
        headers = {"Authorization": f"Bearer {self.platform.keys[self.tenant]}", **sent.headers}
        while True:
            url = self.rng.choice(self.platform.urls) + sent.path
            try:
                async with http.post(url, json=sent.body, headers=headers) as answer:
                    if answer.status in (200, 202):
                        self._acknowledged(sent, await answer.json(), repeat)
                        return
                    keys = {f"{self.tenant}/{conversation}" for conversation, _ in sent.flats}
                    if answer.status == 410 and keys & self.platform.erased:
                        return
                    if answer.status < 500 and answer.status != 429:
                        self.refused.append(
                            f"{sent.path} answered {answer.status}: {(await answer.text())[:300]}"
                        )
                        return
                    self.unknown += 1
            except (aiohttp.ClientError, TimeoutError, OSError):
                self.unknown += 1
            if asyncio.get_running_loop().time() > deadline:
                self.refused.append(f"{sent.path} was not acknowledged within {ENOUGH:g} s")
                return
            await asyncio.sleep(self.rng.uniform(0.05, 0.3))

    def _acknowledged(self, sent: Sent, answer: Any, repeat: bool) -> None:
        for (conversation, flat), told in zip(sent.flats, answer["events"], strict=True):
            known = flat.get("id", told["id"])
            if known != told["id"]:
                self.refused.append(f"{sent.path} answered id {told['id']} for {known}")
            key = f"{self.tenant}/{conversation}"
            self.acks.append(
                Ack(key, told["id"], told["position"], flat, self.number, len(self.acks), repeat)
            )
        if not repeat:
            self._sent.append(sent)


def producers_of(platform: Platform) -> list[Producer]:
    """The seed's producers: each of one tenant, over all of that tenant's conversations."""
    plan = platform.plan
    conversations = [f"c{i}" for i in range(plan.conversations)]
    return [
        Producer(
            n, platform, f"t{n % plan.tenants}", conversations, random.Random(plan.seed * 1_000 + n)
        )
        for n in range(plan.producers)
    ]
