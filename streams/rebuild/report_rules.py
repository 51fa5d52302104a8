"""The rules under which a report folds."""

from __future__ import annotations

from collections.abc import Callable

from projections.fold.quarantine import is_poison
from projections.policy.policy import Failures, Rules

_Replace = Callable[[str, str, str], str]


class Panicked(Exception):
    """A callable raised an error that is no ``Exception``. Libraries in other languages do."""


def report_rules(rules: Rules, failures: Failures) -> Rules:
    """The same rules, under which a fold notes in ``failures`` what callables cannot do, and goes
    on. A worker parks a conversation whose callable panics; a report has others to look at.
    """
    watched = rules.watched(failures)
    watched.callables = {name: _without_panics(call) for name, call in rules.callables.items()}
    return watched


def _without_panics(replace: _Replace) -> _Replace:
    def call(tool: str, call_id: str, text: str) -> str:
        try:
            return replace(tool, call_id, text)
        except Exception:
            raise
        except BaseException as error:
            if not is_poison(error):
                raise
            raise Panicked(type(error).__name__) from None

    return call
