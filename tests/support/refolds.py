"""Cutting a window's tail anew."""

from __future__ import annotations

from projections.fold.append import fold_again
from projections.window.window import Window


def refold(window: Window) -> None:
    """Go through the tail as if its entries came only now."""
    window.begin_refold()
    for i in range(len(window.tail)):
        fold_again(window, i, -1)
