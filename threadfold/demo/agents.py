"""A small simulation of tool-using agents: the parcel desk of a delivery company that does not
exist.

Everything is drawn from a seeded generator, so equal seeds give equal events. The traffic has what
makes agents hard on a window: several calls at once answered out of order, results of thousands of
characters, errors and retries, calls that wait for an approval, a rollback now and then, and call
ids that begin again with every turn, as those of real agents do.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

from projections.names import make_key
from threadfold.demo.sources import Flat, Script

AGENTS = "agents"
"""The tenant of the simulated agents."""
BEGIN = datetime(2026, 3, 2, 8, 0, tzinfo=UTC)
SYSTEM = (
    "You are the parcel desk's assistant. Look things up before you answer, name parcels by their"
    " number, and ask for an approval before money is paid back. Answer in one or two sentences."
)
PLACES = (
    "Aarhus",
    "Bremen",
    "Cork",
    "Dijon",
    "Espoo",
    "Faro",
    "Ghent",
    "Hamar",
    "Izmir",
    "Jena",
    "Kaunas",
    "Lille",
)
NOTES = (
    "sorted",
    "loaded on the truck",
    "arrived at the hub",
    "label read twice",
    "held for weighing",
    "door closed, card left",
)
MODEL = "simulated-1"


def _tool(name: str, description: str, *fields: str) -> dict[str, Any]:
    parameters = {
        "type": "object",
        "properties": {field: {"type": "string"} for field in fields},
        "required": list(fields),
    }
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


TOOLS = [
    _tool("find_parcel", "State and owner of a parcel.", "parcel"),
    _tool("list_scans", "Every scan of a parcel, oldest first.", "parcel"),
    _tool("price", "Price of a delivery between two places.", "origin", "target"),
    _tool("pay_back", "Pay money back to a parcel's owner; needs an approval.", "parcel", "amount"),
]


class Agent:
    """One agent's conversation as a stream of flat events, turn after turn."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)
        self._now = BEGIN + timedelta(minutes=self._rng.randrange(600))
        self._n = 0
        self._calls = 0
        self._requests: list[str] = []

    def opening(self) -> Iterator[Flat]:
        """The events before the first turn."""
        yield self._event(
            "conversation.opened",
            channel="desk",
            user=f"clerk-{self._rng.randrange(90) + 10}",
            tools=TOOLS,
        )
        yield self._event("message", role="system", content=SYSTEM)

    def turn(self) -> Iterator[Flat]:
        """One turn: a request, the work, an answer; sometimes a rollback and a new begin."""
        parcel = f"P{self._rng.randrange(10**6, 10**7)}"
        self._calls = 0  # ids begin again: within a conversation they are not unique
        turn = f"turn-{self._n}"
        kind = self._rng.choices(
            (self._look, self._history, self._compare, self._refund), (4, 3, 3, 2)
        )[0]
        request = self._event(
            "message", role="user", name="clerk", content=self._request(kind.__name__, parcel)
        )
        yield request
        self._requests.append(request["id"])
        yield self._event("turn.started", turn_id=turn, model=MODEL)
        yield from kind(parcel)
        yield self._event("turn.ended", turn_id=turn, model=MODEL)
        if self._rng.random() < 0.06:
            # Mostly this turn; sometimes so far back that a summary covers the target.
            back = self._rng.choice((1, 1, 1, 8))
            yield self._event("rollback", to=self._requests[-back:][0])
            yield self._say(
                f"Starting over with parcel {parcel}: it was delivered to"
                f" {self._rng.choice(PLACES)} on the second try."
            )

    # -- the kinds of work
    # ------------------------------------------------------------------------------------------

    def _look(self, parcel: str) -> Iterator[Flat]:
        call = self._call("find_parcel", parcel=parcel)
        yield self._ask(None, call)
        if self._rng.random() < 0.3:
            yield self._result(call, "the register did not answer within 5 s", is_error=True)
            call = self._call("find_parcel", parcel=parcel)
            yield self._ask("That failed; once more.", call)
        place = self._rng.choice(PLACES)
        grams = self._rng.randrange(80, 9000)
        state = {"parcel": parcel, "state": "on the way", "place": place, "grams": grams}
        yield self._result(call, json.dumps(state))
        yield self._say(f"Parcel {parcel} is on its way; it was last seen in {place}.")

    def _history(self, parcel: str) -> Iterator[Flat]:
        call = self._call("list_scans", parcel=parcel)
        yield self._ask(f"I will read all scans of {parcel}.", call)
        rows = self._scans(self._rng.choice((8, 20, 45, 90)))
        yield self._result(call, json.dumps({"parcel": parcel, "scans": rows}))
        yield self._say(
            f"Parcel {parcel} has {len(rows)} scans; the last is from {rows[-1]['place']}:"
            f" {rows[-1]['note']}."
        )

    def _compare(self, parcel: str) -> Iterator[Flat]:
        origin, *targets = self._rng.sample(PLACES, self._rng.choice((3, 4)))
        calls = [self._call("price", origin=origin, target=target) for target in targets]
        yield self._ask(None, *calls)
        prices = {target: self._rng.randrange(390, 4_900) / 100 for target in targets}
        answers = list(zip(calls, targets, strict=True))
        self._rng.shuffle(answers)  # parallel calls are answered as they get done
        for call, target in answers:
            yield self._result(
                call, json.dumps({"origin": origin, "target": target, "euro": prices[target]})
            )
        best = min(prices, key=lambda target: prices[target])
        yield self._say(
            f"For {parcel}, from {origin} the cheapest is {best} at {prices[best]:.2f} euro."
        )

    def _refund(self, parcel: str) -> Iterator[Flat]:
        amount = f"{self._rng.randrange(500, 9_000) / 100:.2f}"
        call = self._call("pay_back", parcel=parcel, amount=amount)
        yield self._ask(
            f"I would pay back {amount} euro for {parcel}; this needs an approval.", call
        )
        waits = f"approval-{self._n}"
        yield self._event(
            "suspension",
            suspension_id=waits,
            kind="approval",
            tool_call_id=call["id"],
            prompt=f"Pay back {amount} euro for {parcel}?",
        )
        self._now += timedelta(minutes=self._rng.randrange(1, 90))
        approved = self._rng.random() < 0.7
        yield self._event(
            "resolution", suspension_id=waits, outcome="approved" if approved else "rejected"
        )
        if approved:
            reference = f"R{self._rng.randrange(10**8)}"
            paid = {"parcel": parcel, "paid": amount, "reference": reference}
            yield self._result(call, json.dumps(paid))
            yield self._say(f"{amount} euro were paid back for parcel {parcel}.")
        else:
            yield self._result(call, "rejected by the supervisor", is_error=True)
            yield self._say(
                f"The supervisor did not approve paying back {amount} euro for {parcel}."
            )

    # -- the events
    # ------------------------------------------------------------------------------------------

    def _request(self, kind: str, parcel: str) -> str:
        return {
            "_look": f"Where is parcel {parcel}?",
            "_history": (
                f"What happened to {parcel} since it was posted? The owner says it went to"
                f" {self._rng.choice(PLACES)}."
            ),
            "_compare": f"We have to send {parcel} again. What would that cost?",
            "_refund": f"Parcel {parcel} came broken. The owner wants the money back.",
        }[kind]

    def _scans(self, n: int) -> list[dict[str, Any]]:
        begin = self._now - timedelta(days=4)
        return [
            {
                "time": (begin + timedelta(minutes=47 * i)).isoformat(timespec="minutes"),
                "place": self._rng.choice(PLACES),
                "gate": f"{self._rng.choice('ABCD')}{self._rng.randrange(1, 40)}",
                "note": self._rng.choice(NOTES),
            }
            for i in range(n)
        ]

    def _event(self, type_: str, **fields: Any) -> Flat:
        self._now += timedelta(seconds=self._rng.randrange(1, 40))
        self._n += 1
        return {"type": type_, "id": f"a{self._n}", "time": self._now.isoformat(), **fields}

    def _call(self, name: str, **arguments: str) -> dict[str, str]:
        self._calls += 1
        return {"id": f"call_{self._calls}", "name": name, "arguments": json.dumps(arguments)}

    def _ask(self, content: str | None, *calls: dict[str, str]) -> Flat:
        return self._event(
            "message", role="assistant", content=content, tool_calls=list(calls), model=MODEL
        )

    def _say(self, content: str) -> Flat:
        return self._event("message", role="assistant", content=content, model=MODEL)

    def _result(self, call: dict[str, str], content: str, *, is_error: bool = False) -> Flat:
        fields: dict[str, Any] = {"tool_call_id": call["id"], "name": call["name"]}
        failed = {"is_error": True} if is_error else {}
        return self._event("tool.result", **fields, content=content, **failed)


def agent_events(seed: int, turns: int) -> Iterator[Flat]:
    """The events of one agent's conversation of ``turns`` turns; deterministic."""
    agent = Agent(seed)
    yield from agent.opening()
    for _ in range(turns):
        yield from agent.turn()


def agent_scripts(conversations: int, turns: int, seed: int) -> list[Script]:
    """Scripts of the simulated agents, each with a seed of its own drawn from ``seed``."""
    return [
        _agent_script(number, turns, seed * 1_000_003 + number) for number in range(conversations)
    ]


def _agent_script(number: int, turns: int, seed: int) -> Script:
    length = sum(1 for _ in agent_events(seed, turns))
    return Script(make_key(AGENTS, f"desk-{number:04d}"), length, lambda: agent_events(seed, turns))
