"""How much of their quotas' rates tenants use in this gateway, for its report."""

from __future__ import annotations

import time
from collections.abc import Callable

from streams.metrics.top_labels import TopLabels
from threadfold.quotas.quotas import Quotas


class QuotaUse:
    """What tenants used between two looks. For one who looks."""

    def __init__(self, quotas: Quotas, clock: Callable[[], float] = time.monotonic) -> None:
        self._quotas = quotas
        self._clock = clock
        self._labels = TopLabels()
        self._at = clock()
        self._charged: dict[tuple[str, str], float] = {}

    def look(self) -> dict[tuple[str, ...], float]:
        """What was used since the last look over what each rate admits in that time, by quota and
        tenant: of those who use most by their names, of all others the most.
        """
        now = self._clock()
        seconds, self._at = max(now - self._at, 1e-3), now
        before, self._charged = self._charged, {}
        ratios: dict[str, dict[str, float]] = {}
        for name, kind, lease in self._quotas.leases():
            self._charged[name, kind] = lease.charged
            used = lease.charged - before.get((name, kind), 0.0)
            if used > 0:
                ratios.setdefault(name, {})[kind] = used / (lease.rate * seconds)
        self._labels.rotate()
        found: dict[tuple[str, ...], float] = {}
        for name, of_one in sorted(ratios.items(), key=lambda one: -max(one[1].values())):
            label = self._labels.of(name, max(of_one.values()))
            for kind, ratio in of_one.items():
                found[kind, label] = max(ratio, found.get((kind, label), 0.0))
        return found
