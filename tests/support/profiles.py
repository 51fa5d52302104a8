"""How many examples a run of the tests tries: hypothesis' profiles ``thorough`` and ``fast``."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

SLOW = [HealthCheck.too_slow]
"""Not checked: how fast examples are made says how busy the machine is."""


def register() -> None:
    """Make the profiles known; pytest's ``--hypothesis-profile`` takes one, else it is thorough."""
    settings.register_profile(
        "thorough", max_examples=100, deadline=None, suppress_health_check=SLOW
    )
    settings.register_profile("fast", max_examples=10, deadline=None, suppress_health_check=SLOW)
    settings.load_profile("thorough")


def examples(thorough: int) -> int:
    """The share of a test's examples that belongs to this run's profile; at least 5."""
    return max(5, thorough * settings().max_examples // 100)
