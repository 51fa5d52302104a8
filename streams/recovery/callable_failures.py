"""Callables that a process lacks, or in which they fail: its fold comes to other windows than the
workers' then. A command writes none of them, a reader shows none of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from projections.errors import CallableFailed, CallableUnavailable
from projections.names import Key
from projections.policy.policy import NOT_REGISTERED, Failures, callables_of
from projections.window.window import Window

AS_WORKERS = (
    "run it with the settings (THREADFOLD_CALLABLES) and in the environment of the workers, or mend"
    " the callable"
)


def check_callables(failures: Failures, key: Key) -> None:
    """Raises :class:`CallableFailed` where a callable failed in the fold of a conversation."""
    for name, why in failures.get(key, {}).items():
        raise CallableFailed(
            f"nothing was changed: callable {name!r} {why} in this process, so the default template"
            f" would stand in its place: {AS_WORKERS}"
        )


def check_shown(failures: Failures, key: Key) -> None:
    """Raises :class:`CallableUnavailable` where a callable failed in the fold of a window that is
    to be shown. Whether it failed in the worker, too, nobody here can know.
    """
    for name, why in failures.get(key, {}).items():
        raise _unavailable(key, name, why)


def check_rendered(window: Window) -> None:
    """Raises :class:`CallableUnavailable` for a window whose policy shortens results in each render
    by a callable that this process lacks. One that fails is replaced by the default template
    wherever it is rendered.
    """
    if window.policy.cuts == "exact" and window.results:
        for name in callables_of(window.policy):
            if name not in window.rules.callables:
                raise _unavailable(window.key, name, NOT_REGISTERED)


@dataclass(frozen=True, slots=True)
class CallableFailure:
    """One way in which a callable could not do its work: in how many conversations, and the first
    of them by name.
    """

    name: str
    why: str
    conversations: int
    first: str


def failed_callables(failures: Failures) -> list[CallableFailure]:
    """The ways in which callables could not do their work, by name and reason."""
    where: dict[tuple[str, str], list[Key]] = {}
    for key, of_one in failures.items():
        for failure in of_one.items():
            where.setdefault(failure, []).append(key)
    return [
        CallableFailure(name, why, len(keys), str(min(keys)))
        for (name, why), keys in sorted(where.items())
    ]


def failure_lines(found: list[CallableFailure]) -> Iterator[str]:
    """A line for each of them."""
    for one in found:
        count = f"{one.conversations} conversation{'s' if one.conversations > 1 else ''}"
        yield (
            f"callable {one.name!r} {one.why} here: in {count}, {one.first} first, the default"
            f" template is used. What differs there may differ for that alone: {AS_WORKERS}"
        )


def _unavailable(key: Key, name: str, why: str) -> CallableUnavailable:
    return CallableUnavailable(
        f"conversation {key.conversation}: callable {name!r} of its policy {why} in this process,"
        f" so the result may differ from the worker's window: {AS_WORKERS}",
        str(key),
        "missing" if why == NOT_REGISTERED else "raised",
    )
