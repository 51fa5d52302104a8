"""What a command that checks a deployment found: lines that say ``ok``, ``note`` or ``wrong``."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

import click

from projections.errors import KafkaUnavailable, RedisUnavailable, ThreadfoldError


@dataclass(slots=True)
class Findings:
    """Counts the findings and prints each at once."""

    wrong: int = 0
    unreachable: int = 0

    def ok(self, what: str, text: str) -> None:
        """A check passed."""
        click.echo(f"ok    {what}: {text}")

    def note(self, what: str, text: str) -> None:
        """Nothing is broken, and somebody should look at it; the text says where."""
        click.echo(f"note  {what}: {text}")

    def fault(self, what: str, text: str) -> None:
        """A check failed; the text says what to do."""
        self.wrong += 1
        click.echo(f"wrong {what}: {text}")

    async def check(self, what: str, check: Callable[[], Awaitable[None]]) -> bool:
        """Run one check; returns whether it could be made."""
        try:
            await check()
        except (KafkaUnavailable, RedisUnavailable) as error:
            self.unreachable += 1
            self.fault(what, str(error))
            return False
        except ThreadfoldError as error:
            self.fault(what, str(error))
            return False
        except Exception as error:  # noqa: BLE001 (the other checks are made all the same)
            # Anybody may have written what it reads.
            self.fault(what, f"unexpected error: {type(error).__name__}: {error}")
            return False
        return True

    @property
    def exit_code(self) -> int:
        """0 nothing is wrong, 1 something is, 2 a service is unreachable."""
        return 2 if self.unreachable else 1 if self.wrong else 0
