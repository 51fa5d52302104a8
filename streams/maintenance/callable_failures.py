"""Callables that a command's process lacks, or in which they fail: its fold comes to other windows
than the workers' then, so it writes none of them.
"""

from __future__ import annotations

from collections.abc import Iterator

from projections.errors import CallableFailed
from projections.names import Key
from projections.policy.policy import Failures

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


def failure_lines(failures: Failures) -> Iterator[str]:
    """A line for each way in which a callable could not do its work."""
    where: dict[tuple[str, str], list[Key]] = {}
    for key, of_one in failures.items():
        for failure in of_one.items():
            where.setdefault(failure, []).append(key)
    for (name, why), keys in sorted(where.items()):
        count = f"{len(keys)} conversation{'s' if len(keys) > 1 else ''}"
        yield (
            f"callable {name!r} {why} here: in {count}, {min(keys)} first, the default template was"
            f" taken. What differs there may differ for that alone: {AS_WORKERS}"
        )
