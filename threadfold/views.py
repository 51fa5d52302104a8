"""The former name of ``threadfold.custom``; it works until 0.3."""

from __future__ import annotations

from typing import Any

from threadfold import custom
from threadfold.renamed import renamed

_RENAMED = {
    "View": custom.ProjectionReader,
    "ViewRecord": custom.ProjectionRecord,
    "ViewReport": custom.ProjectionReport,
}


def __getattr__(name: str) -> Any:
    return renamed(
        __name__, name, {**{same: getattr(custom, same) for same in custom.__all__}, **_RENAMED}
    )
